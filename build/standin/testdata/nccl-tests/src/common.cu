// Stand-in for nccl-tests' main program: options, MPI start, the header of the
// table, and then the error that a machine without a GPU gives.
#include <cstdio>
#include <cstring>
#include <unistd.h>

#include "common.h"
#include "nccl.h"
#ifdef MPI_SUPPORT
#include "mpi.h"
#endif

static int fail(int device_error) {
	char host[256] = "";
	gethostname(host, sizeof host - 1);
	printf("%s: Test CUDA failure common.cu: '%s'\n", host, cudaGetErrorString(device_error));
	return 2;
}

static void header(int rank, int ranks) {
	int version = 0;
	ncclGetVersion(&version);
	if (rank != 0) return;
	if (strcmp(STANDIN_VERSION, "2.17") >= 0) // from then on they say so
		printf("# nccl-tests version %s nccl-headers=%d nccl-library=%d\n", STANDIN_VERSION, NCCL_VERSION_CODE, version);
	printf("# nThread 1 nGpus 1 ranks %d (stand-in)\n#\n# Using devices\n", ranks);
}

int standinMain(const char *test, int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
			printf("USAGE: %s_perf [-t,--nthreads <num threads>] [-g,--ngpus <gpus per thread>] [-b,--minbytes <min size>] ... (stand-in)\n", test);
			return 0;
		}
	}
	int rank = 0, ranks = 1;
#ifdef MPI_SUPPORT
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
	header(rank, ranks);
	int devices = 0, error = cudaGetDeviceCount(&devices), status = error ? fail(error) : 0;
	fflush(stdout);
#ifdef MPI_SUPPORT
	MPI_Finalize();
#endif
	return status;
}
