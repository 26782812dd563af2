// What programs compiled with NCCL's device API get, of each release: "layout" prints where the fields of
// the structures are, "calls" what the calls return, with the engine of fake_engine.c.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../front/device.h"
#include "nccl.h"

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle_t *, ncclDevResourceRequirements_t *);
ncclResult_t ncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle_t *, ncclDevResourceRequirements_t *);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t, size_t, void *, void **);
int ncclLLA2ACalcSlots(int, int);

static int failed;
#define SAY(call) say(#call, call)
static void say(const char *call, ncclResult_t r) {
  if (r == ncclSuccess) printf("%s: 0\n", call);
  else printf("%s: %d: %s\n", call, r, ncclGetLastError(NULL));
}

#define AT(field) printf(TYPE " " #field " %zu\n", offsetof(struct STRUCT, field))
static void layout(void) {
#define TYPE "2.28.7 ncclDevComm"
#define STRUCT devcomm_22807
  AT(members.rank), AT(members.nRanks), AT(members.nRanks_rcp32), AT(members.lsaRank), AT(members.lsaSize), AT(members.lsaSize_rcp32), AT(members.windowTable);
  AT(members.resourceWindow), AT(resourceWindow_inlined), AT(resourceWindow_inlined.window.lsaFlatBase), AT(resourceWindow_inlined.window.stride4G), AT(resourceWindow_inlined.window.mcOffset4K);
  AT(lsaMultimem), AT(lsaBarrier), AT(railGinBarrier), AT(ginContextCount), AT(ginNetDeviceTypes), AT(ginHandles), AT(ginSignalBase), AT(ginSignalCount), AT(ginCounterBase), AT(ginCounterCount), AT(ginSignalShadows);
  printf(TYPE " size %zu\n", sizeof(struct STRUCT));
#undef TYPE
#undef STRUCT
#define TYPE "2.29.5 ncclDevComm"
#define STRUCT devcomm_22905
  AT(first), AT(ginContextCount), AT(ginContextBase), AT(ginIsRailed), AT(abortFlag);
  printf(TYPE " size %zu\n", sizeof(struct STRUCT));
#undef TYPE
#undef STRUCT
#define TYPE "2.30 ncclDevComm"
#define STRUCT devcomm_23000
  AT(magic), AT(version), AT(members.rank), AT(members.nRanks), AT(members.nRanks_rcp32), AT(members.lsaRank), AT(members.lsaSize), AT(members.lsaSize_rcp32), AT(members.windowTable), AT(members.resourceWindow);
  AT(resourceWindow_inlined), AT(resourceWindow_inlined.window.lsaFlatBase), AT(resourceWindow_inlined.window.stride4G), AT(resourceWindow_inlined.window.mcOffset4K), AT(hybridWorldGinBarrier), AT(lsaMultimem);
  AT(lsaBarrier), AT(railGinBarrier), AT(ginConnectionCount), AT(ginNetDeviceTypes), AT(ginHandles), AT(ginSignalCount), AT(ginCounterCount), AT(ginSignalShadows), AT(ginContextCount), AT(ginConnectionsRailed);
  AT(ginStrongLegacySignals), AT(ginContextsRailed), AT(abortFlag), AT(hybridLsaBarrier), AT(hybridRailGinBarrier), AT(worldGinBarrier);
  printf(TYPE " size %zu\n", sizeof(struct STRUCT));
#undef TYPE
#undef STRUCT
#define TYPE "2.31 ncclDevComm"
#define STRUCT devcomm_23100
  AT(magic), AT(version), AT(members.rank), AT(members.nRanks), AT(members.nRanks_rcp32), AT(members.lsaRank), AT(members.lsaSize), AT(members.lsaSize_rcp32), AT(members.windowTable), AT(members.resourceWindow);
  AT(resourceWindow_inlined.lsaFlatBase), AT(resourceWindow_inlined.stride4G), AT(resourceWindow_inlined.mcOffset4K), AT(hybridDenseGinBarrier), AT(lsaMultimem), AT(lsaBarrier), AT(railGinBarrier);
  AT(ginConnectionCount), AT(backendIndex), AT(ginNetDeviceTypes), AT(ginHandles), AT(ginSignalCount), AT(ginCounterCount), AT(ginSignalShadows), AT(ginContextCount), AT(ginConnectionStride), AT(ginContextStride);
  AT(ginStrongLegacySignals), AT(abortFlag), AT(hybridLsaBarrier), AT(hybridRailGinBarrier), AT(worldGinBarrier), AT(ginConnectionStride_rcp32), AT(cftRank), AT(cftSize), AT(cftMultimemRank), AT(cftMultimemSize);
  AT(cftMultimemSize_rcp32), AT(ucLeId), AT(mcLeId), AT(cftBarrier), AT(cftMultimemBarrier);
  printf(TYPE " size %zu\n", sizeof(struct STRUCT));
#undef AT
#undef TYPE
#undef STRUCT
#define AT(field) printf(TYPE " " #field " %zu\n", offsetof(STRUCT, field))
#define TYPE "2.28.7 ncclDevCommRequirements"
#define STRUCT struct requirements
  AT(resourceRequirementsList), AT(teamRequirementsList), AT(lsaMultimem), AT(barrierCount), AT(lsaBarrierCount), AT(railGinBarrierCount), AT(lsaLLA2ABlockCount), AT(lsaLLA2ASlotCount), AT(ginForceEnable);
  AT(ginContextCount), AT(ginSignalCount), AT(ginCounterCount);
  printf(TYPE " size %zu\n", sizeof(STRUCT));
#undef TYPE
#undef STRUCT
#define TYPE "2.31 ncclDevCommRequirements"
#define STRUCT ncclDevCommRequirements_t
  AT(size), AT(magic), AT(version), AT(first.resourceRequirementsList), AT(first.teamRequirementsList), AT(first.lsaMultimem), AT(first.barrierCount), AT(first.lsaBarrierCount), AT(first.railGinBarrierCount);
  AT(first.lsaLLA2ABlockCount), AT(first.lsaLLA2ASlotCount), AT(first.ginForceEnable), AT(first.ginContextCount), AT(first.ginSignalCount), AT(first.ginCounterCount), AT(ginConnectionType), AT(ginExclusiveContexts);
  AT(ginQueueDepth), AT(ginTrafficClass), AT(worldGinBarrierCount), AT(ginStrongSignalsRequired), AT(ginVaSignalsRequired), AT(ginCustomStride), AT(ginType), AT(useRuntimeVersion), AT(cftCaps), AT(cftBarrierCount);
  printf(TYPE " size %zu\n", sizeof(STRUCT));
#undef TYPE
#undef STRUCT
#define TYPE "2.28.7 ncclDevResourceRequirements"
#define STRUCT ncclDevResourceRequirements_t
  AT(next), AT(bufferSize), AT(bufferAlign), AT(outBufferHandle), AT(ginSignalCount), AT(ginCounterCount), AT(outGinSignalStart), AT(outGinCounterStart);
  printf(TYPE " size %zu\n", sizeof(STRUCT));
#undef TYPE
#undef STRUCT
#define TYPE "2.28.7 ncclTeamRequirements"
#define STRUCT ncclTeamRequirements_t
  AT(next), AT(team), AT(multimem), AT(outMultimemHandle);
  printf(TYPE " size %zu\n", sizeof(STRUCT));
#undef TYPE
#undef STRUCT
#define TYPE "2.31 ncclCommProperties"
#define STRUCT ncclCommProperties_t
  AT(size), AT(magic), AT(version), AT(rank), AT(nRanks), AT(cudaDev), AT(nvmlDev), AT(deviceApiSupport), AT(multimemSupport), AT(ginType8), AT(ginType), AT(nLsaTeams), AT(hostRmaSupport), AT(railedGinType);
  AT(commHash), AT(ginMinStride), AT(ginConnectionType), AT(ginSupport), AT(devCommRuntimeVersionSize), AT(cftSupport);
}

