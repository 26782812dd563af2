// Device communicators: what kernels of the program need in order to load from and to store to the
// memory of other ranks, and to wait for them, by themselves (LSA). nccl_device.h of the release that a program was
// compiled with is in its kernels, so each release gets its own structures. There is no GIN and no
// multicast memory; whoever asks for them is told so.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "windows.h"

enum { MAGIC = CONFIG_MAGIC, UNVERSIONED = 22807 };

#define OF(version, type)                                                                     \
  .bytes = sizeof(struct devcomm_##type), .members = offsetof(struct devcomm_##type, members), \
  .barrier = offsetof(struct devcomm_##type, lsaBarrier)
#define RESOURCE_OF(type, field) offsetof(struct devcomm_##type, resourceWindow_inlined) + offsetof(struct inlined, field)

// All releases whose device communicators are known. Those of 2.28 do not say which release they are of:
// they count as 2.28.7, and those of 2.28.3, which are shorter, cannot be told from them.
static const struct layout layouts[] = {
    {22807, 22809, OF(22807, 22807), .window = offsetof(struct devcomm_22807, members.resourceWindow), .base = RESOURCE_OF(22807, lsaFlatBase), .stride = RESOURCE_OF(22807, stride4G)},
    {22902, 22903, OF(22807, 22807), .window = offsetof(struct devcomm_22807, members.resourceWindow), .base = RESOURCE_OF(22807, lsaFlatBase), .stride = RESOURCE_OF(22807, stride4G)},
    {22905, 22999, .bytes = sizeof(struct devcomm_22905), .barrier = offsetof(struct devcomm_22807, lsaBarrier), .window = offsetof(struct devcomm_22807, members.resourceWindow), .base = RESOURCE_OF(22807, lsaFlatBase), .stride = RESOURCE_OF(22807, stride4G)},
    {23000, 23099, OF(23000, 23000), .hybrid = offsetof(struct devcomm_23000, hybridLsaBarrier), .window = offsetof(struct devcomm_23000, members.resourceWindow), .base = RESOURCE_OF(23000, lsaFlatBase), .stride = RESOURCE_OF(23000, stride4G)},
    {23100, 23299, OF(23100, 23100), .hybrid = offsetof(struct devcomm_23100, hybridLsaBarrier), .window = offsetof(struct devcomm_23100, members.resourceWindow),
     .base = offsetof(struct devcomm_23100, resourceWindow_inlined.lsaFlatBase), .stride = offsetof(struct devcomm_23100, resourceWindow_inlined.stride4G)},
};

static const struct layout *layout_of(unsigned version) {
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    if (version >= layouts[i].first && version <= layouts[i].last) return &layouts[i];
  return NULL;
}

// refuse is fail, and says it in the communicator's log, too.
__attribute__((format(printf, 4, 5))) static ncclResult_t refuse(const struct engine *e, ncclComm_t comm, ncclResult_t code, const char *format, ...) {
  char text[ASSAY_TEXT];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  e->assay_warn(id(comm), text);
  return spoil(said(code, text));
}

static const char create[] = "ncclDevCommCreate";

#define NO_GIN "there is no GIN, by which kernels reach other hosts: ncclCommQueryProperties says so, and NVIDIA's library may have it"
#define NO_MULTIMEM "there is no multicast memory (multimem): ncclCommQueryProperties says so, and NVIDIA's library may have it"

// lacks is what a program requires and does not get, or NULL.
static const char *lacks(const struct requirements *q, const ncclDevCommRequirements_t *v, unsigned version) {
#define SAYS(field) (v && v->size >= offsetof(ncclDevCommRequirements_t, field) + sizeof v->field && v->field)
  int gin = q->ginForceEnable || q->ginSignalCount > 0 || q->ginCounterCount > 0 || SAYS(ginConnectionType);
  // Before 2.29.5 barriers of both kinds are made without GIN, and the part that needs it is of one rank.
  if (version >= 22905) gin |= q->barrierCount > 0 || q->railGinBarrierCount > 0;
  if (version >= 23000) gin |= SAYS(worldGinBarrierCount);
  for (const ncclDevResourceRequirements_t *n = q->resourceRequirementsList; n; n = n->next) gin |= n->ginSignalCount > 0 || n->ginCounterCount > 0;
  if (gin) return NO_GIN;
  for (const ncclTeamRequirements_t *n = q->teamRequirementsList; n; n = n->next)
    if (n->multimem) return NO_MULTIMEM;
  if (q->lsaMultimem) return NO_MULTIMEM;
  if (version >= 23100 && (SAYS(cftCaps) || SAYS(cftBarrierCount))) return "there is no CFT (compute fabric transport)";
#undef SAYS
  return NULL;
}

// place finds room for a part behind the others. Its handle is the offset in units.
static int place(size_t *total, size_t bytes, size_t align, uint32_t *handle) {
  if (align < RESOURCE_UNIT) align = RESOURCE_UNIT;
  size_t at = (*total + align - 1) / align * align;
  if (align > 1ul << 30 || at % RESOURCE_UNIT || bytes > 1ul << 38 || at / RESOURCE_UNIT > UINT32_MAX) return 0;
  if (handle) *handle = (uint32_t)(at / RESOURCE_UNIT);
  *total = at + bytes;
  return 1;
}

// barriers takes room for barriers of the LSA team: epochs of both kinds, and what others write.
static int barriers(size_t *total, int count, int ranks, ncclLsaBarrierHandle_t *to) {
  *to = (ncclLsaBarrierHandle_t){0, count};
  if (count < 0 || count > 1 << 20) return 0;
  return count == 0 || place(total, (size_t)count * (3 + ranks) * sizeof(uint32_t), sizeof(uint32_t), &to->bufHandle);
}

static void write_at(union devcomm *d, size_t at, const void *from, size_t n) { memcpy((char *)d + at, from, n); }

// divisor is by what kernels multiply in place of a division.
static uint32_t divisor(int of) { return (uint32_t)((1ull << 32) / (unsigned)of); }

void settle(struct waiting *a, uint64_t window) {
  const struct layout *l = a->layout;
  if (window) {
    uint32_t stride = (uint32_t)(a->record->stride >> 32);
    write_at(&a->made, l->window, &window, sizeof window);
    write_at(&a->made, l->base, &a->record->first, sizeof a->record->first);
    write_at(&a->made, l->stride, &stride, sizeof stride);
  }
  memcpy(a->out, &a->made, l->bytes);
}

API(ncclResult_t, ncclDevCommCreate, (ncclComm_t comm, const void *requirements, void *outDevComm)) {
  struct assay_team t;
  ncclResult_t known = given(create, "requirements", requirements);
  if (known == ncclSuccess) known = given(create, "place for the device communicator", outDevComm);
  if (known != ncclSuccess) return spoil(known);
  ASK(create, e->assay_lsa(id(comm), 1, &t, text));
  if (r != ncclSuccess) return spoil(r);
  const ncclDevCommRequirements_t *v = requirements;
  const struct requirements *q = &v->first;
  if (v->magic != MAGIC || v->size >= 1 << 16) { // of 2.28: a pointer is where the size would be
    q = requirements;
    v = NULL;
  }
  unsigned version = v ? v->version : UNVERSIONED;
  if (v && version >= 23100 && v->size > offsetof(ncclDevCommRequirements_t, useRuntimeVersion) && v->useRuntimeVersion) version = API_VERSION;
  struct waiting a = {.out = outDevComm, .layout = layout_of(version)};
  if (!a.layout || (v && v->size < offsetof(ncclDevCommRequirements_t, ginConnectionType)))
    return refuse(e, comm, ncclInvalidUsage, "%s: the program was compiled with nccl_device.h of NCCL %u.%u.%u, whose structures of %zu bytes this library does not know; it knows those of 2.28.7 to 2.28.9, 2.29.2, 2.29.3, 2.29.5 to 2.29.7 and 2.30 to 2.32",
                  create, version / 10000, version / 100 % 100, version % 100, v ? v->size : 0);
  if (!t.reaches) return refuse(e, comm, ncclInvalidUsage, "%s: %s", create, text);
  const char *lacking = lacks(q, v, version);
  if (lacking && !v) return refuse(e, comm, ncclInvalidUsage, "%s: %s; since NCCL 2.29 requirements begin as NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER, and these do not", create, lacking);
  if (lacking) return refuse(e, comm, ncclInvalidUsage, "%s: %s", create, lacking);

  if (version >= 23000) write_at(&a.made, 0, (unsigned[]){MAGIC, version}, 2 * sizeof(unsigned));
  struct members m = {t.rank, t.ranks, divisor(t.ranks), t.lsa_rank, t.lsa_ranks, divisor(t.lsa_ranks), t.table, 0};
  write_at(&a.made, a.layout->members, &m, sizeof m);
  if (a.layout->bytes == sizeof(struct devcomm_23100)) a.made.v23100.ucLeId = a.made.v23100.mcLeId = UINT32_MAX; // no endpoint
  size_t total = 0;
  ncclLsaBarrierHandle_t own, hybrid = {0, 0};
  int both = version < 22905 ? q->barrierCount : 0; // which barriers of both kinds use
  int fits = barriers(&total, q->lsaBarrierCount > both ? q->lsaBarrierCount : both, t.lsa_ranks, &own);
  for (ncclDevResourceRequirements_t *n = q->resourceRequirementsList; n && fits; n = n->next) fits = place(&total, n->bufferSize, n->bufferAlign, n->outBufferHandle);
  if (!fits) return refuse(e, comm, ncclInvalidArgument, "%s: %d barriers, and parts of the resource buffer, do not fit into it, or are aligned to no multiple of %d", create, q->lsaBarrierCount, RESOURCE_UNIT);
  write_at(&a.made, a.layout->barrier, &own, sizeof own);
  if (a.layout->hybrid) write_at(&a.made, a.layout->hybrid, &hybrid, sizeof hybrid);
  for (ncclTeamRequirements_t *n = q->teamRequirementsList; n; n = n->next)
    if (n->outMultimemHandle) *n->outMultimemHandle = NULL;
  if (total == 0) {
    settle(&a, 0);
    return ncclSuccess;
  }
  r = put(create, RESOURCE, comm, NULL, total, &a.record);
  if (r != ncclSuccess) return spoil(r);
  return register_window(create, comm, &(struct assay_window){.key = (uintptr_t)a.record, .size = total}, &a);
}

API(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const void *devComm)) {
  static const char what[] = "ncclDevCommDestroy";
  struct assay_info i;
  uint64_t window;
  uintptr_t key;
  ncclResult_t known = given(what, "device communicator", devComm);
  if (known != ncclSuccess) return known;
  ASK(what, e->assay_info(id(comm), &i, text));
  if (r != ncclSuccess) return r;
  int versioned = *(const unsigned *)devComm == MAGIC; // otherwise that is the rank
  memcpy(&window, (const char *)devComm + (versioned ? offsetof(struct devcomm_23000, members) : 0) + offsetof(struct members, resourceWindow), sizeof window);
  if (window == 0) return ncclSuccess;
  r = drop(what, RESOURCE, comm, (const void *)(uintptr_t)window, &key);
  return r != ncclSuccess ? r : said(e->assay_deregister(id(comm), key, text), text);
}

API(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t *p)) {
  static const char what[] = "ncclCommQueryProperties";
  struct assay_team t;
  ncclResult_t known = given(what, "place for the properties", p);
  if (known != ncclSuccess) return known;
  ASK(what, e->assay_lsa(id(comm), 0, &t, text));
  if (r != ncclSuccess) return r;
  if (p->magic != MAGIC || p->size < offsetof(ncclCommProperties_t, ginType))
    return refuse(e, comm, ncclInvalidUsage, "%s: the structure was not made with NCCL_COMM_PROPERTIES_INITIALIZER", what);
  ncclCommProperties_t is = {
      .rank = t.rank, .nRanks = t.ranks, .cudaDev = t.device, .nvmlDev = t.nvml, .deviceApiSupport = t.reaches && layout_of(p->version), .nLsaTeams = t.ranks / t.lsa_ranks,
      .commHash = t.hash, .ginMinStride = t.ranks, .devCommRuntimeVersionSize = layout_of(API_VERSION)->bytes};
  size_t from = offsetof(ncclCommProperties_t, rank), until = sizeof is < p->size ? sizeof is : p->size;
  if (p->version < 22905 && until > offsetof(ncclCommProperties_t, ginType)) until = offsetof(ncclCommProperties_t, ginType);
  memcpy((char *)p + from, (char *)&is + from, until - from);
  return ncclSuccess;
}

