// Stand-in for NCCL: it tells its version, and that there is no GPU.
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "nccl.h"

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
// People find a library's version with strings(1): NCCL has this line too.
extern "C" __attribute__((used)) const char ncclStandinVersion[] =
	"NCCL version " TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR) "." TEXT(NCCL_PATCH) "+cuda" STANDIN_CUDA;

extern "C" ncclResult_t ncclGetVersion(int *version) {
	if (!version) return ncclInvalidArgument;
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

extern "C" ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
	int fd = open("/dev/urandom", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, id->internal, sizeof id->internal);
	if (fd >= 0) close(fd);
	return n == (ssize_t)sizeof id->internal ? ncclSuccess : ncclSystemError;
}

extern "C" ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId, int rank) {
	if (!comm || rank < 0 || rank >= ranks) return ncclInvalidArgument;
	int devices = 0;
	return cudaGetDeviceCount(&devices) == cudaSuccess ? ncclInternalError : ncclUnhandledCudaError;
}

extern "C" ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }

extern "C" const char *ncclGetErrorString(ncclResult_t result) {
	switch (result) {
	case ncclSuccess: return "no error";
	case ncclUnhandledCudaError: return "unhandled cuda error";
	case ncclSystemError: return "unhandled system error";
	case ncclInvalidArgument: return "invalid argument";
	default: return "internal error";
	}
}
