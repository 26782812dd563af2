// Errors, communicators and groups.
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

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

ncclResult_t check(const char *what, ncclComm_t c) {
  if (!c) return fail(ncclInvalidArgument, "%s: the communicator is NULL", what);
  if (c->magic != COMM_MAGIC)
    return fail(ncclInvalidArgument, "%s: this is no communicator of this library: it was destroyed, or two libraries of the name libnccl.so.2 are loaded", what);
  return ncclSuccess;
}

// A group collects what a thread calls between GroupStart and GroupEnd.
static _Thread_local struct {
  int depth;
  ncclResult_t wrong; // the first call that failed
  struct assay_op *ops;
  size_t n, room;
  struct assay_new *news;
  ncclComm_t **to; // where communicators go
  size_t made, places;
  struct assay_pause *pauses;
  size_t paused, pause_room;
  struct assay_window *windows;
  size_t registered, window_room;
} group;

ncclResult_t group_start(void) {
  group.depth++;
  return ncclSuccess;
}

// spoil makes the group fail, as a whole.
static ncclResult_t spoil(ncclResult_t r) {
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
  ncclResult_t r = check(what, c);
  if (r == ncclSuccess) r = load(&e);
  if (r != ncclSuccess) return spoil(r);
  struct assay_op one = *o;
  one.comm = c->engine;
  // A program may destroy a reduction before the group ends.
  if (one.red > ncclAvg) r = said(e->assay_scale_find(&one, text), text);
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
  ncclResult_t r = check(what, c);
  if (r == ncclSuccess) r = load(&e);
  if (r != ncclSuccess) return spoil(r);
  struct assay_pause one = {c->engine, resume};
  if (group.depth == 0) return said(e->assay_pause(&one, 1, text), text);
  struct assay_pause *pauses = grown(group.pauses, group.paused, &group.pause_room, sizeof *pauses);
  if (!pauses) return spoil(fail(ncclSystemError, "%s: no memory for a group of %zu communicators", what, group.paused + 1));
  group.pauses = pauses;
  pauses[group.paused++] = one;
  return ncclSuccess;
}

ncclResult_t register_window(const char *what, ncclComm_t c, const struct assay_window *w) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  ncclResult_t r = load(&e);
  if (r != ncclSuccess) return spoil(r);
  struct assay_window one = *w;
  one.comm = c->engine;
  if (group.depth == 0) return said(e->assay_register(&one, 1, text), text);
  struct assay_window *windows = grown(group.windows, group.registered, &group.window_room, sizeof *windows);
  if (!windows) return spoil(fail(ncclSystemError, "%s: no memory for a group of %zu windows", what, group.registered + 1));
  group.windows = windows;
  windows[group.registered++] = one;
  return ncclSuccess;
}

// place keeps what the engine made.
static ncclResult_t place(const struct assay_new *n, ncclComm_t *to) {
  *to = NULL;
  if (!n->comm) return n->code;
  struct ncclComm *c = malloc(sizeof *c);
  if (!c) return fail(ncclSystemError, "no memory for a communicator");
  c->engine = n->comm;
  __atomic_store_n(&c->magic, COMM_MAGIC, __ATOMIC_RELEASE);
  *to = c;
  return n->code;
}

// later leaves a communicator to the end of the group.
static ncclResult_t later(const struct assay_new *n, ncclComm_t *to) {
  if (group.made == group.places) {
    size_t places = group.places ? 2 * group.places : 8;
    struct assay_new *news = realloc(group.news, places * sizeof *news);
    if (news) group.news = news;
    ncclComm_t **tos = news ? realloc(group.to, places * sizeof *tos) : NULL;
    if (!tos) return fail(ncclSystemError, "no memory for a group of %zu communicators", places);
    group.to = tos;
    group.places = places;
  }
  group.news[group.made] = *n;
  group.to[group.made++] = to;
  return ncclSuccess;
}

ncclResult_t make(const struct assay_new *n, ncclComm_t *to) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  ncclResult_t r = load(&e);
  if (r == ncclSuccess && group.depth == 0) {
    struct assay_new one = *n;
    r = said(e->assay_make(environ, &one, 1, text), text);
    ncclResult_t kept = place(&one, to);
    r = r == ncclSuccess ? kept : r;
  } else if (r == ncclSuccess) {
    r = later(n, to);
    if (r == ncclSuccess) return r;
  }
  free(n->without);
  return spoil(r);
}

// make_all makes the group's communicators, all at once.
static ncclResult_t make_all(const struct engine *e) {
  char text[ASSAY_TEXT];
  ncclResult_t r = said(e->assay_make(environ, group.news, group.made, text), text);
  for (size_t i = 0; i < group.made; i++) {
    ncclResult_t kept = place(&group.news[i], group.to[i]);
    if (r == ncclSuccess) r = kept;
  }
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
  if (r == ncclSuccess && group.made > 0) r = made = make_all(e);
  if (r == ncclInProgress) r = ncclSuccess;
  if (r == ncclSuccess && group.paused > 0) r = said(e->assay_pause(group.pauses, group.paused, text), text);
  if (r == ncclSuccess && group.registered > 0) r = said(e->assay_register(group.windows, group.registered, text), text);
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

static void forget(void) {
  for (size_t i = 0; i < group.made; i++) free(group.news[i].without);
  free(group.ops);
  free(group.news);
  free(group.to);
  free(group.pauses);
  free(group.windows);
  memset(&group, 0, sizeof group); // threads end: they have nothing left
}

ncclResult_t group_end(void) {
  ncclResult_t r = leave("ncclGroupEnd");
  if (r != ncclSuccess || group.depth > 0) return r;
  r = launch(NULL);
  forget();
  return r;
}

// ncclGroupSimulateEnd ends the group, whatever is wrong. A program of another release may
// have another structure: size says how much of it there is.
API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info)) {
  float micros;
  ncclResult_t r = leave("ncclGroupSimulateEnd");
  if (r != ncclSuccess || group.depth > 0) return r;
  if (!info || info->magic != SIM_MAGIC || info->size < offsetof(ncclSimInfo_t, estimatedTime) + sizeof micros)
    r = fail(ncclInvalidArgument, "ncclGroupSimulateEnd: the structure was not made with NCCL_SIM_INFO_INITIALIZER");
  if (r == ncclSuccess) r = launch(&micros);
  if (r == ncclSuccess) info->estimatedTime = micros;
  forget();
  return r;
}