// Teams. Ranks whose memory kernels reach are one; of others, each is its own.
static struct assay_team team_of(ncclComm_t comm) {
  struct assay_team t = {.ranks = 1, .lsa_ranks = 1};
  ASK("ncclTeamLsa", e->assay_lsa(id(comm), 0, &t, text));
  return r == ncclSuccess ? t : (struct assay_team){.ranks = 1, .lsa_ranks = 1};
}

API(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm)) {
  struct assay_team t = team_of(comm);
  return (ncclTeam_t){t.ranks, t.rank, 1};
}

API(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm)) {
  struct assay_team t = team_of(comm);
  return (ncclTeam_t){t.lsa_ranks, t.lsa_rank, 1};
}

API(ncclTeam_t, ncclTeamRail, (ncclComm_t comm)) {
  struct assay_team t = team_of(comm);
  return (ncclTeam_t){t.ranks / t.lsa_ranks, t.rank / t.lsa_ranks, t.lsa_ranks};
}

// Teams of CFT (2.31), which there is not: each rank is one.
API(ncclTeam_t, ncclTeamCft, (ncclComm_t comm, int mode)) { return (ncclTeam_t){1, 0, 1}; }
API(ncclTeam_t, ncclTeamCftMultimem, (ncclComm_t comm)) { return (ncclTeam_t){1, 0, 1}; }

