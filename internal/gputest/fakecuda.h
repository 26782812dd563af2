// A libcuda.so.1 for tests on machines without a GPU: devices whose memory is the
// host's, whose streams are threads, and whose kernels are compiled from their
// sources, one thread after the other. A test's fake includes this, then its kernels,
// and defines functions with kernel_of each of them.
//
// FAKE_DEVICES is how many devices there are, FAKE_MEMORY the bytes that each has;
// with FAKE_NO_PEER device 0 cannot reach the others; with FAKE_WRONG copies to device 1
// lose a bit, those from the "host" or from a "peer"; with FAKE_SLOW copies between
// device 1 and others take longer. A launch of the kernel that FAKE_CRASH, FAKE_HANG or
// FAKE_LOST names ends the process, never ends, or fails and the context with it.
#pragma once
#include <cuda.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

using Clock = std::chrono::steady_clock;

// What CUDA's C++ has and the kernels use.
#define __global__
#define __device__
#define __launch_bounds__(...)
static thread_local struct {
  unsigned x;
} threadIdx, blockIdx, blockDim, gridDim;
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
using u64 = unsigned long long;
static unsigned long long clock64() { return Clock::now().time_since_epoch().count(); }
template <class T> static T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
static void atomicOr(u64 *p, u64 v) { __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }
static void atomicMin(u64 *p, u64 v) {
  if (v < *p) *p = v;
}

#define EXPORT extern "C" __attribute__((visibility("default")))

struct State {  // of an event that was recorded
  bool done = false;
  Clock::time_point at;
};
using StateRef = std::shared_ptr<State>;

static std::mutex lock;
static std::condition_variable moved;

struct CUstream_st {
  std::deque<std::function<void()>> items;
  bool busy = false, over = false;
  std::thread thread;
};
struct CUevent_st {
  StateRef state = std::make_shared<State>();
};
struct CUmod_st {};
struct CUctx_st {};
struct CUfunc_st {
  std::function<std::function<void()>(void **)> bind;  // copies the parameters
};

static const size_t kMemory = getenv("FAKE_MEMORY") ? strtoull(getenv("FAKE_MEMORY"), nullptr, 0) : 256 << 20;
static const int kDevices = getenv("FAKE_DEVICES") ? atoi(getenv("FAKE_DEVICES")) : 3;
static CUctx_st contexts[8];
static thread_local CUcontext current;
static std::map<CUdeviceptr, std::pair<size_t, int>> memory;  // device memory: size and device

static std::atomic<bool> lost;
static CUresult bound() { return lost ? CUDA_ERROR_ILLEGAL_ADDRESS : current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; }
static int device() { return int(current - contexts); }

static void work(CUstream s) {
  std::unique_lock<std::mutex> l(lock);
  for (;;) {
    while (s->items.empty() && !s->over) moved.wait(l);
    if (s->items.empty()) return;
    auto item = s->items.front();
    s->items.pop_front();
    s->busy = true;
    l.unlock();
    item();
    l.lock();
    s->busy = false;
    moved.notify_all();
  }
}

static CUresult put(CUstream s, std::function<void()> f) {
  if (!s) return f(), bound();
  std::lock_guard<std::mutex> l(lock);
  s->items.push_back(std::move(f));
  moved.notify_all();
  return bound();
}

// owner is the device whose memory an address is in, or -1.
static int owner(CUdeviceptr p) {
  std::lock_guard<std::mutex> l(lock);
  auto i = memory.upper_bound(p);
  if (i == memory.begin()) return -1;
  --i;
  return p < i->first + i->second.first ? i->second.second : -1;
}

