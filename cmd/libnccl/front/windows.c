// Registered memory and windows. A handle says what was registered, and with which
// communicator. The engine only needs symmetric windows, which all ranks register together:
// other ranks write to them directly. All else is the rank's own affair.
#include <pthread.h>
#include <stdlib.h>

#include "front.h"

enum what { BUFFER, WINDOW };
enum { SYMMETRIC = 1, KNOWN = 3 }; // NCCL_WIN_COLL_SYMMETRIC; NCCL_WIN_STRICT_ORDERING is 2

// A registration is what both kinds of handles point at.
struct ncclWindow_vidmem {
  struct ncclWindow_vidmem *next;
  enum what what;
  ncclComm_t comm;
  void *buff;
  size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ncclWindow_t all;

static ncclResult_t put(const char *name, enum what what, ncclComm_t comm, void *buff, size_t size, void **handle) {
  struct assay_info i;
  ncclResult_t known = given(name, "place for the handle", handle);
  if (known != ncclSuccess) return known;
  *handle = NULL;
  ASK(name, e->assay_info(id(comm), &i, text));
  if (r != ncclSuccess) return r;
  if (!buff || size == 0) return ncclSuccess; // nothing, with the handle of nothing
  if ((uintptr_t)buff + size < (uintptr_t)buff) return fail(ncclInvalidArgument, "%s: %zu bytes at %p", name, size, buff);
  ncclWindow_t w = malloc(sizeof *w);
  if (!w) return fail(ncclSystemError, "%s: no memory for a handle", name);
  pthread_mutex_lock(&lock);
  *w = (struct ncclWindow_vidmem){all, what, comm, buff, size};
  all = w;
  pthread_mutex_unlock(&lock);
  *handle = w;
  return ncclSuccess;
}

// find returns where a registration hangs in the list. It does not look at what a handle
// points at: that may be anything. The lock is held.
static ncclWindow_t *find(enum what what, ncclComm_t comm, const void *handle) {
  ncclWindow_t *at = &all;
  while (*at && !(*at == handle && (*at)->what == what && (*at)->comm == comm)) at = &(*at)->next;
  return at;
}

static ncclResult_t foreign(const char *name, const void *handle) {
  return fail(ncclInvalidArgument, "%s: %p was not registered with this communicator, or is deregistered", name, handle);
}

static ncclResult_t drop(const char *name, enum what what, ncclComm_t comm, const void *handle) {
  ncclResult_t r = given(name, "communicator", comm);
  if (r != ncclSuccess || !handle) return r; // no handle: nothing was registered
  pthread_mutex_lock(&lock);
  ncclWindow_t *at = find(what, comm, handle), w = *at;
  if (w) *at = w->next;
  pthread_mutex_unlock(&lock);
  if (!w) return foreign(name, handle);
  free(w);
  return ncclSuccess;
}

void drop_all(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  for (ncclWindow_t *at = &all, w; (w = *at);) {
    if (w->comm != comm) {
      at = &w->next;
      continue;
    }
    *at = w->next;
    free(w);
  }
  pthread_mutex_unlock(&lock);
}

API(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle)) {
  return put("ncclCommRegister", BUFFER, comm, buff, size, handle);
}

API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle)) {
  return drop("ncclCommDeregister", BUFFER, comm, handle);
}

API(ncclResult_t, ncclCommWindowRegister, (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)) {
  static const char what[] = "ncclCommWindowRegister";
  if (winFlags & ~KNOWN) return fail(ncclInvalidArgument, "%s: flags %#x; those of 2.30 are 1 and 2", what, (unsigned)winFlags);
  ncclResult_t r = put(what, WINDOW, comm, buff, size, (void **)win);
  if (r != ncclSuccess || !(winFlags & SYMMETRIC)) return r;
  if (!*win) return fail(ncclInvalidArgument, "%s: a symmetric window of %zu bytes at %p", what, size, buff); // the other ranks would wait
  r = register_window(what, comm, &(struct assay_window){.key = (uintptr_t)*win, .at = buff, .size = size});
  if (r == ncclSuccess) return r;
  drop(what, WINDOW, comm, *win);
  *win = NULL;
  return r;
}

API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  static const char what[] = "ncclCommWindowDeregister";
  ncclResult_t dropped = drop(what, WINDOW, comm, win);
  if (dropped != ncclSuccess || !win) return dropped;
  ASK(what, e->assay_deregister(id(comm), (uintptr_t)win, text));
  return r;
}

API(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr)) {
  ncclResult_t r = given("ncclWinGetUserPtr", "communicator", comm);
  if (r == ncclSuccess) r = given("ncclWinGetUserPtr", "outUserPtr", outUserPtr);
  if (r != ncclSuccess) return r;
  pthread_mutex_lock(&lock);
  ncclWindow_t w = *find(WINDOW, comm, win);
  if (w) *outUserPtr = w->buff;
  pthread_mutex_unlock(&lock);
  return w ? ncclSuccess : foreign("ncclWinGetUserPtr", win);
}
