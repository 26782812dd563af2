// Communicators.
#include <stdlib.h>
#include <string.h>

#include "front.h"

extern char **environ;

API(ncclResult_t, ncclGetVersion, (int *version)) {
  if (!version) return fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  *version = API_VERSION;
  return ncclSuccess;
}

API(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id)) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  if (!id) return fail(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
  ncclResult_t r = load(&e);
  return r != ncclSuccess ? r : said(e->assay_unique_id(environ, (uint8_t *)id->internal, text), text);
}

// A number of a configuration that has an effect: since which release, and what it may be.
struct field {
  const char *name;
  size_t at;
  unsigned since;
  int least, most;
  size_t to;
};
#define FIELD(name, since, least, most, to) {#name, offsetof(ncclConfig_t, name), since, least, most, offsetof(struct assay_config, to)}
static const struct field fields[] = {
    FIELD(blocking, 21400, 0, 1, blocking), FIELD(minCTAs, 21700, 1, INT_MAX, min_ctas), FIELD(maxCTAs, 21700, 1, INT_MAX, max_ctas),
    FIELD(trafficClass, 22500, 0, INT_MAX, traffic_class), FIELD(collnetEnable, 22700, 0, 1, coll_net),
    FIELD(CTAPolicy, 22700, 0, 2, cta_policy)};
#undef FIELD

// has reports whether a configuration has a field: a program may be of an older release.
static int has(const ncclConfig_t *c, size_t at, size_t bytes, unsigned since) { return c->version >= since && c->size >= at + bytes; }

// configure takes over what a program's configuration says, of whichever release.
static ncclResult_t configure(const char *what, const ncclConfig_t *from, struct assay_config *to) {
  *to = (struct assay_config){from != NULL, UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, NULL, NULL};
  if (!from) return ncclSuccess;
  if (from->magic != CONFIG_MAGIC || from->size < offsetof(ncclConfig_t, cgaClusterSize))
    return fail(ncclInvalidArgument, "%s: the configuration was not made with NCCL_CONFIG_INITIALIZER", what);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    const struct field *f = &fields[i];
    if (!has(from, f->at, sizeof(int), f->since)) continue;
    int n = *(const int *)((const char *)from + f->at);
    if (n == UNSET) continue;
    if (n < f->least || n > f->most) {
      if (f->most == 1) return fail(ncclInvalidArgument, "%s: %s is %d; want 0 or 1", what, f->name, n);
      if (f->most < INT_MAX) return fail(ncclInvalidArgument, "%s: %s is %d; want %d to %d", what, f->name, n, f->least, f->most);
      return fail(ncclInvalidArgument, "%s: %s is %d; want %d or more", what, f->name, n, f->least);
    }
    *(int32_t *)((char *)to + f->to) = n;
  }
  if (to->min_ctas != UNSET && to->max_ctas != UNSET && to->min_ctas > to->max_ctas)
    return fail(ncclInvalidArgument, "%s: minCTAs is %d, and maxCTAs is %d", what, to->min_ctas, to->max_ctas);
  if (has(from, offsetof(ncclConfig_t, netName), sizeof from->netName, 21700)) to->net = from->netName;
  if (has(from, offsetof(ncclConfig_t, commName), sizeof from->commName, 22700)) to->name = from->commName;
  return ncclSuccess;
}

// init makes a communicator of this thread's device.
static ncclResult_t init(const char *what, ncclComm_t *comm, int ranks, const ncclUniqueId *id, int rank, const ncclConfig_t *config) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  struct assay_new n = {.how = ASSAY_NEW, .ranks = ranks, .rank = rank};
  if (!comm) return fail(ncclInvalidArgument, "%s: comm is NULL", what);
  *comm = NULL;
  memcpy(n.id, id->internal, sizeof n.id);
  ncclResult_t r = configure(what, config, &n.config);
  if (r == ncclSuccess) r = load(&e);
  if (r == ncclSuccess) r = said(e->assay_device(&n.device, text), text);
  return r == ncclSuccess ? make(&n, comm) : r;
}

API(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) {
  return init("ncclCommInitRank", comm, nranks, &commId, rank, NULL);
}

API(ncclResult_t, ncclCommInitRankConfig, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)) {
  return init("ncclCommInitRankConfig", comm, nranks, &commId, rank, config);
}

// ncclCommInitRankScalable meets at the first of the IDs: one root takes thousands
// of ranks.
API(ncclResult_t, ncclCommInitRankScalable, (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config)) {
  if (nId < 1 || nId > nranks || !commIds)
    return fail(ncclInvalidArgument, "ncclCommInitRankScalable: %d IDs for %d ranks; want one to %d", nId, nranks, nranks);
  return init("ncclCommInitRankScalable", newcomm, nranks, commIds, myrank, config);
}

API(ncclResult_t, ncclCommInitAll, (ncclComm_t * comm, int ndev, const int *devlist)) {
  struct assay_new n = {.how = ASSAY_NEW, .ranks = ndev};
  if (!comm || ndev < 1) return fail(ncclInvalidArgument, "ncclCommInitAll: %d devices, comm %p", ndev, (void *)comm);
  ncclUniqueId id;
  ncclResult_t r = ncclGetUniqueId(&id);
  if (r != ncclSuccess) return r;
  memcpy(n.id, id.internal, sizeof n.id);
  configure("ncclCommInitAll", NULL, &n.config);
  group_start();
  for (int i = 0; i < ndev; i++) {
    n.rank = i;
    n.device = devlist ? devlist[i] : i;
    r = make(&n, &comm[i]);
    if (r != ncclSuccess) break;
  }
  ncclResult_t ended = group_end();
  return r == ncclSuccess ? ended : r;
}

