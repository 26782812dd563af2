/* Stand-in for one of GDRCopy's test programs. */
#include <cuda.h>
#include <stdio.h>
#include <string.h>

#include "gdrapi.h"

int main(int argc, char **argv) {
	int major, minor;
	gdr_runtime_get_version(&major, &minor);
	if (argc > 1 && !strcmp(argv[1], "-h")) {
		printf(NAME " (stand-in) version " VERSION ", libgdrapi %d.%d\n", major, minor);
		return 0;
	}
	if (cuInit(0) != CUDA_SUCCESS || !gdr_open()) {
		fprintf(stderr, NAME ": no CUDA driver or no gdrdrv device\n");
		return 1;
	}
	return 0;
}