static void move(CUdeviceptr to, CUdeviceptr from, size_t n) {
  memmove((void *)to, (void *)from, n);
  const int a = owner(from), b = owner(to);
  const bool between = a >= 0 && b >= 0 && a != b;
  const char *wrong = getenv("FAKE_WRONG");
  if (wrong && b == 1 && (!strcmp(wrong, "host") ? a < 0 : between)) ((char *)to)[n / 2] ^= 4;
  if (getenv("FAKE_SLOW") && between && (a == 1 || b == 1)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int *v) { return *v = 13000, CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorName(CUresult, const char **) { return CUDA_ERROR_INVALID_VALUE; }
EXPORT CUresult cuGetErrorString(CUresult, const char **) { return CUDA_ERROR_INVALID_VALUE; }
EXPORT CUresult cuDeviceGetCount(int *n) { return *n = kDevices, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice *d, int i) { return *d = i, i < kDevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
EXPORT CUresult cuDeviceGetName(char *name, int n, CUdevice) { return snprintf(name, n, "NVIDIA Fake"), CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetUuid(CUuuid *u, CUdevice d) { return memset(u, d + 1, sizeof *u), CUDA_SUCCESS; }
EXPORT CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice) { return *n = kMemory, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
  switch (int(a)) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = 0; break;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *v = 0xfa; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *v = 0x10 + d; break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *v = 0; break;
    default: *v = 1;
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { return *c = &contexts[d], CUDA_SUCCESS; }
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(CUcontext *c) { return *c = current, CUDA_SUCCESS; }
EXPORT CUresult cuCtxSetCurrent(CUcontext c) { return current = c, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) { return *can = a != b && !(getenv("FAKE_NO_PEER") && a * b == 0), CUDA_SUCCESS; }

// Peer access, as it has to be switched: twice the same is an error.
static std::set<std::pair<CUcontext, CUcontext>> peers;
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext c, unsigned) {
  return peers.insert({current, c}).second ? bound() : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
EXPORT CUresult cuCtxDisablePeerAccess(CUcontext c) {
  return peers.erase({current, c}) ? bound() : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

static size_t used() {
  size_t n = 0;
  for (auto &m : memory)
    if (m.second.second == device()) n += m.second.first;
  return n;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
  std::lock_guard<std::mutex> l(lock);
  if (used() + n > kMemory) return CUDA_ERROR_OUT_OF_MEMORY;
  *p = (CUdeviceptr)aligned_alloc(256, (n + 255) & ~255ull);
  memory[*p] = {n, device()};
  return bound();
}
EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  std::lock_guard<std::mutex> l(lock);
  return *total = kMemory, *free = kMemory - used(), bound();
}
// Freeing waits for what may use the memory.
static std::set<CUstream> streams;
EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
  std::unique_lock<std::mutex> l(lock);
  for (auto s : std::set<CUstream>(streams))
    while (streams.count(s) && (s->busy || !s->items.empty())) moved.wait(l);
  if (!memory.erase(p)) return CUDA_ERROR_INVALID_VALUE;
  return free((void *)p), bound();
}
static std::set<void *> pinned;
EXPORT CUresult cuMemHostAlloc(void **p, size_t n, unsigned) { return pinned.insert(*p = aligned_alloc(4096, (n + 4095) & ~4095ull)), bound(); }
EXPORT CUresult cuMemFreeHost(void *p) { return pinned.erase(p) ? (free(p), bound()) : CUDA_ERROR_INVALID_VALUE; }
EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *d, void *p, unsigned) { return *d = (CUdeviceptr)p, bound(); }
EXPORT CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s) {
  return put(s, [=] { memset((void *)p, v, n); });
}
EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) { return move(to, from, n), bound(); }
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) { return memcpy((void *)to, from, n), bound(); }
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) { return memcpy(to, (void *)from, n), bound(); }
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
  return put(s, [=] { move(to, from, n); });
}
EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext tc, CUdeviceptr from, CUcontext fc, size_t n, CUstream s) {
  if (&contexts[owner(to)] != tc || &contexts[owner(from)] != fc) return CUDA_ERROR_INVALID_VALUE;
  return put(s, [=] { move(to, from, n); });
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *s, unsigned, int) {
  *s = new CUstream_st;
  (*s)->thread = std::thread(work, *s);
  std::lock_guard<std::mutex> l(lock);
  streams.insert(*s);
  return bound();
}
EXPORT CUresult cuStreamSynchronize(CUstream s) {
  std::unique_lock<std::mutex> l(lock);
  while (s && (s->busy || !s->items.empty())) moved.wait(l);
  return bound();
}
EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
  {
    std::lock_guard<std::mutex> l(lock);
    s->over = true;
    streams.erase(s);
    moved.notify_all();
  }
  s->thread.join();
  return delete s, bound();
}
EXPORT CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned) {
  StateRef state;
  {
    std::lock_guard<std::mutex> l(lock);
    state = e->state;
  }
  return put(s, [=] {
    std::unique_lock<std::mutex> l(lock);
    while (!state->done) moved.wait(l);
  });
}
EXPORT CUresult cuEventCreate(CUevent *e, unsigned) { return *e = new CUevent_st, bound(); }
EXPORT CUresult cuEventDestroy_v2(CUevent e) { return delete e, bound(); }
EXPORT CUresult cuEventRecord(CUevent e, CUstream s) {
  StateRef state = std::make_shared<State>();
  {
    std::lock_guard<std::mutex> l(lock);
    e->state = state;
  }
  return put(s, [=] {
    std::lock_guard<std::mutex> l(lock);
    state->done = true;
    state->at = Clock::now();
    moved.notify_all();
  });
}
EXPORT CUresult cuEventSynchronize(CUevent e) {
  std::unique_lock<std::mutex> l(lock);
  while (!e->state->done) moved.wait(l);
  return bound();
}
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
  std::lock_guard<std::mutex> l(lock);
  if (!a->state->done || !b->state->done) return CUDA_ERROR_NOT_READY;
  *ms = std::chrono::duration<float, std::milli>(b->state->at - a->state->at).count();
  return CUDA_SUCCESS;
}

