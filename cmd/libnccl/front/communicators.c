// Communicators.
#include <string.h>

#include "front.h"

extern char **environ;

API(ncclResult_t, ncclGetVersion, (int *version)) {
  if (!version) return fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  *version = API_VERSION;
  return ncclSuccess;
}

// unique_id makes an ID: for any ranks, or for those that a communicator grows by.
static ncclResult_t unique_id(const char *what, ncclComm_t parent, ncclUniqueId *to) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  ncclResult_t r = given(what, "uniqueId", to);
  if (r == ncclSuccess) r = load(&e);
  return r != ncclSuccess ? r : said(e->assay_unique_id(environ, id(parent), (uint8_t *)to->internal, text), text);
}

API(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId)) { return unique_id("ncclGetUniqueId", NULL, uniqueId); }

// A number of a configuration: since which release, what it may be, and where it goes, if it has an effect.
struct field {
  const char *name;
  size_t at;
  unsigned since;
  int least, most;
  int to;
};
enum { NOWHERE = -1 };
#define FIELD(name, since, least, most, to) {#name, offsetof(ncclConfig_t, name), since, least, most, offsetof(struct assay_config, to)}
#define CHECKED(name, since, least, most) {#name, offsetof(ncclConfig_t, name), since, least, most, NOWHERE}
static const struct field fields[] = {
    FIELD(blocking, 21400, 0, 1, blocking), CHECKED(cgaClusterSize, 21700, 0, INT_MAX), FIELD(minCTAs, 21700, 1, INT_MAX, min_ctas), FIELD(maxCTAs, 21700, 1, INT_MAX, max_ctas),
    CHECKED(splitShare, 21800, 0, 1), FIELD(trafficClass, 22500, INT_MIN, INT_MAX, traffic_class), FIELD(collnetEnable, 22700, 0, 1, coll_net),
    FIELD(CTAPolicy, 22700, 0, 2, cta_policy), CHECKED(shrinkShare, 22700, 0, 1), CHECKED(nvlsCTAs, 22700, 1, INT_MAX),
    FIELD(graphUsageMode, 22900, 0, 2, graph_usage), FIELD(graphStreamOrdering, 23005, 0, 1, graph_order)};
#undef FIELD
#undef CHECKED

// has reports whether a configuration has a field: a program may be of an older release.
static int has(const ncclConfig_t *c, size_t at, size_t bytes, unsigned since) { return c->version >= since && c->size >= at + bytes; }

// configure takes over what a program's configuration says, of whichever release.
static ncclResult_t configure(const char *what, const ncclConfig_t *from, struct assay_config *to) {
  *to = (struct assay_config){from != NULL, UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, UNSET, NULL, NULL};
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
    if (f->to != NOWHERE) *(int32_t *)((char *)to + f->to) = n;
  }
  if (to->min_ctas != UNSET && to->max_ctas != UNSET && to->min_ctas > to->max_ctas)
    return fail(ncclInvalidArgument, "%s: minCTAs is %d, and maxCTAs is %d", what, to->min_ctas, to->max_ctas);
  if (has(from, offsetof(ncclConfig_t, netName), sizeof from->netName, 21700)) to->net = from->netName;
  if (has(from, offsetof(ncclConfig_t, commName), sizeof from->commName, 22700)) to->name = from->commName;
  return ncclSuccess;
}

// init makes a communicator of this thread's device.
static ncclResult_t init(const char *what, ncclComm_t *comm, int ranks, const ncclUniqueId *at, int rank, const ncclConfig_t *config) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  struct assay_new n = {.how = ASSAY_NEW, .ranks = ranks, .rank = rank};
  if (!comm) return fail(ncclInvalidArgument, "%s: comm is NULL", what);
  *comm = NULL;
  memcpy(n.id, at->internal, sizeof n.id);
  ncclResult_t r = configure(what, config, &n.config);
  if (r == ncclSuccess) r = load(&e);
  if (r == ncclSuccess) r = said(e->assay_device(&n.device, text), text);
  return r == ncclSuccess ? make(&n, comm) : spoil(r);
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

// abandon ends a communicator that the program does not get.
static void abandon(ncclComm_t comm) {
  const struct engine *e;
  char text[ASSAY_TEXT];
  if (load(&e) == ncclSuccess) e->assay_abort(id(comm), text);
}

API(ncclResult_t, ncclCommInitAll, (ncclComm_t * comm, int ndev, const int *devlist)) {
  struct assay_new n = {.how = ASSAY_NEW, .ranks = ndev};
  if (!comm || ndev < 1) return fail(ncclInvalidArgument, "ncclCommInitAll: %d devices, comm %p", ndev, (void *)comm);
  for (int i = 0; i < ndev; i++) comm[i] = NULL;
  ncclUniqueId at;
  ncclResult_t r = ncclGetUniqueId(&at);
  if (r != ncclSuccess) return r;
  memcpy(n.id, at.internal, sizeof n.id);
  configure("ncclCommInitAll", NULL, &n.config);
  group_start();
  for (int i = 0; i < ndev && r == ncclSuccess; i++) {
    n.rank = i;
    n.device = devlist ? devlist[i] : i;
    r = make(&n, &comm[i]);
  }
  ncclResult_t ended = group_end();
  if (r == ncclSuccess) r = ended;
  if (r == ncclSuccess) return r;
  for (int i = 0; i < ndev; i++) {
    if (comm[i]) abandon(comm[i]);
    comm[i] = NULL;
  }
  return r;
}