API(ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)) {
  struct assay_new n = {.how = ASSAY_SPLIT, .color = color, .key = key};
  ncclResult_t r = check("ncclCommSplit", comm);
  if (r != ncclSuccess) return r;
  if (!newcomm) return fail(ncclInvalidArgument, "ncclCommSplit: newcomm is NULL");
  *newcomm = NULL;
  n.parent = comm->engine;
  r = configure("ncclCommSplit", config, &n.config);
  return r == ncclSuccess ? make(&n, newcomm) : r;
}

API(ncclResult_t, ncclCommShrink, (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)) {
  enum { ABORT = 1 };
  struct assay_new n = {.how = ASSAY_SHRINK, .abort = shrinkFlags & ABORT};
  ncclResult_t r = check("ncclCommShrink", comm);
  if (r != ncclSuccess) return r;
  if (!newcomm || !excludeRanksList || excludeRanksCount < 1 || shrinkFlags & ~ABORT)
    return fail(ncclInvalidArgument, "ncclCommShrink: %d ranks at %p, flags %d%s", excludeRanksCount, (void *)excludeRanksList, shrinkFlags, newcomm ? "" : ", and newcomm is NULL");
  *newcomm = NULL;
  n.parent = comm->engine;
  r = configure("ncclCommShrink", config, &n.config);
  if (r != ncclSuccess) return r;
  n.n_without = excludeRanksCount;
  n.without = malloc(n.n_without * sizeof *n.without);
  if (!n.without) return fail(ncclSystemError, "ncclCommShrink: no memory for a list of %d ranks", excludeRanksCount);
  memcpy(n.without, excludeRanksList, n.n_without * sizeof *n.without);
  return make(&n, newcomm);
}

// ncclCommGetUniqueId makes an ID for ncclCommGrow, which is one like any other.
API(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId *uniqueId)) {
  ncclResult_t r = check("ncclCommGetUniqueId", comm);
  return r == ncclSuccess ? ncclGetUniqueId(uniqueId) : r;
}

API(ncclResult_t, ncclCommGrow, (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, ncclConfig_t *config)) {
  struct assay_new n = {.how = ASSAY_GROW, .ranks = nRanks, .has_id = uniqueId != NULL};
  if (!newcomm) return fail(ncclInvalidArgument, "ncclCommGrow: newcomm is NULL");
  if (!comm && !uniqueId) return fail(ncclInvalidArgument, "ncclCommGrow: a rank that joins needs the ID");
  if (!comm) return init("ncclCommGrow", newcomm, nRanks, uniqueId, rank, config);
  ncclResult_t r = check("ncclCommGrow", comm);
  if (r == ncclSuccess && rank != -1) r = fail(ncclInvalidArgument, "ncclCommGrow: the rank of one that is there is -1, and not %d", rank);
  if (r == ncclSuccess) r = configure("ncclCommGrow", config, &n.config);
  if (r != ncclSuccess) return r;
  *newcomm = NULL;
  n.parent = comm->engine;
  if (uniqueId) memcpy(n.id, uniqueId->internal, sizeof n.id);
  return make(&n, newcomm);
}

// end takes a communicator away, whatever its end says. Its 16 bytes stay: who uses
// it afterwards is told so.
static ncclResult_t end(ncclComm_t comm, ncclResult_t r) {
  drop_all(comm);
  comm->magic = 0;
  return r;
}

API(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  ASK("ncclCommFinalize", e->assay_finalize(comm->engine, text));
  return r;
}

API(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  if (!comm) return ncclSuccess;
  ncclResult_t known = check("ncclCommDestroy", comm);
  if (known != ncclSuccess) return known;
  ASK("ncclCommDestroy", e->assay_destroy(comm->engine, text));
  return end(comm, r);
}

API(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  if (!comm) return ncclSuccess;
  ncclResult_t known = check("ncclCommAbort", comm);
  if (known != ncclSuccess) return known;
  ASK("ncclCommAbort", e->assay_abort(comm->engine, text));
  return end(comm, r);
}

API(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags)) {
  if (revokeFlags != 0) return fail(ncclInvalidArgument, "ncclCommRevoke: flags %d; want 0", revokeFlags);
  ASK("ncclCommRevoke", e->assay_revoke(comm->engine, text));
  return r;
}

API(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError)) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  ncclResult_t r = check("ncclCommGetAsyncError", comm);
  if (r == ncclSuccess && !asyncError) r = fail(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is NULL");
  if (r == ncclSuccess) r = load(&e);
  if (r == ncclSuccess) *asyncError = said(e->assay_state(comm->engine, text), text);
  return r;
}

API(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int *count)) {
  struct assay_info i;
  ASK("ncclCommCount", e->assay_info(comm->engine, &i, text));
  if (r == ncclSuccess) *count = i.ranks;
  return r;
}

API(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int *rank)) {
  struct assay_info i;
  ASK("ncclCommUserRank", e->assay_info(comm->engine, &i, text));
  if (r == ncclSuccess) *rank = i.rank;
  return r;
}

API(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int *device)) {
  struct assay_info i;
  ASK("ncclCommCuDevice", e->assay_info(comm->engine, &i, text));
  if (r == ncclSuccess) *device = i.device;
  return r;
}