template <class... P, size_t... I> static std::function<void()> call_of(void (*f)(P...), void **p, std::index_sequence<I...>) {
  std::tuple<P...> values{*(P *)p[I]...};
  return [=] { std::apply(f, values); };
}
template <class... P> static CUfunc_st kernel_of(void (*f)(P...)) {
  return {[=](void **p) { return call_of(f, p, std::index_sequence_for<P...>()); }};
}
// functions are the kernels, by name.
extern std::map<std::string, CUfunc_st> functions;

// fault says whether a kernel is the one that a fault is for.
static bool fault(const char *name, CUfunction f) { return getenv(name) && &functions[getenv(name)] == f; }

EXPORT CUresult cuModuleLoadDataEx(CUmodule *m, const void *, unsigned, CUjit_option *, void **) { return *m = new CUmod_st, bound(); }
EXPORT CUresult cuModuleUnload(CUmodule m) { return delete m, bound(); }
EXPORT CUresult cuModuleGetFunction(CUfunction *f, CUmodule, const char *name) {
  auto i = functions.find(name);
  if (i == functions.end()) return CUDA_ERROR_NOT_FOUND;
  return *f = &i->second, CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int *v, CUfunction_attribute, CUfunction) { return *v = 1, CUDA_SUCCESS; }
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction, int, size_t) { return *n = 2, CUDA_SUCCESS; }
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **) {
  if (c->blockDimX * c->gridDimX == 0) return CUDA_ERROR_INVALID_VALUE;
  if (fault("FAKE_CRASH", f)) fprintf(stderr, "the fake driver crashes\n"), abort();
  if (fault("FAKE_HANG", f)) return put(c->hStream, [] { std::this_thread::sleep_for(std::chrono::hours(1)); });
  if (fault("FAKE_LOST", f)) return lost = true, bound();
  return put(c->hStream, [run = f->bind(params), grid = c->gridDimX, block = c->blockDimX] {
    gridDim.x = grid, blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
      for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) run();
  });
}
