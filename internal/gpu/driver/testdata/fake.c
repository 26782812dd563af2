// A libcuda.so.1 for tests of what is between Go and the driver. It has two
// devices without kernels: what a launch was given goes to the file FAKE_TRACE.
// FAKE_VERSION and FAKE_INIT are what cuDriverGetVersion and cuInit answer.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

static int contexts[2];
static __thread CUcontext current;

static FILE *trace(void) { return fopen(getenv("FAKE_TRACE"), "a"); }

CUresult cuInit(unsigned flags) {
	const char *code = getenv("FAKE_INIT");
	return code ? atoi(code) : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
	*version = atoi(getenv("FAKE_VERSION"));
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n) {
	*n = 2;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *dev, int ordinal) {
	if (ordinal < 0 || ordinal > 1)
		return CUDA_ERROR_INVALID_DEVICE;
	*dev = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice dev) {
	snprintf(name, size, "Fake %d", dev);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
	for (int i = 0; i < 16; i++)
		uuid->bytes[i] = 16 * dev + i;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
	*bytes = 1 << 30;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev) {
	*value = attribute;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev) {
	*ctx = (CUcontext)&contexts[dev];
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) { return CUDA_SUCCESS; }

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer) {
	*can = dev != peer;
	return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
	return peer == current ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxGetCurrent(CUcontext *ctx) {
	*ctx = current;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
	current = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) { return 12345; }

CUresult cuGetErrorName(CUresult code, const char **name) {
	*name = "CUDA_ERROR_FAKE";
	return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
	*text = "an error of tomorrow";
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	if (n > 1 << 30)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*p = (CUdeviceptr)calloc(1, n);
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr p) {
	free((void *)p);
	return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr p, const void *from, size_t n) {
	memcpy((void *)p, from, n);
	return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr p, size_t n) {
	memcpy(to, (void *)p, n);
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream s) { return CUDA_SUCCESS; }

CUresult cuStreamQuery(CUstream s) { return s ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }

CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr p, cuuint32_t v, unsigned flags) {
	FILE *f = trace();
	fprintf(f, "wait %p %llx %u %u\n", (void *)s, p, v, flags);
	fclose(f);
	return CUDA_SUCCESS;
}

// A float comes in another kind of register.
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
	*ms = 1.5;
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, CUjit_option *options, void **values) {
	if (strcmp(image, "good") == 0) {
		*module = (CUmodule)image;
		return CUDA_SUCCESS;
	}
	if (strcmp(image, "new") == 0)
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	if (strcmp(image, "large") == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; i < n; i++)
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
			strcpy(values[i], "line 1: what is this?\n");
	return CUDA_ERROR_INVALID_PTX;
}

CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name) {
	if (strcmp(name, "kernel") != 0)
		return CUDA_ERROR_NOT_FOUND;
	*f = (CUfunction)0x123;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction f) {
	*value = attribute;
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
	if (c->gridDimX == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (c->gridDimY == 9) // for timing
		return CUDA_SUCCESS;
	FILE *t = trace();
	fprintf(t, "launch %p in %d grid %u %u %u block %u %u %u shared %u stream %p:", (void *)f, (int)((int *)current - contexts),
	        c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes, (void *)c->hStream);
	fprintf(t, " %llu %u", *(unsigned long long *)params[0], *(unsigned *)params[1]);
	for (unsigned i = 0; i < c->numAttrs; i++)
		fprintf(t, " [%u=%d]", c->attrs[i].id, c->attrs[i].value.cooperative);
	fprintf(t, "\n");
	fclose(t);
	return CUDA_SUCCESS;
}

// The handle is passed on the stack.
// The descriptor is the end of the range, and the type.
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr p, size_t n, CUmemRangeHandleType type, unsigned long long flags) {
	if (p % 4096 || n % 4096 || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)handle = p + n + type;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle h, unsigned flags) {
	*p = flags;
	for (int i = 0; i < 64; i++)
		*p += (unsigned char)h.reserved[i] << 4;
	return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr p) {
	if (p == 0)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = 1;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = 77;
		break;
	default:
		*(char *)data = 1;
	}
	return CUDA_SUCCESS;
}
