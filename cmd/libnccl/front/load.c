// The engine: found beside this library, and opened when a program first needs it. A
// program that only links NCCL, or that forks before, carries none of it. A fork of a program that
// has used it gets an engine of its own when it uses it, too.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "front.h"

static struct engine engine;
static char trouble[ASSAY_TEXT]; // "": engine is there
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t renewing = PTHREAD_MUTEX_INITIALIZER;
static volatile int forked; // in a child that has no engine yet: the threads of the one here are the parent's

static void in_child(void) {
  pthread_mutex_init(&renewing, NULL);
  forked = 1;
}

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

// The engine's runtime interrupts its threads by SIGURG and calls no handler that was there before. So
// the program's handler, if it has one, is called behind the runtime's for what is not such an
// interruption: that comes from this process, by tgkill. Handlers of SIGSEGV, SIGBUS, SIGFPE and
// SIGPIPE are called by the runtime itself, for what is not its own.
static struct sigaction urgent_program, urgent_runtime;

static void call_handler(const struct sigaction *a, int s, siginfo_t *info, void *context) {
  if (a->sa_flags & SA_SIGINFO) a->sa_sigaction(s, info, context);
  else if (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN) a->sa_handler(s);
}

static void urgent(int s, siginfo_t *info, void *context) {
  call_handler(&urgent_runtime, s, info, context);
  if (info->si_code != SI_TKILL || info->si_pid != getpid()) call_handler(&urgent_program, s, info, context);
}

// keep_urgent is called when the engine has been opened; was is the handler before.
static void keep_urgent(const struct sigaction *was) {
  struct sigaction both;
  if (forked || (!(was->sa_flags & SA_SIGINFO) && (was->sa_handler == SIG_DFL || was->sa_handler == SIG_IGN))) return;
  if (sigaction(SIGURG, NULL, &urgent_runtime)) return;
  urgent_program = *was;
  both = urgent_runtime;
  both.sa_sigaction = urgent;
  both.sa_flags |= SA_SIGINFO;
  sigaction(SIGURG, &both, NULL);
}

// copy returns a name of a copy of a file, which the loader takes for another library.
static int copy(const char *file, char *to, size_t n) {
  int from = open(file, O_RDONLY | O_CLOEXEC), fd = memfd_create("libassay-coll.so", MFD_CLOEXEC);
  ssize_t k = -1;
  if (from >= 0 && fd >= 0)
    while ((k = sendfile(fd, from, NULL, 1 << 30)) > 0) {}
  if (from >= 0) close(from);
  snprintf(to, n, "/proc/%d/fd/%d", getpid(), fd);
  return k < 0 ? -1 : fd;
}

// open_engine opens the engine; in a fork once more, with threads and memory of its own. The
// parent's communicators and CUDA context stay the parent's.
static void open_engine(void) {
  char name[4096], again[64];
  int fd = -1;
  path(name, sizeof name);
  trouble[0] = 0;
  if (forked) {
    if ((fd = copy(name, again, sizeof again)) < 0) {
      snprintf(trouble, sizeof trouble, "this process is a fork of one that had used NCCL, and the engine cannot be copied for it: %s", strerror(errno));
      return;
    }
    snprintf(name, sizeof name, "%s", again);
  }
  struct sigaction before;
  if (sigaction(SIGURG, NULL, &before)) memset(&before, 0, sizeof before);
  void *h = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE); // lazy: it may use a libnvidia-ml that is not there
  if (!h) {
    snprintf(trouble, sizeof trouble, "opening the engine: %s; libassay-coll.so belongs beside libnccl.so.2, or ASSAY_COLL_LIBRARY says where it is", dlerror());
    return;
  }
  if (fd >= 0) close(fd);
#define FIND(type, name, args)                                                                            \
  if (!(*(void **)&engine.name = dlsym(h, #name))) {                                                      \
    snprintf(trouble, sizeof trouble, "the engine has no %s: it is of another version than this library", #name); \
    return;                                                                                               \
  }
  ASSAY_ENGINE(FIND)
#undef FIND
  if (engine.assay_abi() != ASSAY_ABI)
    snprintf(trouble, sizeof trouble, "%.900s is of another version than this library", name);
  keep_urgent(&before);
  if (!forked) pthread_atfork(NULL, NULL, in_child);
}

ncclResult_t load(const struct engine **e) {
  pthread_once(&once, open_engine);
  if (forked) {
    pthread_mutex_lock(&renewing);
    if (forked) open_engine();
    forked = 0;
    pthread_mutex_unlock(&renewing);
  }
  *e = &engine;
  if (trouble[0]) return fail(ncclSystemError, "%s", trouble);
  return ncclSuccess;
}