// make makes requirements of a release, of size bytes; version 0 is 2.28.
static void *make(unsigned version, size_t size, ncclDevResourceRequirements_t *list) {
  static ncclDevCommRequirements_t v;
  memset(&v, 0, sizeof v);
  v.size = size, v.magic = CONFIG_MAGIC, v.version = version;
  v.first.resourceRequirementsList = list;
  v.first.lsaBarrierCount = 16;
  v.first.ginContextCount = 4;
  v.ginTrafficClass = INT_MIN;
  return version ? (void *)&v : (void *)&v.first;
}

static struct requirements *first(void *r, unsigned version) { return version ? &((ncclDevCommRequirements_t *)r)->first : r; }

static uint64_t word(const char *d, size_t at) {
  uint64_t v;
  memcpy(&v, d + at, sizeof v);
  return v;
}

static const struct {
  unsigned version;
  size_t size;
  size_t members, base, barrier, hybrid;
} releases[] = {
    {0, 56, 0, 48, 120, 0},        {22902, 72, 0, 48, 120, 0},     {22903, 72, 0, 48, 120, 0},     {22905, 88, 0, 48, 120, 0},  {22907, 88, 0, 48, 120, 0},
    {23003, 96, 8, 56, 128, 216},  {23007, 96, 8, 56, 128, 216},   {23100, 120, 8, 48, 80, 176},   {23204, 136, 8, 48, 80, 176},
};
static const unsigned unknown[] = {22800, 22900, 22904, 23300, 30000};

