// A library with NCCL's functions that does nothing but note its calls, for the
// tests: ncclGetLastError gives the notes. VERSION is what it says it is;
// without MODERN it lacks what came after 2.18.
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char internal[128];
} ncclUniqueId;

static char notes[1 << 16];
static int fail;  // what the next calls return

static int note(const char *format, ...) {
  va_list a;
  va_start(a, format);
  size_t n = strlen(notes);
  vsnprintf(notes + n, sizeof notes - n, format, a);
  va_end(a);
  return fail;
}

const char *ncclGetErrorString(int r) { return r == 5 ? "invalid usage" : "unexpected"; }

const char *ncclGetLastError(void *comm) {
  (void)comm;
  static char out[sizeof notes];
  memcpy(out, notes, sizeof out);
  notes[0] = 0;
  return out;
}

// Exported, as much of NCCL is: a process may have another of the name.
int fakeVersion(void) { return VERSION; }

int ncclGetVersion(int *v) {
  const char *nvls = getenv("NCCL_NVLS_ENABLE");
  note("nvls %s;", nvls ? nvls : "unset");
  *v = fakeVersion();
  return 0;
}

int ncclGetUniqueId(ncclUniqueId *id) {
  const char *late = getenv("FAKE_LOADS");
  if (late && !dlopen(late, RTLD_NOW)) return 3;
  for (int i = 0; i < 128; i++) id->internal[i] = (char)i;
  return note("id;");
}

int ncclCommInitRank(void **comm, int n, ncclUniqueId id, int rank) {
  *comm = (void *)0x1000;
  return note("init %d of %d, %d %d;", rank, n, id.internal[1], id.internal[127]);
}

int ncclCommDestroy(void *c) { return note("destroy %p;", c); }
int ncclCommAbort(void *c) { return note("abort %p;", c); }

int ncclCommGetAsyncError(void *c, int *r) {
  (void)c;
  *r = fail;
  return 0;
}

int ncclGroupStart(void) { return note("("); }
int ncclGroupEnd(void) { return note(")"); }

int ncclAllReduce(const void *s, void *r, size_t n, int t, int op, void *c, void *st) {
  return note("all_reduce %p %p %zu %d %d %p %p;", s, r, n, t, op, c, st);
}
int ncclBroadcast(const void *s, void *r, size_t n, int t, int root, void *c, void *st) {
  return note("broadcast %p %p %zu %d %d %p %p;", s, r, n, t, root, c, st);
}
int ncclReduce(const void *s, void *r, size_t n, int t, int op, int root, void *c, void *st) {
  return note("reduce %p %p %zu %d %d %d %p %p;", s, r, n, t, op, root, c, st);
}
int ncclAllGather(const void *s, void *r, size_t n, int t, void *c, void *st) {
  return note("all_gather %p %p %zu %d %p %p;", s, r, n, t, c, st);
}
int ncclReduceScatter(const void *s, void *r, size_t n, int t, int op, void *c, void *st) {
  return note("reduce_scatter %p %p %zu %d %d %p %p;", s, r, n, t, op, c, st);
}
int ncclSend(const void *s, size_t n, int t, int peer, void *c, void *st) {
  return note("send %p %zu %d %d %p %p;", s, n, t, peer, c, st);
}
int ncclRecv(void *r, size_t n, int t, int peer, void *c, void *st) {
  return note("recv %p %zu %d %d %p %p;", r, n, t, peer, c, st);
}

int ncclRedOpCreatePreMulSum(int *op, void *scalar, int t, int residence, void *c) {
  *op = 0x7654321;
  return note("mulsum %d %d %d %p;", *(signed char *)scalar, t, residence, c);
}
int ncclRedOpDestroy(int op, void *c) { return note("free op %x %p;", op, c); }

#ifdef MODERN
int ncclMemAlloc(void **p, size_t n) {
  *p = (void *)0x70000000;
  return note("alloc %zu;", n);
}
int ncclMemFree(void *p) { return note("free %p;", p); }
int ncclCommRegister(void *c, void *p, size_t n, void **h) {
  *h = (void *)0x77;
  return note("register %p %p %zu;", c, p, n);
}
int ncclCommDeregister(void *c, void *h) { return note("deregister %p %p;", c, h); }
int ncclCommWindowRegister(void *c, void *p, size_t n, void **h, int flags) {
  *h = (void *)0x88;
  return note("window %p %p %zu %d;", c, p, n, flags);
}
int ncclCommWindowDeregister(void *c, void *h) { return note("close window %p %p;", c, h); }
int ncclAlltoAll(const void *s, void *r, size_t n, int t, void *c, void *st) {
  return note("alltoall %p %p %zu %d %p %p;", s, r, n, t, c, st);
}
int ncclGather(const void *s, void *r, size_t n, int t, int root, void *c, void *st) {
  return note("gather %p %p %zu %d %d %p %p;", s, r, n, t, root, c, st);
}
int ncclScatter(const void *s, void *r, size_t n, int t, int root, void *c, void *st) {
  // From root 3 on everything fails.
  fail = root == 3 ? 5 : 0;
  return note("scatter %p %p %zu %d %d %p %p;", s, r, n, t, root, c, st);
}
#endif
