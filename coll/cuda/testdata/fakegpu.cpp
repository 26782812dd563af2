// A libcuda.so.1 for tests of the engine on machines without a GPU: devices
// whose kernels run on the emulator of kernels/emu, as streams that go on by
// themselves. Blocks have 64 threads, or 192 where warps serve others, whatever
// was asked for: the kernels are right with any number from there on. They are
// those for MAX_RANKS, whichever variant of a module was loaded.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>
#include <string>
#include <thread>

#include "kernels/abi.h"
#include "kernels/check.h"
#include "kernels/emu/machine.h"
#include "kernels/stage.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using Flag = std::shared_ptr<bool>;

// An Item is what a stream does: wait for a flag or until it may, then run and
// set a flag; a kernel takes until its flag is set.
struct Item {
  std::function<bool()> may;
  std::function<void()> run;
  std::function<emu::Launch()> kernel;
  Flag wait, set;
  CUevent external = nullptr;  // of a graph: waits for what this was recorded behind when the graph is launched
  unsigned long long number = 0;  // of what was put on any stream
};

// A node of a graph is known by the flag that is set behind it. Those that record an event
// name the nodes that they come behind, and have a stream of their own.
struct CUgraphNode_st {
  Flag done;
  CUevent event = nullptr;
  std::set<CUgraphNode> behind;
  CUstream stream = nullptr;
};

// A Capture is what was put on a stream while it was captured, and on those
// which waited for its events.
struct Capture {
  CUstream origin;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  bool spoilt;
  std::deque<std::pair<CUstream, Item>> items;
  std::set<CUgraphNode> nodes;  // that were asked for
  std::map<CUstream, CUgraphNode> frontier;
  unsigned long long id;
  CUgraph graph;
};
using CaptureRef = std::shared_ptr<Capture>;

struct CUstream_st {
  unsigned gpu = 0;  // the emulator's: a queue of grids
  std::deque<Item> items;
  Flag running;  // the kernel's
  CaptureRef capture;
  CUcontext context = nullptr;
  unsigned long long id = 0;
  int priority = 0;
  unsigned queue = 0;
  bool orphan = false;  // what is left of one that was destroyed
  std::map<uint64_t, std::pair<unsigned, unsigned>> early;  // grids and blocks of a rank, launched early one after the other
};
struct CUevent_st {
  Flag done = std::make_shared<bool>(true);
  CaptureRef capture;  // that it was recorded in
};
struct CUgraph_st { CaptureRef items; };
struct CUgraphExec_st { CaptureRef items; };
struct CUmod_st {};
struct CUctx_st {};

// FAKE_DEVICES is how many devices there are.
static const int kDevices = getenv("FAKE_DEVICES") ? atoi(getenv("FAKE_DEVICES")) : 2;
static const unsigned kMultiprocessors = 12;
static CUctx_st contexts[8];
static __thread CUcontext current;

static std::mutex lock;
// A program that ends runs destructors while threads here still wait: these have none.
static std::condition_variable &moved = *new std::condition_variable, &work = *new std::condition_variable;
static std::set<CUstream> &streams = *new std::set<CUstream>;
static CUstream_st legacy;
static std::vector<CUstream> &handles = *new std::vector<CUstream>;  // of streams that were destroyed
static unsigned gpus = 1;
static unsigned long long ids = 10;
static bool started;

static CUstream of(CUstream s) { return s ? s : &legacy; }

// With FAKE_QUEUES, so many queues (CUDA_DEVICE_MAX_CONNECTIONS) carry what is put on the streams of a device, in its
// order: what waits keeps all behind it waiting, of whichever stream. On an H200 (driver 580) that is so of kernels,
// of short copies from the host, and, once any copy between host and device waits, of all such copies; a stream's
// priority makes no difference.
static const unsigned kQueues = getenv("FAKE_QUEUES") ? atoi(getenv("FAKE_QUEUES")) : 0;
static bool first_of_queue(CUstream s) {
  if (kQueues)
    for (CUstream o : streams)
      if (o->context == s->context && o->queue == s->queue && !o->items.empty() && o->items.front().number < s->items.front().number) return false;
  return true;
}

// step lets every stream do what it can; the lock is held.
static void step(emu::Machine &m) {
  bool any = false;
  for (CUstream s : streams) {
    for (;;) {
      if (s->running) {
        if (!*s->running) break;
        s->running = nullptr;
        any = true;
      }
      if (s->items.empty() || !first_of_queue(s)) break;
      Item &i = s->items.front();
      if (i.may && !i.may() || i.wait && !*i.wait) break;
      if (i.kernel) {
        s->running = std::make_shared<bool>(false);
        m.enqueue(s->gpu, i.kernel());
        emu::Launch end;
        end.name = "end";
        end.kernel = [done = s->running] { if (threadIdx.x == 0) *done = true; };
        m.enqueue(s->gpu, end);
      } else if (i.run) {
        i.run();
      }
      if (i.set) *i.set = true;
      s->items.pop_front();
      any = true;
    }
  }
  for (auto i = streams.begin(); i != streams.end();) {
    CUstream s = *i;
    if (s->orphan && s->items.empty() && !s->running) {
      i = streams.erase(i);
      delete s;
    } else {
      i++;
    }
  }
  if (any) moved.notify_all();
}

static bool waiting() {
  for (CUstream s : streams)
    if (s->running || !s->items.empty()) return true;
  return false;
}

