// Errors, communicators and groups.
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "windows.h"

extern char **environ;

static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;
static char last[ASSAY_TEXT];
static _Thread_local char mine[ASSAY_TEXT]; // what ncclGetLastError returned

ncclResult_t said(int code, const char *text) {
  if (code == ncclSuccess || code == ncclInProgress) return code;
  pthread_mutex_lock(&last_lock);
  snprintf(last, sizeof last, "%s", text);
  pthread_mutex_unlock(&last_lock);
  return code;
}

ncclResult_t fail(ncclResult_t code, const char *format, ...) {
  char text[ASSAY_TEXT];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return said(code, text);
}

API(const char *, ncclGetLastError, (ncclComm_t comm)) {
  (void)comm;
  pthread_mutex_lock(&last_lock);
  memcpy(mine, last, sizeof mine);
  pthread_mutex_unlock(&last_lock);
  return mine;
}

API(const char *, ncclGetErrorString, (ncclResult_t code)) {
  switch (code) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the developers of assay";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    case ncclTimeout: return "NCCL operation timed out";
    default: return "unknown result code";
  }
}

ncclResult_t given(const char *what, const char *name, const void *argument) {
  return argument ? ncclSuccess : fail(ncclInvalidArgument, "%s: the %s is NULL", what, name);
}

// A group collects what a thread calls between GroupStart and GroupEnd.
static _Thread_local struct {
  int depth;
  ncclResult_t wrong; // the first call that failed
  struct assay_op *ops;
  size_t n, room;
  uintptr_t *comms; // to be made
  size_t made, places;
  struct assay_pause *pauses;
  size_t paused, pause_room;
  struct assay_window *windows;
  struct waiting *waiting; // one for each window
  size_t registered, window_room, waiting_room;
} group;

ncclResult_t group_start(void) {
  group.depth++;
  return ncclSuccess;
}

ncclResult_t spoil(ncclResult_t r) {
  if (group.depth > 0 && group.wrong == ncclSuccess) group.wrong = r;
  return r;
}

// grown returns a list of the group with room for an entry after the first n, or NULL.
static void *grown(void *list, size_t n, size_t *room, size_t size) {
  if (n < *room) return list;
  size_t more = *room ? 2 * *room : 16;
  void *p = realloc(list, more * size);
  if (p) *room = more;
  return p;
}

ncclResult_t add(const char *what, const struct assay_op *o, ncclComm_t c) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  ncclResult_t r = given(what, "communicator", c);
  if (r == ncclSuccess) r = load(&e);
  if (r != ncclSuccess) return spoil(r);
  struct assay_op one = *o;
  one.comm = id(c);
  // A wrong call fails itself, not the end of its group, before which a program may destroy a reduction.
  if (group.depth > 0 || one.red > ncclAvg) r = said(e->assay_check(&one, text), text);
  if (r != ncclSuccess) return spoil(r);
  if (group.depth == 0) return said(e->assay_run(&one, 1, text), text);
  struct assay_op *ops = grown(group.ops, group.n, &group.room, sizeof *ops);
  if (!ops) return spoil(fail(ncclSystemError, "%s: no memory for a group of %zu operations", what, group.n + 1));
  group.ops = ops;
  ops[group.n++] = one;
  return ncclSuccess;
}

ncclResult_t pause_comm(const char *what, ncclComm_t c, int resume) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  ncclResult_t r = given(what, "communicator", c);
  if (r == ncclSuccess) r = load(&e);
  if (r != ncclSuccess) return spoil(r);
  struct assay_pause one = {id(c), resume};
  if (group.depth == 0) return said(e->assay_pause(&one, 1, text), text);
  struct assay_pause *pauses = grown(group.pauses, group.paused, &group.pause_room, sizeof *pauses);
  if (!pauses) return spoil(fail(ncclSystemError, "%s: no memory for a group of %zu communicators", what, group.paused + 1));
  group.pauses = pauses;
  pauses[group.paused++] = one;
  return ncclSuccess;
}

// register_all registers windows, and passes them on to those who wait for them.
static ncclResult_t register_all(struct assay_window *windows, struct waiting *a, size_t n) {
  const struct engine *e;
  char text[ASSAY_TEXT], ignored[ASSAY_TEXT];
  ncclResult_t r = load(&e);
  if (r == ncclSuccess) r = said(e->assay_register(windows, n, text), text);
  for (size_t i = 0; i < n; i++) {
    if (r != ncclSuccess) e->assay_deregister(windows[i].comm, windows[i].key, ignored);
    registered(&windows[i], &a[i], r);
  }
  return r;
}

