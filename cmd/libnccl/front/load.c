// The engine: found beside this library, and opened when a program first needs it. A
// program that only links NCCL, or that forks before, carries none of it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

static struct engine engine;
static char trouble[ASSAY_TEXT]; // "": engine is there
static pthread_once_t once = PTHREAD_ONCE_INIT;
static volatile int forked; // in a child: the engine's threads are the parent's

static void in_child(void) { forked = 1; }

// path is where the engine is: what ASSAY_COLL_LIBRARY says, or beside this library.
static void path(char *to, size_t n) {
  const char *own = getenv("ASSAY_COLL_LIBRARY");
  Dl_info info;
  const char *slash = NULL;
  if (own && *own) {
    snprintf(to, n, "%s", own);
    return;
  }
  if (dladdr((void *)path, &info) && info.dli_fname) slash = strrchr(info.dli_fname, '/');
  snprintf(to, n, "%.*slibassay-coll.so", slash ? (int)(slash + 1 - info.dli_fname) : 0, slash ? info.dli_fname : "");
}

static void open_engine(void) {
  char name[4096];
  path(name, sizeof name);
  void *h = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE); // lazy: it may use a libnvidia-ml that is not there
  if (!h) {
    snprintf(trouble, sizeof trouble, "opening the engine: %s; libassay-coll.so belongs beside libnccl.so.2, or ASSAY_COLL_LIBRARY says where it is", dlerror());
    return;
  }
#define FIND(type, name, args)                                                                            \
  if (!(*(void **)&engine.name = dlsym(h, #name))) {                                                      \
    snprintf(trouble, sizeof trouble, "the engine has no %s: it is of another version than this library", #name); \
    return;                                                                                               \
  }
  ASSAY_ENGINE(FIND)
#undef FIND
  if (engine.assay_abi() != ASSAY_ABI)
    snprintf(trouble, sizeof trouble, "%.900s is of another version than this library", name);
  pthread_atfork(NULL, NULL, in_child);
}

ncclResult_t load(const struct engine **e) {
  pthread_once(&once, open_engine);
  *e = &engine;
  if (trouble[0]) return fail(ncclSystemError, "%s", trouble);
  if (forked)
    return fail(ncclInvalidUsage, "this process is a fork of one that had used NCCL: its threads and its CUDA context are not here; fork before the first call, or start children by exec");
  return ncclSuccess;
}
