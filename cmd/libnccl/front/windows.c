// Registered memory and windows. A handle says what was registered, and with which
// communicator. The engine only needs symmetric windows, which all ranks register together:
// other ranks reach them directly. All else is the rank's own affair.
#include "windows.h"

#include <pthread.h>
#include <stdlib.h>

enum { SYMMETRIC = 1, KNOWN = 3 }; // NCCL_WIN_COLL_SYMMETRIC; NCCL_WIN_STRICT_ORDERING is 2

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct record *all;

ncclResult_t put(const char *name, enum what what, ncclComm_t comm, void *buff, size_t size, struct record **to) {
  struct record *w = malloc(sizeof *w);
  if (!w) return fail(ncclSystemError, "%s: no memory for a handle", name);
  pthread_mutex_lock(&lock);
  *w = (struct record){.next = all, .what = what, .comm = comm, .handle = w, .buff = buff, .size = size};
  all = w;
  pthread_mutex_unlock(&lock);
  *to = w;
  return ncclSuccess;
}

// enter is put for what a program registers; nothing has no record.
static ncclResult_t enter(const char *name, enum what what, ncclComm_t comm, void *buff, size_t size, void **handle, struct record **to) {
  struct assay_info i;
  ncclResult_t known = given(name, "place for the handle", handle);
  if (known != ncclSuccess) return known;
  *handle = NULL;
  *to = NULL;
  ASK(name, e->assay_info(id(comm), &i, text));
  if (r != ncclSuccess) return r;
  if (!buff || size == 0) return ncclSuccess;
  if ((uintptr_t)buff + size < (uintptr_t)buff) return fail(ncclInvalidArgument, "%s: %zu bytes at %p", name, size, buff);
  r = put(name, what, comm, buff, size, to);
  if (r == ncclSuccess) *handle = *to;
  return r;
}

// find returns where a registration hangs in the list. It does not look at what a handle
// points at: that may be anything. Any communicator may have registered it, if none is given. The
// lock is held.
static struct record **find(enum what what, ncclComm_t comm, const void *handle) {
  struct record **at = &all;
  while (*at && !((*at)->handle == handle && (*at)->what == what && (!comm || (*at)->comm == comm))) at = &(*at)->next;
  return at;
}

static ncclResult_t foreign(const char *name, const void *handle) {
  return fail(ncclInvalidArgument, "%s: %p was not registered with this communicator, or is deregistered", name, handle);
}

ncclResult_t drop(const char *name, enum what what, ncclComm_t comm, const void *handle, uintptr_t *key) {
  pthread_mutex_lock(&lock);
  struct record **at = find(what, comm, handle), *w = *at;
  if (w) *at = w->next;
  pthread_mutex_unlock(&lock);
  if (!w) return foreign(name, handle);
  *key = (uintptr_t)w;
  free(w);
  return ncclSuccess;
}

void drop_all(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  for (struct record **at = &all, *w; (w = *at);) {
    if (w->comm != comm) {
      at = &w->next;
      continue;
    }
    *at = w->next;
    free(w);
  }
  pthread_mutex_unlock(&lock);
}

void registered(const struct assay_window *w, struct waiting *a, ncclResult_t r) {
  if (r != ncclSuccess) {
    uintptr_t key;
    drop("", a->record->what, a->record->comm, a->record->handle, &key);
    return;
  }
  pthread_mutex_lock(&lock);
  if (w->window) a->record->handle = (const void *)(uintptr_t)w->window;
  a->record->first = w->first;
  a->record->stride = w->stride;
  pthread_mutex_unlock(&lock);
  if (a->win) *a->win = (ncclWindow_t)a->record->handle;
  if (a->out) settle(a, w->window);
}

API(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle)) {
  struct record *w;
  return enter("ncclCommRegister", BUFFER, comm, buff, size, handle, &w);
}

API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle)) {
  uintptr_t key;
  ncclResult_t r = given("ncclCommDeregister", "communicator", comm);
  if (r != ncclSuccess || !handle) return r; // no handle: nothing was registered
  return drop("ncclCommDeregister", BUFFER, comm, handle, &key);
}

// In a group the handle is there when the group ends.
API(ncclResult_t, ncclCommWindowRegister, (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)) {
  static const char what[] = "ncclCommWindowRegister";
  struct record *w;
  if (winFlags & ~KNOWN) return fail(ncclInvalidArgument, "%s: flags %#x; those of 2.30 are 1 and 2", what, (unsigned)winFlags);
  ncclResult_t r = enter(what, WINDOW, comm, buff, size, (void **)win, &w);
  if (r != ncclSuccess || !(winFlags & SYMMETRIC)) return r;
  if (!w) return fail(ncclInvalidArgument, "%s: a symmetric window of %zu bytes at %p", what, size, buff); // the other ranks would wait
  *win = NULL;
  return register_window(what, comm, &(struct assay_window){.key = (uintptr_t)w, .at = buff, .size = size}, &(struct waiting){.record = w, .win = win});
}

