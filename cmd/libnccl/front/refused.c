// What the engine does not do yet, or what belongs to NCCL's own kernels. Each says so
// and does nothing; docs/libnccl.md lists them.
#include "front.h"

// given_all: the arguments that must not be NULL are not.
#define REFUSE(name, args, given_all, why)                                          \
  API(ncclResult_t, name, args) {                                                   \
    if (!(given_all)) return fail(ncclInvalidArgument, #name ": an argument is NULL"); \
    return fail(ncclInvalidUsage, #name ": " why);                                  \
  }

#define ONE_SIDED "the engine has no operation in which only one rank takes part; NVIDIA's library has this"
#define DEVICE "kernels that communicate by themselves need NVIDIA's library: assay's windows are of another kind"

REFUSE(ncclPutSignal, (const void *buff, size_t count, ncclDataType_t type, int peer, ncclWindow_t win, size_t offset, int index, int ctx, unsigned int flags, ncclComm_t c, cudaStream_t stream), buff && win && c, ONE_SIDED)
REFUSE(ncclSignal, (int peer, int index, int ctx, unsigned int flags, ncclComm_t c, cudaStream_t stream), c, ONE_SIDED)
REFUSE(ncclWaitSignal, (int n, ncclWaitSignalDesc_t *list, ncclComm_t c, cudaStream_t stream), list && c, ONE_SIDED)

// This one returns nothing, and changes nothing that a program could rely on.
API(void, ncclResetDebugInit, (void)) {}

// The device API's host side. Structures are not looked into.
REFUSE(ncclCommQueryProperties, (ncclComm_t c, void *properties), c && properties, DEVICE)
REFUSE(ncclDevCommCreate, (ncclComm_t c, const void *requirements, void *out), c && requirements && out, DEVICE)
REFUSE(ncclDevCommDestroy, (ncclComm_t c, const void *comm), c && comm, DEVICE)
REFUSE(ncclGetLsaMultimemDevicePointer, (ncclWindow_t w, size_t offset, void **out), w && out, DEVICE)
REFUSE(ncclGetLsaDevicePointer, (ncclWindow_t w, size_t offset, int rank, void **out), w && out, DEVICE)
REFUSE(ncclGetPeerDevicePointer, (ncclWindow_t w, size_t offset, int peer, void **out), w && out, DEVICE)
REFUSE(ncclGinOutboxCreateRequirement, (void), 1, DEVICE)
REFUSE(ncclGinInboxA2ACreateRequirement, (void), 1, DEVICE)
REFUSE(ncclGetMultimemDevicePointer, (void), 1, DEVICE)
REFUSE(ncclGinBarrierCreateRequirement, (void), 1, DEVICE)
REFUSE(ncclLsaBarrierCreateRequirement, (void), 1, DEVICE)
REFUSE(ncclLLA2ACreateRequirement, (void), 1, DEVICE)

API(int, ncclLLA2ACalcSlots, (int elements, int size)) {
  (void)elements, (void)size;
  fail(ncclInvalidUsage, "ncclLLA2ACalcSlots: " DEVICE);
  return 0;
}

// Teams say who reaches whose memory by itself: nobody but the rank itself.
ncclResult_t ncclCommCount(const ncclComm_t, int *);
ncclResult_t ncclCommUserRank(const ncclComm_t, int *);

API(ncclTeam_t, ncclTeamWorld, (ncclComm_t c)) {
  ncclTeam_t t = {1, 0, 1};
  if (ncclCommCount(c, &t.nRanks) == ncclSuccess) ncclCommUserRank(c, &t.rank);
  return t;
}

API(ncclTeam_t, ncclTeamRail, (ncclComm_t c)) { return ncclTeamWorld(c); }

API(ncclTeam_t, ncclTeamLsa, (ncclComm_t c)) {
  (void)c;
  return (ncclTeam_t){1, 0, 1};
}

API(int, ncclTeamRankToWorld, (ncclComm_t c, ncclTeam_t team, int rank)) {
  return ncclTeamWorld(c).rank + (rank - team.rank) * team.stride;
}

API(int, ncclTeamRankToLsa, (ncclComm_t c, ncclTeam_t team, int rank)) {
  (void)c;
  return (rank - team.rank) * team.stride;
}