ncclResult_t register_window(const char *what, ncclComm_t c, const struct assay_window *w, struct waiting *a) {
  struct assay_window one = *w;
  one.comm = id(c);
  if (group.depth == 0) return register_all(&one, a, 1);
  struct assay_window *windows = grown(group.windows, group.registered, &group.window_room, sizeof *windows);
  if (windows) group.windows = windows;
  struct waiting *waiting = windows ? grown(group.waiting, group.registered, &group.waiting_room, sizeof *waiting) : NULL;
  if (waiting) group.waiting = waiting;
  if (!waiting) {
    registered(&one, a, ncclSystemError);
    return spoil(fail(ncclSystemError, "%s: no memory for a group of %zu windows", what, group.registered + 1));
  }
  waiting[group.registered] = *a;
  windows[group.registered++] = one;
  return ncclSuccess;
}

// forget_windows tells those who wait for windows that there will be none.
static void forget_windows(void) {
  for (size_t i = 0; i < group.registered; i++) registered(&group.windows[i], &group.waiting[i], ncclInvalidUsage);
  group.registered = 0;
}

// later leaves the creation of a communicator to the end of the group.
static ncclResult_t later(uintptr_t comm) {
  uintptr_t *comms = grown(group.comms, group.made, &group.places, sizeof *comms);
  if (!comms) return fail(ncclSystemError, "no memory for a group of %zu communicators", group.made + 1);
  group.comms = comms;
  comms[group.made++] = comm;
  return ncclSuccess;
}

// make writes the handle at once, as NCCL does: when the group ends, the place that it is for may
// be gone. A rank that a Split leaves out gets none.
ncclResult_t make(struct assay_new *n, ncclComm_t *to) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  *to = NULL;
  ncclResult_t r = load(&e);
  if (r == ncclSuccess) r = said(e->assay_make(environ, n, text), text);
  if (r != ncclSuccess) return spoil(r);
  r = group.depth > 0 ? later(n->comm) : said(e->assay_start(&n->comm, 1, 0, text), text);
  if (r != ncclSuccess && r != ncclInProgress) {
    e->assay_abort(n->comm, text); // nobody knows it
    return spoil(r);
  }
  enum { NOCOLOR = -1 };
  if (n->how != ASSAY_SPLIT || n->color != NOCOLOR) *to = (ncclComm_t)n->comm;
  return r;
}

// launch does what the group has collected. With micros, operations are only reckoned.
static ncclResult_t launch(float *micros) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  if (group.wrong != ncclSuccess) return group.wrong;
  if (micros) *micros = 0;
  if (group.made == 0 && group.paused == 0 && group.registered == 0 && group.n == 0) return ncclSuccess;
  ncclResult_t r = load(&e), made = ncclSuccess;
  if (r == ncclSuccess && group.made > 0) r = made = said(e->assay_start(group.comms, group.made, 0, text), text);
  if (r == ncclInProgress) r = ncclSuccess;
  if (r == ncclSuccess && group.paused > 0) r = said(e->assay_pause(group.pauses, group.paused, text), text);
  if (r == ncclSuccess && group.registered > 0) {
    size_t n = group.registered;
    group.registered = 0;
    r = register_all(group.windows, group.waiting, n);
  }
  if (r == ncclSuccess && group.n > 0 && micros) r = said(e->assay_estimate(group.ops, group.n, micros, text), text);
  if (r == ncclSuccess && group.n > 0 && !micros) r = said(e->assay_run(group.ops, group.n, text), text);
  return r == ncclSuccess ? made : r;
}

// leave takes the thread out of a group.
static ncclResult_t leave(const char *what) {
  if (group.depth == 0) return fail(ncclInvalidUsage, "%s: there is no ncclGroupStart that it ends", what);
  group.depth--;
  return ncclSuccess;
}

// forget empties the group. Communicators that a failed group has not made stay, with its error,
// until the program destroys them.
static void forget(ncclResult_t r) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  if (r != ncclSuccess && r != ncclInProgress && group.made > 0 && load(&e) == ncclSuccess) e->assay_start(group.comms, group.made, 1, text);
  free(group.ops);
  free(group.comms);
  free(group.pauses);
  forget_windows();
  free(group.windows);
  free(group.waiting);
  memset(&group, 0, sizeof group); // threads end: they have nothing left
}

ncclResult_t group_end(void) {
  ncclResult_t r = leave("ncclGroupEnd");
  if (r != ncclSuccess || group.depth > 0) return r;
  r = launch(NULL);
  forget(r);
  return r;
}

// ncclGroupSimulateEnd ends the group, whatever is wrong. A program of another release may
// have another structure: size says how much of it there is. It may have none.
API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info)) {
  static const char what[] = "ncclGroupSimulateEnd";
  float micros;
  ncclResult_t r = leave(what);
  if (group.depth > 0) return r;
  if (r == ncclSuccess && info && (info->magic != SIM_MAGIC || info->size < offsetof(ncclSimInfo_t, estimatedTime) + sizeof micros))
    r = fail(ncclInvalidArgument, "%s: the structure was not made with NCCL_SIM_INFO_INITIALIZER", what);
  if (r == ncclSuccess) r = launch(&micros);
  if (r == ncclSuccess && info) info->estimatedTime = micros;
  forget(r);
  return r;
}
