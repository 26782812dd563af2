// A libcuda.so.1 with three devices whose memory is the host's and whose kernels
// are those of check.cu. Nothing that is enqueued is done before somebody waits
// for it, so that what is forgotten to be waited for shows.
#include <cuda.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define __global__
#define __device__
#define __shared__ static thread_local
static thread_local struct {
  unsigned x;
} threadIdx, blockIdx, blockDim{1}, gridDim;
static void __syncthreads() {}
static unsigned long long atomicAdd(unsigned long long *p, unsigned long long v) { return (*p += v) - v; }
static uint32_t atomicAdd(uint32_t *p, uint32_t v) { return (*p += v) - v; }

#include "../check.cu"

using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;

struct CUstream_st {
  CUcontext context;
  std::vector<Work> queue, captured;
  bool capturing = false;
};
struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st : CUgraph_st {};
struct CUevent_st {
  CUstream stream = nullptr;
  Clock::time_point at;
};
struct CUfunc_st {
  std::function<Work(void **)> bind;  // copies the parameters
};

constexpr int devices = 3;
static int contexts[devices];
static thread_local CUcontext current;
static std::mutex lock;
static std::vector<CUstream> streams;

static void drain(CUstream s) {
  auto work = std::move(s->queue);
  s->queue.clear();
  for (auto &w : work) w();
}

// drain_all is about the current device.
static void drain_all() {
  std::vector<CUstream> all;
  {
    std::lock_guard<std::mutex> hold(lock);
    all = streams;
  }
  for (auto s : all)
    if (s->context == current) drain(s);
}

static CUresult enqueue(CUstream s, Work w) {
  if (current != s->context) return CUDA_ERROR_INVALID_CONTEXT;
  (s->capturing ? s->captured : s->queue).push_back(std::move(w));
  return CUDA_SUCCESS;
}

template <typename T>
static Work bind_tile(void (*f)(T *, uint64_t, const T *, uint32_t, uint32_t), void **p) {
  return [=, dst = *(T **)p[0], n = *(uint64_t *)p[1], pattern = *(const T **)p[2], period = *(uint32_t *)p[3],
          phase = *(uint32_t *)p[4]] { f(dst, n, pattern, period, phase); };
}

template <typename T>
static Work bind_compare(void (*f)(const T *, uint64_t, const T *, uint32_t, uint32_t, uint64_t, unsigned long long *),
                         void **p) {
  return [=, got = *(const T **)p[0], n = *(uint64_t *)p[1], pattern = *(const T **)p[2], period = *(uint32_t *)p[3],
          phase = *(uint32_t *)p[4], slack = *(uint64_t *)p[5],
          wrong = *(unsigned long long **)p[6]] { f(got, n, pattern, period, phase, slack, wrong); };
}

static std::map<std::string, CUfunc_st> functions{
#define BOTH(bytes)                                                     \
  {"tile" #bytes, {[](void **p) { return bind_tile(tile##bytes, p); }}}, \
      {"compare" #bytes, {[](void **p) { return bind_compare(compare##bytes, p); }}},
    BOTH(1) BOTH(2) BOTH(4) BOTH(8)};

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *v) { return *v = 13000, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char **) { return CUDA_ERROR_INVALID_VALUE; }
CUresult cuGetErrorString(CUresult, const char **) { return CUDA_ERROR_INVALID_VALUE; }

CUresult cuDeviceGetCount(int *n) { return *n = devices, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *d, int i) { return *d = i, i < devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
CUresult cuDeviceGetName(char *name, int n, CUdevice) { return strncpy(name, "fake", n), CUDA_SUCCESS; }
CUresult cuDeviceGetUuid(CUuuid *u, CUdevice) { return memset(u, 0, sizeof *u), CUDA_SUCCESS; }
CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice) { return *n = 2ull << 30, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute, CUdevice) { return *v = 1, CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { return *c = (CUcontext)&contexts[d], CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *c) { return *c = current, CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext c) { return current = c, CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return drain_all(), CUDA_SUCCESS; }

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
  *p = (CUdeviceptr)aligned_alloc(256, (n + 255) & ~255ull);
  memset((void *)*p, 0xa5, n);
  return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemFree_v2(CUdeviceptr p) { return drain_all(), free((void *)p), CUDA_SUCCESS; }
CUresult cuMemGetInfo_v2(size_t *unused, size_t *all) { return *unused = 1ull << 30, *all = 2ull << 30, CUDA_SUCCESS; }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned) { return *p = malloc(n), CUDA_SUCCESS; }
CUresult cuMemFreeHost(void *p) { return drain_all(), free(p), CUDA_SUCCESS; }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *d, void *p, unsigned) { return *d = (CUdeviceptr)p, CUDA_SUCCESS; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void *s, size_t n) { return memcpy((void *)d, s, n), CUDA_SUCCESS; }
CUresult cuMemcpyDtoH_v2(void *d, CUdeviceptr s, size_t n) { return memcpy(d, (void *)s, n), CUDA_SUCCESS; }
CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) {
  return enqueue(st, [=] { memcpy((void *)d, (void *)s, n); });
}
CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s) {
  return enqueue(s, [=] { memset((void *)p, v, n); });
}

CUresult cuStreamCreateWithPriority(CUstream *s, unsigned, int) {
  std::lock_guard<std::mutex> hold(lock);
  streams.push_back(*s = new CUstream_st{current, {}, {}, false});
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream s) {
  if (!s) return CUDA_SUCCESS;  // nobody uses the default stream
  if (s->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return drain(s), CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream s, CUhostFn f, void *data) {
  return enqueue(s, [=] { f(data); });
}

CUresult cuEventCreate(CUevent *e, unsigned) { return *e = new CUevent_st, CUDA_SUCCESS; }
CUresult cuEventDestroy_v2(CUevent e) { return delete e, CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent e, CUstream s) {
  e->stream = s;
  return enqueue(s, [=] { e->at = Clock::now(); });
}
CUresult cuEventSynchronize(CUevent e) { return drain(e->stream), CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
  *ms = std::chrono::duration<float, std::milli>(b->at - a->at).count();
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *m, const void *, unsigned, CUjit_option *, void **) {
  return *m = (CUmodule)&functions, CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule, const char *name) {
  auto at = functions.find(name);
  if (at == functions.end()) return CUDA_ERROR_NOT_FOUND;
  return *f = &at->second, CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int *v, CUfunction_attribute, CUfunction) { return *v = 0, CUDA_SUCCESS; }

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **) {
  if (c->gridDimX == 0) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(c->hStream, [grid = c->gridDimX, work = f->bind(params)] {
    gridDim.x = grid;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) work();
  });
}

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode) {
  s->captured.clear();
  return s->capturing = true, CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream s, CUgraph *g) {
  s->capturing = false;
  *g = new CUgraph_st{std::move(s->captured)};
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long) {
  return *x = new CUgraphExec_st{*g}, CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec x, CUstream s) {
  for (auto &w : x->work)
    if (CUresult r = enqueue(s, w)) return r;
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph g) { return delete g, CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec x) { return delete x, CUDA_SUCCESS; }
}
