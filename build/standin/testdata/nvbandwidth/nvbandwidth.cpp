// Stand-in for nvbandwidth: options and the error of a machine without a GPU.
#include <boost/program_options.hpp>
#include <cuda.h>
#include <iostream>
#include <nvml.h>

#include "version.h"

namespace opt = boost::program_options;

int main(int argc, char **argv) {
	opt::options_description options("nvbandwidth CLI (stand-in)");
	options.add_options()("help,h", "Produce help message")("list,l", "List available testcases")("json,j", "Print output in json format");
	opt::variables_map values;
	try {
		opt::store(opt::parse_command_line(argc, argv, options), values);
	} catch (const opt::error &e) {
		std::cerr << "ERROR: " << e.what() << "\n";
		return 1;
	}
	std::cout << "nvbandwidth Version: " NVBANDWIDTH_VERSION "\nBuilt from Git version: stand-in\n\n";
	if (values.count("help")) {
		std::cout << options;
		return 0;
	}
	if (values.count("list")) {
		std::cout << "0, host_to_device_memcpy_ce: stand-in\n";
		return 0;
	}
	if (nvmlInit_v2() != NVML_SUCCESS || cuInit(0) != CUDA_SUCCESS) {
		std::cerr << "no CUDA driver\n";
		return 1;
	}
	return 0;
}