static void *runner(void *) {
  emu::Machine *m = new emu::Machine(getpid());
  if (getenv("FAKE_MULTIPROCESSORS")) m->multiprocessors = atoi(getenv("FAKE_MULTIPROCESSORS"));  // for each stream
  uint64_t turn = 0;
  std::function<void()> tick = [&] {
    {
      std::lock_guard<std::mutex> l(lock);
      step(*m);
    }
    turn += 500;
    m->call(turn, tick);
  };
  m->call(turn, tick);
  for (;;) {
    {
      std::unique_lock<std::mutex> l(lock);
      while (!waiting()) work.wait(l);
      step(*m);
    }
    std::string e = m->run();
    if (!e.empty()) {
      fprintf(stderr, "the emulated GPU failed: %s\n", e.c_str());
      abort();
    }
    usleep(20);
  }
}

static CUresult put(CUstream s, Item i) {
  std::lock_guard<std::mutex> l(lock);
  s = of(s);
  if (s->capture) {
    s->capture->items.emplace_back(s, std::move(i));
    s->capture->frontier.erase(s);
    return CUDA_SUCCESS;
  }
  if (s == &legacy) {
    fprintf(stderr, "the default stream is not emulated\n");
    abort();
  }
  static unsigned long long numbers;
  i.number = ++numbers;
  s->items.push_back(std::move(i));
  work.notify_all();
  return CUDA_SUCCESS;
}

static void start() {
  std::lock_guard<std::mutex> l(lock);
  if (started) return;
  started = true;
  pthread_attr_t a;
  pthread_attr_init(&a);
  pthread_t t;
  pthread_create(&t, &a, runner, nullptr);
}

template <class F> static void await(F f) {
  std::unique_lock<std::mutex> l(lock);
  while (!f()) moved.wait(l);
}

// settle waits for all that was put on the device's streams, as the driver does
// before it gives memory back.
static void settle() {
  await([] {
    for (CUstream s : streams)
      if (s->context == current && (s->running || !s->items.empty())) return false;
    return true;
  });
}

EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int *v) { return *v = 12080, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int *n) { return *n = kDevices, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice *d, int i) {
  if (i < 0 || i >= kDevices) return CUDA_ERROR_INVALID_DEVICE;
  return *d = i, CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetName(char *name, int n, CUdevice) { return snprintf(name, n, "emulator"), CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetUuid(CUuuid *u, CUdevice d) { return memset(u, d + 1, sizeof *u), CUDA_SUCCESS; }
EXPORT CUresult cuDeviceTotalMem(size_t *n, CUdevice) { return *n = 1ul << 32, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
  switch (int(a)) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = kMultiprocessors; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: *v = getenv("FAKE_NO_VMM") == nullptr; break;
    case 122: *v = getenv("FAKE_NO_MEMOPS") == nullptr; break;
    default: *v = 0;
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { return *c = &contexts[d], CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute, CUdevice a, CUdevice b) { return *value = a != b && !getenv("FAKE_PCIE"), CUDA_SUCCESS; }
EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) { return *can = a != b, CUDA_SUCCESS; }
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(CUcontext *c) { return *c = current, CUDA_SUCCESS; }
EXPORT CUresult cuCtxSetCurrent(CUcontext c) { return current = c, CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetDevice(CUdevice *d) {
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return *d = CUdevice(current - &contexts[0]), CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSynchronize(void) { return CUDA_SUCCESS; }

// fails says whether a call is to fail: with FAKE_FAIL="cuEventCreate 7" the
// seventh one after that was set, once.
static bool fails(const char *call) {
  static std::string seen;
  static int left;
  const char *want = getenv("FAKE_FAIL");
  std::lock_guard<std::mutex> l(lock);
  if (!want) return seen.clear(), false;
  const char *number = strchr(want, ' ');
  if (seen != want) seen = want, left = atoi(number);
  return seen.compare(0, number - want, call) == 0 && --left == 0;
}

// objects are the streams, events and pieces of pinned memory that there are.
static std::set<void *> &objects = *new std::set<void *>;

static void made(void *o) {
  std::lock_guard<std::mutex> l(lock);
  objects.insert(o);
}
static void gone(void *o) {
  std::lock_guard<std::mutex> l(lock);
  objects.erase(o);
}

// Captures that are under way. A thread that makes a call which asks or allocates spoils
// those of the mode "global", and its own, unless it has relaxed its mode.
static std::set<CaptureRef> &captures = *new std::set<CaptureRef>;
static thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool spoils() {
  std::lock_guard<std::mutex> l(lock);
  bool any = false;
  for (const CaptureRef &c : captures) {
    bool own = c->thread == std::this_thread::get_id();
    if (own ? c->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED : c->mode != CU_STREAM_CAPTURE_MODE_GLOBAL || capture_mode != CU_STREAM_CAPTURE_MODE_GLOBAL) continue;
    c->spoilt = any = true;
  }
  return any;
}

static CUresult bound() { return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; }

static std::map<CUdeviceptr, size_t> &memory = *new std::map<CUdeviceptr, size_t>;

// What there is to know of an allocation, by its address.
struct Home {
  int device;
  unsigned long long id;
  off_t at;  // of cuMemAlloc: where it is in the file of the process
};
static std::map<CUdeviceptr, Home> &homes = *new std::map<CUdeviceptr, Home>;
static unsigned long long allocations;

// All memory of cuMemAlloc is in one file, which other processes map.
static int file_of_all() {
  static const int f = memfd_create("device memory", MFD_CLOEXEC);
  return f;
}
// With FAKE_APART, addresses are not used again, so that who uses what is freed is found out.
static void unmap(void *p, size_t n) {
  if (getenv("FAKE_APART"))
    mmap(p, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  else
    munmap(p, n);
}
static size_t whole(size_t n) { return (n + 4095) / 4096 * 4096; }

// Memory that is allocated apart from its addresses: a file, which has users by handle
// and by address.
struct Physical {
  int file;
  size_t bytes;
  int users, device;
};
// What is mapped somewhere in reserved addresses, whole.
struct Mapped {
  size_t bytes;
  Physical *of;
  std::set<int> devices;  // that may use it
};
static std::set<Physical *> &physical = *new std::set<Physical *>;
static std::map<CUdeviceptr, size_t> &reserved = *new std::map<CUdeviceptr, size_t>;
static std::map<CUdeviceptr, Mapped> &mapped = *new std::map<CUdeviceptr, Mapped>;

// mapping_at is what is mapped at an address, or the end.
static std::map<CUdeviceptr, Mapped>::iterator mapping_at(CUdeviceptr p) {
  auto m = mapped.upper_bound(p);
  if (m == mapped.begin() || p >= (--m)->first + m->second.bytes) return mapped.end();
  return m;
}

// range is the allocation that an address is in.
static bool range(CUdeviceptr p, CUdeviceptr *base, size_t *n) {
  auto i = memory.upper_bound(p);
  if (i != memory.begin() && p < (--i)->first + i->second) return *base = i->first, *n = i->second, true;
  auto m = mapping_at(p);
  if (m == mapped.end()) return false;
  return *base = m->first, *n = m->second.bytes, true;
}

// With FAKE_SMALL, the second device has no memory for large allocations.
EXPORT CUresult cuMemAlloc(CUdeviceptr *p, size_t n) {
  if (spoils()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (fails("cuMemAlloc")) return CUDA_ERROR_UNKNOWN;
  if (n >= 256ul << 20 && getenv("FAKE_SMALL") && current == &contexts[1]) return CUDA_ERROR_OUT_OF_MEMORY;
  if (n == 0) return CUDA_ERROR_INVALID_VALUE;
  static off_t end;
  std::lock_guard<std::mutex> l(lock);
  if (ftruncate(file_of_all(), end + whole(n))) return CUDA_ERROR_OUT_OF_MEMORY;
  void *at = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, file_of_all(), end);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  memory[*p = (CUdeviceptr)at] = n;
  homes[*p] = {int(current - contexts), ++allocations, end};
  end += whole(n);
  return bound();
}
EXPORT CUresult cuMemFree(CUdeviceptr p) {
  if (spoils()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  settle();
  std::lock_guard<std::mutex> l(lock);
  auto m = memory.find(p);
  if (m == memory.end()) return CUDA_ERROR_INVALID_VALUE;
  unmap((void *)p, m->second);
  fallocate(file_of_all(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, homes[p].at, whole(m->second));
  memory.erase(m);
  homes.erase(p);
  return bound();
}

// Another process maps an allocation.
struct IPC {
  int process, file;
  off_t at;
  size_t bytes;
};
static std::map<CUdeviceptr, size_t> &opened = *new std::map<CUdeviceptr, size_t>;

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p) {
  std::lock_guard<std::mutex> l(lock);
  auto m = memory.find(p);
  if (m == memory.end()) return CUDA_ERROR_INVALID_VALUE;
  const IPC of = {getpid(), file_of_all(), homes[p].at, m->second};
  static_assert(sizeof of <= sizeof *h, "a handle is as long");
  memset(h, 0, sizeof *h);
  memcpy(h, &of, sizeof of);
  return bound();
}
EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *p, CUipcMemHandle h, unsigned) {
  IPC of;
  memcpy(&of, &h, sizeof of);
  if (of.process == getpid() || getenv("FAKE_NO_IPC")) return CUDA_ERROR_INVALID_CONTEXT;
  int f = open(("/proc/" + std::to_string(of.process) + "/fd/" + std::to_string(of.file)).c_str(), O_RDWR | O_CLOEXEC);
  if (f < 0) return CUDA_ERROR_INVALID_VALUE;
  void *at = mmap(nullptr, of.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f, of.at);
  close(f);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard<std::mutex> l(lock);
  opened[*p = (CUdeviceptr)at] = of.bytes;
  return bound();
}
EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr p) {
  settle();
  std::lock_guard<std::mutex> l(lock);
  auto o = opened.find(p);
  if (o == opened.end()) return CUDA_ERROR_INVALID_VALUE;
  unmap((void *)p, o->second);
  opened.erase(o);
  return bound();
}
// Every object takes a byte, so that tests can count what there is.
EXPORT CUresult cuMemGetInfo(size_t *left, size_t *all) {
  std::lock_guard<std::mutex> l(lock);
  *left = *all = 1ul << 40;
  for (auto &m : memory) *left -= m.second;
  for (Physical *p : physical) *left -= p->bytes;
  *left -= objects.size();
  return bound();
}
EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *n, CUdeviceptr p) {
  std::lock_guard<std::mutex> l(lock);
  return range(p, base, n) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// Memory in units of 2 MiB, of which a file descriptor can be given away.
static const size_t unit = 2ul << 20;

static bool sound(const CUmemAllocationProp *p) {
  return p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE && p->location.id >= 0 && p->location.id < kDevices;
}
static Physical *physical_of(CUmemGenericAllocationHandle h) {
  Physical *p = (Physical *)h;
  return physical.count(p) ? p : nullptr;
}
static void unuse(Physical *p) {
  if (--p->users > 0) return;
  close(p->file);
  physical.erase(p);
  delete p;
}
EXPORT CUresult cuMemGetAllocationGranularity(size_t *n, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags) {
  return sound(p) ? (*n = unit, CUDA_SUCCESS) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *p, unsigned long long) {
  if (fails("cuMemCreate")) return CUDA_ERROR_UNKNOWN;
  if (spoils()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!sound(p) || n == 0 || n % unit) return CUDA_ERROR_INVALID_VALUE;
  if (n > 1ul << 40) return CUDA_ERROR_OUT_OF_MEMORY;
  int f = memfd_create("device memory", MFD_CLOEXEC);
  if (f < 0 || ftruncate(f, n)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard<std::mutex> l(lock);
  Physical *made = new Physical{f, n, 1, p->location.id};
  physical.insert(made);
  *h = (CUmemGenericAllocationHandle)made;
  return bound();
}
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
  std::lock_guard<std::mutex> l(lock);
  Physical *p = physical_of(h);
  return p ? (unuse(p), CUDA_SUCCESS) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemExportToShareableHandle(void *to, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type, unsigned long long) {
  std::lock_guard<std::mutex> l(lock);
  Physical *p = physical_of(h);
  if (!p || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  return *(int *)to = dup(p->file), CUDA_SUCCESS;
}
EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *from, CUmemAllocationHandleType type) {
  struct stat s;
  int f = dup(int(intptr_t(from)));
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || f < 0 || fstat(f, &s)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> l(lock);
  Physical *made = new Physical{f, size_t(s.st_size), 1, -1};
  physical.insert(made);
  return *h = (CUmemGenericAllocationHandle)made, bound();
}
EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *at) {
  std::lock_guard<std::mutex> l(lock);
  auto m = mapping_at((CUdeviceptr)at);
  if (m == mapped.end()) return CUDA_ERROR_INVALID_VALUE;
  m->second.of->users++;
  return *h = (CUmemGenericAllocationHandle)m->second.of, CUDA_SUCCESS;
}
EXPORT CUresult cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t, CUdeviceptr, unsigned long long) {
  if (fails("cuMemAddressReserve")) return CUDA_ERROR_UNKNOWN;
  if (n == 0 || n % unit) return CUDA_ERROR_INVALID_VALUE;
  char *any = (char *)mmap(nullptr, n + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (any == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  char *at = (char *)((uintptr_t(any) + unit - 1) / unit * unit); // as the driver aligns
  if (at > any) munmap(any, at - any);
  if (at + n < any + n + unit) munmap(at + n, any + unit - at);
  std::lock_guard<std::mutex> l(lock);
  reserved[*p = (CUdeviceptr)at] = n;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t n) {
  std::lock_guard<std::mutex> l(lock);
  auto r = reserved.find(p);
  auto m = mapped.lower_bound(p);
  if (r == reserved.end() || r->second != n || (m != mapped.end() && m->first < p + n)) return CUDA_ERROR_INVALID_VALUE;
  reserved.erase(r);
  return munmap((void *)p, n), CUDA_SUCCESS;
}
EXPORT CUresult cuMemMap(CUdeviceptr p, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long) {
  if (fails("cuMemMap")) return CUDA_ERROR_UNKNOWN;
  std::lock_guard<std::mutex> l(lock);
  auto r = reserved.upper_bound(p);
  auto next = mapped.lower_bound(p);
  Physical *of = physical_of(h);
  if (r == reserved.begin() || p + n > (--r)->first + r->second || p % unit || !of || offset != 0 || of->bytes != n) return CUDA_ERROR_INVALID_VALUE;
  if (mapping_at(p) != mapped.end() || (next != mapped.end() && next->first < p + n)) return CUDA_ERROR_INVALID_VALUE;
  if (mmap((void *)p, n, PROT_NONE, MAP_SHARED | MAP_FIXED, of->file, 0) == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  mapped[p] = {n, of, {}};
  homes[p] = {of->device, ++allocations, 0};
  of->users++;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemSetAccess(CUdeviceptr p, size_t n, const CUmemAccessDesc *to, size_t count) {
  if (fails("cuMemSetAccess")) return CUDA_ERROR_UNKNOWN;
  std::lock_guard<std::mutex> l(lock);
  auto m = mapped.find(p);
  if (m == mapped.end() || m->second.bytes != n || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++)
    if (to[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || to[i].location.id < 0 || to[i].location.id >= kDevices || to[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) m->second.devices.insert(to[i].location.id);
  return mprotect((void *)p, n, PROT_READ | PROT_WRITE) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}
EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *at, CUdeviceptr p) {
  std::lock_guard<std::mutex> l(lock);
  auto m = mapping_at(p);
  if (m == mapped.end()) return CUDA_ERROR_INVALID_VALUE;
  *flags = m->second.devices.count(at->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t n) {
  std::lock_guard<std::mutex> l(lock);
  auto m = mapped.find(p);
  if (m == mapped.end() || m->second.bytes != n) return CUDA_ERROR_INVALID_VALUE;
  mmap((void *)p, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  unuse(m->second.of);
  mapped.erase(m);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute a, CUdeviceptr p) {
  std::lock_guard<std::mutex> l(lock);
  CUdeviceptr base;
  size_t n;
  if (!range(p, &base, &n)) return CUDA_ERROR_INVALID_VALUE;
  switch (int(a)) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)data = CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = homes[base].device; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)data = homes[base].id; break;
    default: *(bool *)data = memory.count(base);
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemsetD8(CUdeviceptr p, unsigned char v, size_t n) { return memset((void *)p, v, n), bound(); }
EXPORT CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s) {
  return put(s, {nullptr, [=] { memset((void *)p, v, n); }, nullptr});
}
EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t n) { return memcpy((void *)to, from, n), bound(); }
EXPORT CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t n) { return memcpy(to, (void *)from, n), bound(); }
// With FAKE_LATE_COPIES, long copies take so many milliseconds, and no stream may be destroyed that has work left: who
// does not know what it still copies cannot know when the memory may be used again.
using Time = std::chrono::steady_clock::time_point;
static const int late_copies = getenv("FAKE_LATE_COPIES") ? atoi(getenv("FAKE_LATE_COPIES")) : 0;
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
  Item i{nullptr, [=] { memmove((void *)to, (void *)from, n); }, nullptr};
  if (late_copies && n > 4096) {
    i.may = [since = std::make_shared<Time>()] {
      const Time now = std::chrono::steady_clock::now();
      if (*since == Time()) *since = now;
      return now - *since >= std::chrono::milliseconds(late_copies);
    };
  }
  return put(s, std::move(i));
}
EXPORT CUresult cuMemHostAlloc(void **p, size_t n, unsigned) {
  if (fails("cuMemHostAlloc")) return CUDA_ERROR_UNKNOWN;
  if (spoils()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
  return made(*p), bound();
}
EXPORT CUresult cuMemFreeHost(void *p) { return settle(), gone(p), free(p), bound(); }
// With FAKE_NO_REGISTER, the second device's context registers nothing.
EXPORT CUresult cuMemHostRegister(void *p, size_t, unsigned) {
  if (fails("cuMemHostRegister")) return CUDA_ERROR_UNKNOWN;
  if (getenv("FAKE_NO_REGISTER") && current == &contexts[1]) return CUDA_ERROR_NOT_SUPPORTED;
  return made(p), bound();
}
EXPORT CUresult cuMemHostUnregister(void *p) { return settle(), gone(p), bound(); }
EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr *d, void *p, unsigned) { return *d = (CUdeviceptr)p, bound(); }

static CUresult new_stream(CUstream *s, int priority) {
  if (fails("cuStreamCreate")) return CUDA_ERROR_UNKNOWN;
  start();
  std::lock_guard<std::mutex> l(lock);
  if (handles.empty()) {
    *s = new CUstream_st;
  } else {
    *s = handles.back();
    handles.pop_back();
    **s = CUstream_st();
  }
  objects.insert(*s);
  (*s)->gpu = gpus++;
  (*s)->id = ids++;
  (*s)->context = current;
  (*s)->priority = priority;
  static std::map<CUcontext, unsigned> numbers;
  if (kQueues) (*s)->queue = numbers[current]++ % kQueues;
  streams.insert(*s);
  return bound();
}
EXPORT CUresult cuStreamCreateWithPriority(CUstream *s, unsigned, int priority) { return new_stream(s, priority); }
EXPORT CUresult cuStreamCreate(CUstream *s, unsigned) { return new_stream(s, 0); }
// What is on a stream goes on to its end, and another one gets its handle.
EXPORT CUresult cuStreamDestroy(CUstream s) {
  std::lock_guard<std::mutex> l(lock);
  streams.erase(s);
  objects.erase(s);
  if (!s->items.empty() || s->running) {
    if (late_copies) {
      fprintf(stderr, "a stream is destroyed with %zu pieces of work\n", s->items.size());
      abort();
    }
    CUstream rest = new CUstream_st(*s);
    rest->orphan = true;
    streams.insert(rest);
    *s = CUstream_st();
  }
  handles.push_back(s);
  return bound();
}
// Seen on an H100 (driver 580): to ask a captured stream for its ID spoils the capture.
EXPORT CUresult cuStreamGetId(CUstream s, unsigned long long *id) {
  std::lock_guard<std::mutex> l(lock);
  if (of(s)->capture) return of(s)->capture->spoilt = true, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return *id = of(s)->id, CUDA_SUCCESS;
}
EXPORT CUresult cuStreamSynchronize(CUstream s) {
  if (spoils()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  await([=] { return of(s)->items.empty() && !of(s)->running; });
  return bound();
}
EXPORT CUresult cuStreamQuery(CUstream s) {
  if (spoils()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::lock_guard<std::mutex> l(lock);
  return of(s)->items.empty() && !of(s)->running ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
// With FAKE_NO_EXTERNAL, graphs have no nodes for events.
static bool events_in_graphs() { return getenv("FAKE_NO_EXTERNAL") == nullptr; }

EXPORT CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
  Item i{};
  {
    std::lock_guard<std::mutex> l(lock);
    if (flags & CU_EVENT_WAIT_EXTERNAL) {
      if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
      if (!events_in_graphs()) return s->capture->spoilt = true, CUDA_ERROR_NOT_SUPPORTED;
      i.external = e;
    } else {
      if (s->capture && s->capture != e->capture) return s->capture->spoilt = true, CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
      if (e->capture) s->capture = e->capture;
      i.wait = e->done;
    }
  }
  return put(s, i);
}
EXPORT CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr p, cuuint32_t v, unsigned) {
  return put(s, {[=] { return int32_t(__atomic_load_n((uint32_t *)p, __ATOMIC_ACQUIRE) - v) >= 0; }, [] {}, nullptr});
}
EXPORT CUresult cuStreamWriteValue32_v2(CUstream s, CUdeviceptr p, cuuint32_t v, unsigned) {
  return put(s, {nullptr, [=] { __atomic_store_n((uint32_t *)p, v, __ATOMIC_RELEASE); }, nullptr});
}
EXPORT CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *c) {
  CaptureRef on = of(s)->capture;
  *c = !on ? CU_STREAM_CAPTURE_STATUS_NONE : on->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode) {
  static unsigned long long captures_begun;
  std::lock_guard<std::mutex> l(lock);
  s->capture = std::make_shared<Capture>(Capture{s, mode, std::this_thread::get_id(), false, {}, {}, {}, ++captures_begun, new CUgraph_st});
  s->capture->graph->items = s->capture;
  captures.insert(s->capture);
  return CUDA_SUCCESS;
}
// The last node of a stream is one whose flag is set behind all that is on it.
EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes, size_t *n) {
  std::lock_guard<std::mutex> l(lock);
  CaptureRef c = of(s)->capture;
  *status = !c ? CU_STREAM_CAPTURE_STATUS_NONE : c->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id) *id = c->id;
  if (graph) *graph = c->graph;
  if (!nodes) return CUDA_SUCCESS;
  CUgraphNode &last = c->frontier[s];
  if (!last) {
    last = new CUgraphNode_st{std::make_shared<bool>(false)};
    Item i{};
    i.set = last->done;
    c->items.emplace_back(s, i);
    c->nodes.insert(last);
  }
  *nodes = &last, *n = 1;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamUpdateCaptureDependencies(CUstream s, CUgraphNode *nodes, size_t n, unsigned flags) {
  std::lock_guard<std::mutex> l(lock);
  CaptureRef c = s->capture;
  if (!c || c->spoilt) return CUDA_ERROR_ILLEGAL_STATE;
  if (flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t k = 0; k < n; k++) {
    if (!c->nodes.count(nodes[k])) return CUDA_ERROR_INVALID_VALUE;
    Item i{};
    i.wait = nodes[k]->done;
    c->items.emplace_back(s, i);
  }
  c->frontier.erase(s);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph g, const CUgraphNode *behind, size_t n, CUevent e) {
  std::lock_guard<std::mutex> l(lock);
  Capture &c = *g->items;
  if (!events_in_graphs()) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t k = 0; k < n; k++)
    if (!c.nodes.count(behind[k])) return CUDA_ERROR_INVALID_VALUE;
  CUstream own = new CUstream_st;
  own->gpu = gpus++;
  own->id = ids++;
  own->context = current;
  streams.insert(own);
  *node = new CUgraphNode_st{nullptr, e, std::set<CUgraphNode>(behind, behind + n), own};
  c.nodes.insert(*node);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n) {
  std::lock_guard<std::mutex> l(lock);
  Capture &c = *g->items;
  for (size_t k = 0; k < n; k++) {
    if (!c.nodes.count(from[k]) || !c.nodes.count(to[k]) || !to[k]->event || to[k]->behind.count(from[k])) return CUDA_ERROR_INVALID_VALUE;
    to[k]->behind.insert(from[k]);
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphRemoveDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n) {
  std::lock_guard<std::mutex> l(lock);
  Capture &c = *g->items;
  for (size_t k = 0; k < n; k++)
    if (!c.nodes.count(from[k]) || !c.nodes.count(to[k]) || !to[k]->behind.erase(from[k])) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) { return std::swap(*mode, capture_mode), CUDA_SUCCESS; }
EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph *g) {
  std::lock_guard<std::mutex> l(lock);
  CaptureRef c = s->capture;
  if (!c || c->origin != s) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  *g = c->graph;
  for (CUstream other : streams)
    if (other->capture == c) other->capture = nullptr;
  captures.erase(c);
  return c->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long) { return *x = new CUgraphExec_st{g->items}, CUDA_SUCCESS; }
EXPORT CUresult cuGraphDestroy(CUgraph g) { return delete g, CUDA_SUCCESS; }
EXPORT CUresult cuGraphExecDestroy(CUgraphExec x) { return delete x, CUDA_SUCCESS; }
EXPORT CUresult cuGraphLaunch(CUgraphExec x, CUstream s) {
  // Flags are new ones for each launch, and the other streams begin when this
  // one comes to the graph.
  std::map<Flag, Flag> fresh;
  std::set<CUstream> begun;
  Flag begin = std::make_shared<bool>(false);
  Item first{};
  first.set = begin;
  put(s, first);
  for (auto &[on, item] : x->items->items) {
    Item i = item;
    if (i.external) {
      std::lock_guard<std::mutex> l(lock);
      i.wait = i.external->done;
    }
    if (i.set) i.set = fresh[i.set] = std::make_shared<bool>(false);
    if (i.wait && fresh.count(i.wait)) i.wait = fresh[i.wait];
    CUstream to = on == x->items->origin ? s : on;
    if (to != s && begun.insert(to).second) {
      Item wait{};
      wait.wait = begin;
      put(to, wait);
    }
    put(to, i);
  }
  for (CUgraphNode node : x->items->nodes) {
    if (!node->event) continue;
    std::vector<Flag> behind;
    for (CUgraphNode b : node->behind) behind.push_back(fresh[b->done]);
    Item i{};
    i.may = [=] { return std::all_of(behind.begin(), behind.end(), [](const Flag &f) { return *f; }); };
    i.set = std::make_shared<bool>(false);
    {
      std::lock_guard<std::mutex> l(lock);
      node->event->done = i.set;
      node->event->capture = nullptr;
    }
    put(node->stream, i);
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventCreate(CUevent *e, unsigned) {
  if (fails("cuEventCreate")) return CUDA_ERROR_UNKNOWN;
  return *e = new CUevent_st, made(*e), bound();
}
EXPORT CUresult cuEventDestroy(CUevent e) { return gone(e), delete e, bound(); }
EXPORT CUresult cuEventRecord(CUevent e, CUstream s) {
  if (of(s) == &legacy) return CUDA_SUCCESS;  // on which there is nothing
  Flag done = std::make_shared<bool>(false);
  {
    std::lock_guard<std::mutex> l(lock);
    e->done = done;
    e->capture = of(s)->capture;
  }
  Item i{};
  i.set = done;
  return put(s, i);
}
EXPORT CUresult cuEventQuery(CUevent e) {
  if (spoils()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::lock_guard<std::mutex> l(lock);
  return *e->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
EXPORT CUresult cuEventSynchronize(CUevent e) {
  if (spoils()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Flag done = e->done;
  await([=] { return *done; });
  return CUDA_SUCCESS;
}
// A driver loads code when nothing runs.
EXPORT CUresult cuModuleLoadDataEx(CUmodule *m, const void *, unsigned, CUjit_option *, void **) { return settle(), *m = new CUmod_st, bound(); }
EXPORT CUresult cuModuleGetFunction(CUfunction *f, CUmodule, const char *name) {
  static void *self = [] {
    Dl_info i;
    dladdr((void *)cuInit, &i);
    return dlopen(i.dli_fname, RTLD_NOW);
  }();
  *f = (CUfunction)dlsym(self, name);
  return *f ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
EXPORT CUresult cuFuncGetAttribute(int *v, CUfunction_attribute, CUfunction) { return *v = 1, CUDA_SUCCESS; }
// fits says whether kernels of a rank that are launched early, and are on the GPU while the one before them waits, leave
// room for others. Early kernels are not emulated: each begins when the one before it has ended.
static bool fits(CUstream s, const Comm &comm, unsigned blocks, bool early, bool chunks) {
  std::lock_guard<std::mutex> l(lock);
  s = of(s);
  if (!early || chunks || s->items.empty() && !s->running) s->early.clear();
  if (chunks) return true;  // they let the next one begin near their end
  auto &[grids, all] = s->early[(uint64_t)comm.stop];
  all += blocks;
  return ++grids == 1 || grids <= 16 && all <= kMultiprocessors;
}
// launch puts a kernel on a stream, and waits for it with CUDA_LAUNCH_BLOCKING=1.
static CUresult launch(CUstream s, std::function<emu::Launch()> kernel) {
  static const bool blocking = getenv("CUDA_LAUNCH_BLOCKING") && !strcmp(getenv("CUDA_LAUNCH_BLOCKING"), "1");
  const CUresult result = put(s, {nullptr, nullptr, kernel});
  if (blocking) await([=] { return of(s)->items.empty() && !of(s)->running; });
  return result;
}
// With FAKE_FLIP, bits flip: "kernel D N SEED" in what kernels of device D take of their own input, "memory D N SEED" in
// the input before a kernel or the result behind it, "link A B N SEED" in what goes from device A to device B. That is
// so in about one of N kernels, of those that do collectives and sums.
struct Flips {
  std::string of, kind;
  int device = -1, peer = -1;
  unsigned every = 1;
  uint64_t state = 0;
  uint64_t next() {  // SplitMix64
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  bool due() { return next() % every == 0; }
  void bit(char *p, uint64_t bytes) {
    const uint64_t at = next() % (8 * bytes);
    p[at / 8] ^= char(1 << at % 8);
  }
};
static Flips &flips() {
  static Flips f;
  const char *now = getenv("FAKE_FLIP");
  if (!now) now = "";
  if (f.of == now) return f;
  f = Flips();
  f.of = now;
  char kind[16] = "";
  unsigned long long seed = 0;
  if (!strncmp(now, "link", 4))
    sscanf(now, "%15s %d %d %u %llu", kind, &f.device, &f.peer, &f.every, &seed);
  else
    sscanf(now, "%15s %d %u %llu", kind, &f.device, &f.every, &seed);
  f.kind = kind;
  f.state = seed;
  return f;
}
// device_at is the device of memory, if it is memory of this process.
static int device_at(const void *p) {
  CUdeviceptr base;
  size_t n;
  return range((CUdeviceptr)p, &base, &n) && homes.count(base) ? homes[base].device : -1;
}
using Held = std::deque<std::vector<char>>;
// flip flips bits of a kernel that begins now; the lock is held. The memory that it gives the kernel lives with the launch.
static void flip(const std::string &name, int device, const Comm &c, Args &a, std::function<void()> &behind, std::shared_ptr<Held> &held) {
  Flips &f = flips();
  const bool adds = name.find("reduce_") == 0 || name.find("allreduce_") == 0, sums = name.find("combine_") == 0;
  if (f.kind.empty() || !adds && !sums && name.find("exchange_") != 0) return;
  const auto replaced = [&](const char *&in, uint64_t bytes) {
    if (!in || !bytes || !f.due()) return;
    if (!held) held = std::make_shared<Held>();
    held->emplace_back(bytes + 256);
    char *const at = held->back().data(), *const copy = at + ((uintptr_t)in - (uintptr_t)at) % 128;
    memcpy(copy, in, bytes);
    f.bit(copy, bytes);
    in = copy;
  };
  const auto after = [&](char *out, uint64_t bytes) {
    if (out && bytes && f.due()) behind = [&f, out, bytes] { f.bit(out, bytes); };
  };
  if (f.kind == "kernel" && device == f.device) {
    if (adds) replaced(a.in[c.rank], a.send[c.rank]);
    if (sums) replaced(a.in[0], a.recv[c.rank]);
  }
  if (f.kind == "memory" && device == f.device && adds) {
    if (f.next() % 2)
      after(a.out[c.rank], a.recv[c.rank]);
    else if (a.in[c.rank] && a.send[c.rank] && f.due())
      f.bit((char *)a.in[c.rank], a.send[c.rank]);
  }
  if (f.kind == "link" && !sums)
    for (int p = 0; p < c.ranks; p++) {
      if (p == c.rank) continue;
      if (device == f.device && device_at(c.win[p]) == f.peer) replaced(a.in[p], a.send[p]);
      if (device == f.peer && device_at(c.win[p]) == f.device && name.find("allreduce_") == 0) after(a.out[p], a.recv[p]);
    }
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **) {
  if (!current || c->blockDimX > 512) return CUDA_ERROR_INVALID_VALUE;
  using Kernel = void(Comm, Args);
  using NormKernel = void(Comm, Args, Norm);
  using RingKernel = void(Comm, Args, Ring);
  using StageKernel = void(Stage);
  using CheckKernel = void(Check);
  using CheckWordsKernel = void(CheckWords);
  Dl_info info;
  dladdr((void *)f, &info);
  const std::string name = info.dli_sname ? info.dli_sname : "kernel";
  const dim3 grid = {c->gridDimX, c->gridDimY, c->gridDimZ};
  const bool norms = name.find("norm_") == 0, rings = name.find("copy_ring_") == 0;
  if (name == "stage")
    return launch(c->hStream, [=, stage = *(Stage *)params[0]] {
      emu::Launch l;
      l.name = name;
      l.grid = grid;
      l.threads = 64;
      l.kernel = [=] { ((StageKernel *)f)(stage); };
      return l;
    });
  if (name == "checksum" || name == "check_words") {
    {
      std::lock_guard<std::mutex> l(lock);
      of(c->hStream)->early.clear();
    }
    return launch(c->hStream, [=, threads_of_check = std::min(c->blockDimX, 64u), sums = name == "checksum", check = name == "checksum" ? *(Check *)params[0] : Check(), words = name == "check_words" ? *(CheckWords *)params[0] : CheckWords()] {
      emu::Launch l;
      l.name = name;
      l.grid = grid;
      l.threads = threads_of_check;
      l.kernel = [=] { sums ? ((CheckKernel *)f)(check) : ((CheckWordsKernel *)f)(words); };
      return l;
    });
  }
  const bool chunks = rings || name.find("_simple") != std::string::npos || name.find("chain") != std::string::npos;
  // Fewer threads are faster, but a short operation needs each of them.
  const unsigned threads = ((Args *)params[1])->row ? c->blockDimX : std::min(c->blockDimX, chunks ? 192u : 64u);
  unsigned cluster = 1;
  bool early = false;
  for (unsigned i = 0; i < c->numAttrs; i++) {
    if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = c->attrs[i].value.clusterDim.x;
    if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) early = true;
  }
  if (!fits(c->hStream, *(Comm *)params[0], grid.x, early, chunks)) {
    fprintf(stderr, "kernels that wait for other ranks fill the GPU: of %s it has no room for %u blocks\n", name.c_str(), grid.x);
    abort();
  }
  if (grid.x % cluster || cluster > 8) return CUDA_ERROR_INVALID_VALUE;
  return launch(c->hStream, [=, device = int(of(c->hStream)->context - contexts), comm = *(Comm *)params[0], given = *(Args *)params[1], norm = norms ? *(Norm *)params[2] : Norm(), ring = rings ? *(Ring *)params[2] : Ring()] {
    emu::Launch l;
    Args args = given;
    std::shared_ptr<Held> held;
    flip(name, device, comm, args, l.done, held);
    l.name = name;
    l.grid = grid;
    l.threads = threads;
    l.cluster = cluster;
    l.lines = name.find("ll128") != std::string::npos;
    l.kernel = [=] {
      if (norms)
        ((NormKernel *)f)(comm, args, norm);
      else if (rings)
        ((RingKernel *)f)(comm, args, ring);
      else
        ((Kernel *)f)(comm, args);
    };
    if (held) l.done = [held, behind = l.done] { if (behind) behind(); };
    return l;
  });
}
EXPORT CUresult cuGetErrorName(CUresult, const char **s) { return *s = "CUDA_ERROR_EMULATOR", CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorString(CUresult, const char **s) { return *s = "an error of the emulator", CUDA_SUCCESS; }
