// Registered memory and windows.
#include "front.h"

// Registered memory is not used yet in any other way than memory that is not: a
// handle of NULL says so, as NCCL's does.
API(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle)) {
  ncclResult_t r = check("ncclCommRegister", comm);
  if (r == ncclSuccess && (!buff || size == 0 || !handle)) r = fail(ncclInvalidArgument, "ncclCommRegister: %zu bytes at %p", size, buff);
  if (r == ncclSuccess) *handle = NULL;
  return r;
}

API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle)) {
  ncclResult_t r = check("ncclCommDeregister", comm);
  if (r == ncclSuccess && handle) r = fail(ncclInvalidArgument, "ncclCommDeregister: %p is no handle of ncclCommRegister", handle);
  return r;
}

API(ncclResult_t, ncclCommWindowRegister, (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)) {
  (void)winFlags;
  ncclResult_t r = check("ncclCommWindowRegister", comm);
  if (r == ncclSuccess && (!buff || size == 0 || !win)) r = fail(ncclInvalidArgument, "ncclCommWindowRegister: %zu bytes at %p", size, buff);
  if (r == ncclSuccess) *win = NULL;
  return r;
}

API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  ncclResult_t r = check("ncclCommWindowDeregister", comm);
  if (r == ncclSuccess && win) r = fail(ncclInvalidArgument, "ncclCommWindowDeregister: %p is no window of ncclCommWindowRegister", (void *)win);
  return r;
}
