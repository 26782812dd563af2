//go:build cuda && cgo

#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What nccl.h calls ncclInvalidUsage.
enum { invalid_usage = 5 };

// say makes *error from a format with one or two strings.
static void *say(char **error, const char *format, const char *a, const char *b) {
  size_t n = strlen(format) + strlen(a) + strlen(b) + 1;
  *error = malloc(n);
  if (*error) snprintf(*error, n, format, a, b);
  return NULL;
}

// A library may be in Go, too: then there are two of Go's runtimes in the process, each
// of which interrupts its goroutines by SIGURG. The second one takes the signal for
// itself, and the first would wait for ever for a goroutine that makes no calls. So
// both handlers are called. Each does nothing for threads of the other.
typedef void (*handler)(int, siginfo_t *, void *);
static handler urgent[2]; // the process's and the library's

static void both(int number, siginfo_t *info, void *context) {
  urgent[0](number, info, context);
  urgent[1](number, info, context);
}

static pthread_mutex_t urgent_lock = PTHREAD_MUTEX_INITIALIZER;

// keep_signal notes the process's handler, share_signal looks whether a library has
// taken the signal since.
static void keep_signal(void) {
  struct sigaction now;
  pthread_mutex_lock(&urgent_lock);
  if (!urgent[0] && !sigaction(SIGURG, NULL, &now) && now.sa_flags & SA_SIGINFO) urgent[0] = now.sa_sigaction;
  pthread_mutex_unlock(&urgent_lock);
}

static void share_signal(void) {
  struct sigaction now;
  pthread_mutex_lock(&urgent_lock);
  if (urgent[0] && !urgent[1] && !sigaction(SIGURG, NULL, &now) && now.sa_flags & SA_SIGINFO && now.sa_sigaction != urgent[0]) {
    urgent[1] = now.sa_sigaction;
    now.sa_sigaction = both;
    now.sa_flags |= SA_ONSTACK | SA_RESTART;
    sigaction(SIGURG, &now, NULL);
  }
  pthread_mutex_unlock(&urgent_lock);
}

struct nccl *nccl_open(const char *file, char **error) {
  *error = NULL;
  keep_signal();
  // Several libraries of one name may be compared, and the process may have been
  // started with one preloaded: each calls its own functions.
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!handle) return say(error, "%s", dlerror(), "");
  struct nccl *l = calloc(1, sizeof *l);
  if (!l) return say(error, "out of memory", "", "");
  const char *missing = NULL;
  // POSIX has dlsym return functions as objects.
#define FIND(name, args) *(void **)&l->name = dlsym(handle, "nccl" #name);
#define NEED(name, args) \
  FIND(name, args)       \
  if (!l->name) missing = "nccl" #name;
  NEED(GetErrorString, )
  NEED(GetLastError, )
  NCCL_REQUIRED(NEED)
  NCCL_OPTIONAL(FIND)
#undef NEED
#undef FIND
  if (!missing) return l;
  free(l);
  dlclose(handle);
  return say(error, "%s has no function %s: it is no NCCL of 2.18 or later", file, missing);
}

const char *nccl_path(const struct nccl *l) {
  Dl_info info;
  return dladdr((void *)l->GetVersion, &info) && info.dli_fname ? info.dli_fname : "";
}

int nccl_get_version(const struct nccl *l, int *version) { return l->GetVersion(version); }

int nccl_unique_id(const struct nccl *l, void *id) {
  int result = l->GetUniqueId(id); // loads what a library loads late
  share_signal();
  return result;
}

int nccl_init_rank(const struct nccl *l, void **comm, int ranks, const void *id, int rank) {
  struct nccl_id by_value;
  memcpy(&by_value, id, sizeof by_value);
  int result = l->CommInitRank(comm, ranks, by_value, rank);
  share_signal();
  return result;
}

int nccl_destroy(const struct nccl *l, void *comm) { return l->CommDestroy(comm); }

int nccl_abort(const struct nccl *l, void *comm) { return l->CommAbort(comm); }

int nccl_async_error(const struct nccl *l, void *comm, int *result) { return l->CommGetAsyncError(comm, result); }

const char *nccl_error_string(const struct nccl *l, int result) { return l->GetErrorString(result); }

const char *nccl_last_error(const struct nccl *l, void *comm) { return l->GetLastError(comm); }

int nccl_mem_alloc(const struct nccl *l, uintptr_t *address, size_t n) {
  return l->MemAlloc ? l->MemAlloc((void **)address, n) : invalid_usage;
}

int nccl_mem_free(const struct nccl *l, uintptr_t address) {
  return l->MemFree ? l->MemFree((void *)address) : invalid_usage;
}

int nccl_register(const struct nccl *l, void *comm, uintptr_t address, size_t n, void **handle) {
  return l->CommRegister ? l->CommRegister(comm, (void *)address, n, handle) : invalid_usage;
}

int nccl_deregister(const struct nccl *l, void *comm, void *handle) {
  return l->CommDeregister ? l->CommDeregister(comm, handle) : invalid_usage;
}

int nccl_window_register(const struct nccl *l, void *comm, uintptr_t address, size_t n, void **window, int flags) {
  return l->CommWindowRegister ? l->CommWindowRegister(comm, (void *)address, n, window, flags) : invalid_usage;
}

int nccl_window_deregister(const struct nccl *l, void *comm, void *window) {
  return l->CommWindowDeregister ? l->CommWindowDeregister(comm, window) : invalid_usage;
}

int nccl_pre_mul_sum(const struct nccl *l, int *op, uintptr_t scalar, int type, int residence, void *comm) {
  return l->RedOpCreatePreMulSum(op, (void *)scalar, type, residence, comm);
}

int nccl_op_destroy(const struct nccl *l, int op, void *comm) { return l->RedOpDestroy(op, comm); }

int nccl_group_start(const struct nccl *l) { return l->GroupStart(); }

int nccl_group_end(const struct nccl *l) { return l->GroupEnd(); }