static void create(ncclComm_t c) {
  char out[512];
  uint32_t handle;
  for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
    ncclDevResourceRequirements_t part = {.bufferSize = 1000, .bufferAlign = 512, .outBufferHandle = &handle};
    memset(out, 0xaa, sizeof out);
    void *q = make(releases[i].version, releases[i].size, &part);
    printf("release %u:\n", releases[i].version);
    SAY(ncclDevCommCreate(c, q, out));
    size_t n = sizeof out;
    while (n > 0 && out[n - 1] == (char)0xaa) n--;
    const uint32_t *m = (const uint32_t *)(out + releases[i].members);
    const char *d = out;
    size_t stride = releases[i].version >= 23100 ? 8 : 16;
    printf("%zu bytes; rank %u of %u, %#x; LSA %u of %u, %#x; table %#llx window %#llx base %#llx stride %u multicast %u; %u barriers at %u", n, m[0], m[1], m[2], m[3], m[4], m[5],
           (unsigned long long)word(out, releases[i].members + 24), (unsigned long long)word(out, releases[i].members + 32), (unsigned long long)word(d, releases[i].base),
           (uint32_t)word(d, releases[i].base + stride), (uint32_t)(word(d, releases[i].base + stride) >> 32), (uint32_t)(word(d, releases[i].barrier) >> 32), (uint32_t)word(d, releases[i].barrier));
    if (releases[i].members) printf("; magic %#x version %u", ((unsigned *)out)[0], ((unsigned *)out)[1]);
    if (releases[i].hybrid) printf("; hybrid %#llx", (unsigned long long)word(out, releases[i].hybrid));
    printf("; the part is at %u\n", handle);
    SAY(ncclDevCommDestroy(c, out));
    failed |= ncclDevCommDestroy(c, out) != ncclInvalidArgument; // again
  }
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) SAY(ncclDevCommCreate(c, make(unknown[i], 120, NULL), out));
  SAY(ncclDevCommCreate(c, make(23007, 60, NULL), out)); // too short
  ncclDevCommRequirements_t *v = make(23204, 120, NULL);
  v->useRuntimeVersion = true;
  SAY(ncclDevCommCreate(c, v, out)); // then it is of ours
  failed |= ((unsigned *)out)[1] != API_VERSION || (uint32_t)(word(out, 128) >> 32) != 16;
  SAY(ncclDevCommDestroy(c, out));
  first(v, 1)->lsaBarrierCount = 0;
  SAY(ncclDevCommCreate(c, v, out)); // nothing: no window
  SAY(ncclDevCommDestroy(c, out));
}

