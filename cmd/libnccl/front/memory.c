// Memory: a program's own, and what communicators take.
#include "front.h"

API(ncclResult_t, ncclMemAlloc, (void **ptr, size_t size)) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  ncclResult_t r = given("ncclMemAlloc", "place for the address", ptr);
  if (r != ncclSuccess) return r;
  *ptr = NULL;
  if (size == 0) return ncclSuccess; // as of cudaMalloc
  r = load(&e);
  return r != ncclSuccess ? r : said(e->assay_mem_alloc(ptr, size, text), text);
}

API(ncclResult_t, ncclMemFree, (void *ptr)) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  if (!ptr) return ncclSuccess;
  ncclResult_t r = load(&e);
  return r != ncclSuccess ? r : said(e->assay_mem_free(ptr, text), text);
}

// memory asks what a communicator takes of its device.
static ncclResult_t memory(const char *what, ncclComm_t comm, struct assay_memory *m) {
  ASK(what, e->assay_memory(id(comm), m, text));
  return r;
}

API(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)) {
  struct assay_memory m;
  ncclResult_t r = memory("ncclCommMemStats", comm, &m);
  if (r == ncclSuccess && !value) r = fail(ncclInvalidArgument, "ncclCommMemStats: value is NULL");
  if (r != ncclSuccess) return r;
  switch (stat) {
    case ncclStatGpuMemSuspend: *value = m.own; return r;
    case ncclStatGpuMemSuspended: *value = m.suspended; return r;
    case ncclStatGpuMemPersist: *value = m.shared; return r;
    case ncclStatGpuMemTotal: *value = m.own + m.shared; return r;
    default: return fail(ncclInvalidArgument, "ncclCommMemStats: there is no statistic %d", (int)stat);
  }
}

API(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags)) {
  enum { MEMORY = 1 };
  if (flags != MEMORY) return fail(ncclInvalidArgument, "ncclCommSuspend: flags %d; want 1 (NCCL_SUSPEND_MEM)", flags);
  return pause_comm("ncclCommSuspend", comm, 0);
}

API(ncclResult_t, ncclCommResume, (ncclComm_t comm)) { return pause_comm("ncclCommResume", comm, 1); }