API(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank)) { return team_of(comm).rank + (rank - team.rank) * team.stride; }
API(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank)) { return team_of(comm).lsa_rank + (rank - team.rank) * team.stride; }

API(ncclResult_t, ncclLsaBarrierCreateRequirement, (ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq)) {
  static const char what[] = "ncclLsaBarrierCreateRequirement";
  ncclResult_t r = given(what, "place for the handle", outHandle);
  if (r == ncclSuccess) r = given(what, "place for the requirement", outReq);
  if (r != ncclSuccess) return r;
  if (nBarriers < 0 || team.nRanks < 1) return fail(ncclInvalidArgument, "%s: %d barriers of %d ranks", what, nBarriers, team.nRanks);
  size_t total = 0;
  if (!barriers(&total, nBarriers, team.nRanks, outHandle)) return fail(ncclInvalidArgument, "%s: %d barriers are too many", what, nBarriers);
  *outReq = (ncclDevResourceRequirements_t){.bufferSize = total, .bufferAlign = sizeof(uint32_t), .outBufferHandle = &outHandle->bufHandle};
  return ncclSuccess;
}

enum { SLOT = 16, CARRIED = 8 }; // a slot has that many bytes, of which half are data

API(int, ncclLLA2ACalcSlots, (int maxElts, int maxEltSize)) { return maxElts * ((maxEltSize + CARRIED - 1) / CARRIED); }

// Of each block there are two sets of slots, and where its epoch is kept.
API(ncclResult_t, ncclLLA2ACreateRequirement, (int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq)) {
  static const char what[] = "ncclLLA2ACreateRequirement";
  ncclResult_t r = given(what, "place for the handle", outHandle);
  if (r == ncclSuccess) r = given(what, "place for the requirement", outReq);
  if (r != ncclSuccess) return r;
  if (nBlocks < 0 || nSlots < 0) return fail(ncclInvalidArgument, "%s: %d blocks of %d slots", what, nBlocks, nSlots);
  *outHandle = (ncclLLA2AHandle_t){0, (uint32_t)nSlots};
  *outReq = (ncclDevResourceRequirements_t){.bufferSize = (size_t)nBlocks * (1 + 2 * (size_t)nSlots) * SLOT, .bufferAlign = SLOT, .outBufferHandle = &outHandle->bufHandle};
  return ncclSuccess;
}