API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  static const char what[] = "ncclCommWindowDeregister";
  uintptr_t key;
  ncclResult_t known = given(what, "communicator", comm);
  if (known != ncclSuccess || !win) return known;
  known = drop(what, WINDOW, comm, win, &key);
  if (known != ncclSuccess) return known;
  ASK(what, e->assay_deregister(id(comm), key, text));
  return r;
}

API(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr)) {
  ncclResult_t r = given("ncclWinGetUserPtr", "communicator", comm);
  if (r == ncclSuccess) r = given("ncclWinGetUserPtr", "outUserPtr", outUserPtr);
  if (r != ncclSuccess) return r;
  pthread_mutex_lock(&lock);
  struct record *w = *find(WINDOW, comm, win);
  if (w) *outUserPtr = w->buff;
  pthread_mutex_unlock(&lock);
  return w ? ncclSuccess : foreign("ncclWinGetUserPtr", win);
}

// reach copies what is known of a window, of whichever communicator, from which kernels of the program
// load.
static ncclResult_t reach(const char *what, ncclWindow_t win, size_t offset, void **out, struct record *to) {
  ncclResult_t r = given(what, "window", win);
  if (r == ncclSuccess) r = given(what, "place for the pointer", out);
  if (r != ncclSuccess) return r;
  pthread_mutex_lock(&lock);
  struct record *w = *find(WINDOW, NULL, win);
  if (w) *to = *w;
  pthread_mutex_unlock(&lock);
  if (!w) return foreign(what, win);
  if (offset >= to->size) return fail(ncclInvalidArgument, "%s: offset %zu of a window of %zu bytes", what, offset, to->size);
  return ncclSuccess;
}

// pointer_of finds the memory of a rank. Where kernels reach no other rank's, one finds its own.
static ncclResult_t pointer_of(const char *what, ncclWindow_t win, size_t offset, int rank, void **out, int team) {
  struct record w;
  struct assay_team t;
  ncclResult_t known = reach(what, win, offset, out, &w);
  if (known != ncclSuccess) return known;
  ncclComm_t comm = w.comm;
  ASK(what, e->assay_lsa(id(comm), 0, &t, text));
  if (r != ncclSuccess) return r;
  int ranks = team ? t.lsa_ranks : t.ranks, own = team ? t.lsa_rank : t.rank;
  if (rank < 0 || rank >= ranks) return fail(ncclInvalidArgument, "%s: there is no rank %d of %d", what, rank, ranks);
  if (w.stride != 0) *out = (void *)(uintptr_t)(w.first + (uint64_t)rank * w.stride + offset);
  else if (rank == own) *out = (char *)w.buff + offset;
  else if (!team) *out = NULL; // as NCCL says that a rank is not reached
  else return fail(ncclInvalidUsage, "%s: kernels do not reach the memory of other ranks in this window: NCCL_DEBUG=INFO says why", what);
  return ncclSuccess;
}

API(ncclResult_t, ncclGetLsaDevicePointer, (ncclWindow_t window, size_t offset, int lsaRank, void **outPtr)) {
  return pointer_of("ncclGetLsaDevicePointer", window, offset, lsaRank, outPtr, 1);
}

API(ncclResult_t, ncclGetPeerDevicePointer, (ncclWindow_t window, size_t offset, int peer, void **outPtr)) {
  return pointer_of("ncclGetPeerDevicePointer", window, offset, peer, outPtr, 0);
}

// There is no multicast memory, which NCCL says by NULL.
API(ncclResult_t, ncclGetLsaMultimemDevicePointer, (ncclWindow_t window, size_t offset, void **outPtr)) {
  struct record w;
  ncclResult_t r = reach("ncclGetLsaMultimemDevicePointer", window, offset, outPtr, &w);
  if (r == ncclSuccess) *outPtr = NULL;
  return r;
}

API(ncclResult_t, ncclGetMultimemDevicePointer, (ncclWindow_t window, size_t offset, void *multimem, void **outPtr)) {
  struct record w;
  ncclResult_t r = reach("ncclGetMultimemDevicePointer", window, offset, outPtr, &w);
  return r != ncclSuccess ? r : fail(ncclInvalidArgument, "ncclGetMultimemDevicePointer: %p is no multicast memory of this library, which has none", multimem);
}