static const char *lacking(const char *text) {
  static const char *const words[] = {"GIN", "multimem", "CFT", "do not fit"};
  for (int i = 0; i < 4; i++)
    if (strstr(text, words[i])) return words[i];
  return text;
}

// refusals: what no release gets, and what 2.28 and 2.29.2 do not mean by it.
static void refusals(ncclComm_t c) {
  char out[512];
  for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
    unsigned version = releases[i].version;
    ncclDevResourceRequirements_t part = {.ginSignalCount = 1};
    ncclTeamRequirements_t team = {.multimem = true};
    printf("release %u:\n", version);
#define WITH(set)                                                       \
  do {                                                                  \
    void *q = make(version, releases[i].size, NULL);                    \
    struct requirements *f = first(q, version);                         \
    ncclDevCommRequirements_t *v = q;                                   \
    (void)v, (void)f, set;                                              \
    ncclResult_t r = ncclDevCommCreate(c, q, out);                      \
    printf("%s: %d %s\n", #set, r, r ? lacking(ncclGetLastError(c)) : "made"); \
  } while (0)
    WITH(f->ginForceEnable = true);
    WITH(f->ginSignalCount = 1);
    WITH(f->ginCounterCount = 1);
    WITH(f->barrierCount = 20);
    WITH(f->railGinBarrierCount = 1);
    WITH(f->lsaMultimem = true);
    WITH(f->lsaBarrierCount = -1);
    WITH(f->lsaBarrierCount = 1 << 30);
    WITH(f->resourceRequirementsList = &part);
    WITH(f->teamRequirementsList = &team);
    if (version >= 22905) WITH(v->ginConnectionType = 1);
    if (version >= 23000) WITH(v->worldGinBarrierCount = 1);
    if (version >= 23100) WITH(v->cftCaps = 1);
  }
}

static void query(ncclComm_t c) {
  static const struct {
    unsigned version;
    size_t size;
  } of[] = {{22902, 40}, {22907, 56}, {23007, 56}, {23100, 144}, {23204, 152}, {23300, 160}};
  union {
    ncclCommProperties_t p;
    unsigned char bytes[256];
  } u;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    memset(&u, 0xaa, sizeof u);
    u.p.size = of[i].size, u.p.magic = CONFIG_MAGIC, u.p.version = of[i].version;
    SAY(ncclCommQueryProperties(c, &u.p));
    printf("%u: ", of[i].version);
    for (size_t at = 16; at < of[i].size + 8; at += 4) printf(" %x", *(unsigned *)&u.bytes[at]);
    printf("\n");
  }
  u.p.magic = 0;
  SAY(ncclCommQueryProperties(c, &u.p));
}