API(ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)) {
  static const char what[] = "ncclCommSplit";
  struct assay_new n = {.how = ASSAY_SPLIT, .color = color, .key = key, .parent = id(comm)};
  ncclResult_t r = given(what, "communicator", comm);
  if (r == ncclSuccess) r = given(what, "newcomm", newcomm);
  if (r == ncclSuccess) r = configure(what, config, &n.config);
  return r == ncclSuccess ? make(&n, newcomm) : spoil(r);
}

API(ncclResult_t, ncclCommShrink, (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)) {
  enum { ABORT = 1 };
  static const char what[] = "ncclCommShrink";
  struct assay_new n = {.how = ASSAY_SHRINK, .abort = shrinkFlags & ABORT, .without = excludeRanksList, .n_without = excludeRanksCount, .parent = id(comm)};
  ncclResult_t r = given(what, "communicator", comm);
  if (r != ncclSuccess) return r;
  if (!newcomm || !excludeRanksList || excludeRanksCount < 1 || shrinkFlags & ~ABORT)
    return fail(ncclInvalidArgument, "%s: %d ranks at %p, flags %d%s", what, excludeRanksCount, (void *)excludeRanksList, shrinkFlags, newcomm ? "" : ", and newcomm is NULL");
  r = configure(what, config, &n.config);
  return r == ncclSuccess ? make(&n, newcomm) : spoil(r);
}

// ncclCommGetUniqueId makes an ID for ncclCommGrow, which need not be told it on this rank.
API(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId *uniqueId)) {
  static const char what[] = "ncclCommGetUniqueId";
  ncclResult_t r = given(what, "communicator", comm);
  return r == ncclSuccess ? unique_id(what, comm, uniqueId) : r;
}

API(ncclResult_t, ncclCommGrow, (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, ncclConfig_t *config)) {
  static const char what[] = "ncclCommGrow";
  struct assay_new n = {.how = ASSAY_GROW, .ranks = nRanks, .has_id = uniqueId != NULL, .parent = id(comm)};
  ncclResult_t r = given(what, "newcomm", newcomm);
  if (r != ncclSuccess) return r;
  if (!comm && !uniqueId) return fail(ncclInvalidArgument, "%s: a rank that joins needs the ID", what);
  if (!comm) return init(what, newcomm, nRanks, uniqueId, rank, config);
  if (rank != -1) return fail(ncclInvalidArgument, "%s: the rank of one that is there is -1, and not %d", what, rank);
  r = configure(what, config, &n.config);
  if (uniqueId) memcpy(n.id, uniqueId->internal, sizeof n.id);
  return r == ncclSuccess ? make(&n, newcomm) : spoil(r);
}

// Of these three, NULL is the communicator that a Split has left a rank out of.
API(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  if (!comm) return ncclSuccess;
  ASK("ncclCommFinalize", e->assay_finalize(id(comm), text));
  return r;
}

API(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  if (!comm) return ncclSuccess;
  ASK("ncclCommDestroy", e->assay_destroy(id(comm), text));
  drop_all(comm);
  return r;
}

API(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  if (!comm) return ncclSuccess;
  ASK("ncclCommAbort", e->assay_abort(id(comm), text));
  drop_all(comm);
  return r;
}

API(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags)) {
  if (revokeFlags != 0) return fail(ncclInvalidArgument, "ncclCommRevoke: flags %d; want 0", revokeFlags);
  ASK("ncclCommRevoke", e->assay_revoke(id(comm), text));
  return r;
}

API(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError)) {
  int32_t state;
  ncclResult_t known = given("ncclCommGetAsyncError", "asyncError", asyncError);
  if (known != ncclSuccess) return known;
  ASK("ncclCommGetAsyncError", e->assay_state(id(comm), &state, text));
  if (r == ncclSuccess) *asyncError = said(state, text);
  return r;
}

// about writes a number of a communicator.
static ncclResult_t about(const char *what, ncclComm_t comm, int *to, size_t field) {
  struct assay_info i;
  ncclResult_t known = given(what, "place for the number", to);
  if (known != ncclSuccess) return known;
  ASK(what, e->assay_info(id(comm), &i, text));
  if (r == ncclSuccess) *to = *(int32_t *)((char *)&i + field);
  return r;
}

API(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int *count)) { return about("ncclCommCount", comm, count, offsetof(struct assay_info, ranks)); }
API(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int *rank)) { return about("ncclCommUserRank", comm, rank, offsetof(struct assay_info, rank)); }
API(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int *device)) { return about("ncclCommCuDevice", comm, device, offsetof(struct assay_info, device)); }