static void windows(ncclComm_t c, ncclComm_t apart) {
  void *p = NULL;
  ncclWindow_t far, near, later[2] = {NULL, NULL};
  SAY(ncclCommWindowRegister(c, (void *)8192, 500, &far, 1));
  SAY(ncclCommWindowRegister(c, (void *)8192, 300, &near, 1)); // of ordinary memory
  SAY(ncclGetLsaDevicePointer(far, 499, 3, &p)), printf("%p of %p\n", p, (void *)far);
  SAY(ncclGetPeerDevicePointer(far, 0, 1, &p)), printf("%p\n", p);
  SAY(ncclGetLsaDevicePointer(far, 500, 3, &p));
  SAY(ncclGetLsaDevicePointer(far, 0, 4, &p));
  SAY(ncclGetLsaDevicePointer(far, 0, -1, &p));
  SAY(ncclGetLsaDevicePointer(near, 0, 3, &p));
  SAY(ncclGetPeerDevicePointer(near, 1, 3, &p)), printf("%p\n", p);
  SAY(ncclGetPeerDevicePointer(near, 1, 2, &p)), printf("%p\n", p);
  SAY(ncclGetLsaMultimemDevicePointer(far, 0, &p)), printf("%p\n", p);
  SAY(ncclGetMultimemDevicePointer(far, 0, (void *)16, &p));
  SAY(ncclGetLsaDevicePointer((ncclWindow_t)16, 0, 0, &p));
  SAY(ncclWinGetUserPtr(c, far, &p)), printf("%p\n", p);
  SAY(ncclCommWindowDeregister(c, far));
  SAY(ncclGetLsaDevicePointer(far, 0, 0, &p));
  SAY(ncclGroupStart());
  SAY(ncclCommWindowRegister(c, (void *)8192, 500, &later[0], 1));
  char out[512];
  SAY(ncclDevCommCreate(c, make(23007, 96, NULL), out));
  failed |= later[0] != NULL;
  SAY(ncclGroupEnd());
  printf("%p, and the other's is %#llx\n", (void *)later[0], (unsigned long long)word(out, 40));
  SAY(ncclDevCommDestroy(c, out));
  SAY(ncclGroupStart());
  SAY(ncclCommWindowRegister(c, (void *)8192, 13, &later[1], 1));
  SAY(ncclDevCommCreate(c, make(23007, 96, NULL), out));
  SAY(ncclGroupEnd());
  failed |= later[1] != NULL;
  SAY(ncclDevCommDestroy(c, out)); // it was not made: that is the one of before
  SAY(ncclGroupStart());
  SAY(ncclCommWindowRegister(c, (void *)8192, 500, &later[1], 1));
  SAY(ncclDevCommCreate(apart, make(23007, 96, NULL), out));
  SAY(ncclGroupEnd());
  failed |= later[1] != NULL;
}

static void teams(ncclComm_t c, ncclComm_t apart) {
  ncclComm_t of[] = {c, apart};
  for (int i = 0; i < 2; i++) {
    ncclTeam_t w = ncclTeamWorld(of[i]), l = ncclTeamLsa(of[i]), r = ncclTeamRail(of[i]);
    printf("world %d %d %d, LSA %d %d %d, rail %d %d %d; rank 1 of rail is %d, %d\n", w.nRanks, w.rank, w.stride, l.nRanks, l.rank, l.stride, r.nRanks, r.rank, r.stride, ncclTeamRankToWorld(of[i], r, 1),
           ncclTeamRankToLsa(of[i], l, 3));
  }
  ncclLsaBarrierHandle_t b;
  ncclLLA2AHandle_t a;
  ncclDevResourceRequirements_t q;
  memset(&q, 0xaa, sizeof q);
  SAY(ncclLsaBarrierCreateRequirement(ncclTeamLsa(c), 5, &b, &q));
  printf("%d barriers: %zu bytes by %zu, %s, %d %d\n", b.nBarriers, q.bufferSize, q.bufferAlign, q.outBufferHandle == &b.bufHandle ? "and the handle" : "and no handle", q.ginSignalCount, q.next != NULL);
  SAY(ncclLsaBarrierCreateRequirement(ncclTeamLsa(c), -1, &b, &q));
  SAY(ncclLsaBarrierCreateRequirement(ncclTeamLsa(c), 5, NULL, &q));
  SAY(ncclLLA2ACreateRequirement(3, ncclLLA2ACalcSlots(32, 12), &a, &q));
  printf("%u slots: %zu bytes by %zu, %s\n", a.nSlots, q.bufferSize, q.bufferAlign, q.outBufferHandle == &a.bufHandle ? "and the handle" : "and no handle");
  SAY(ncclLLA2ACreateRequirement(-3, 1, &a, &q));
}

int main(int argc, char **argv) {
  ncclUniqueId at;
  ncclComm_t c = NULL, apart = NULL;
  setvbuf(stdout, NULL, _IONBF, 0);
  if (argc > 1 && !strcmp(argv[1], "layout")) return layout(), 0;
  SAY(ncclGetUniqueId(&at));
  SAY(ncclCommInitRank(&c, 4, at, 2));
  SAY(ncclCommInitRank(&apart, 4, at, 2)); // the second
  create(c);
  refusals(c);
  SAY(ncclDevCommCreate(apart, make(23007, 96, NULL), &at));
  query(c), query(apart);
  windows(c, apart);
  teams(c, apart);
  return failed;
}
