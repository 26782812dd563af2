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
#define CFT "there is no compute fabric transport (CFT); NVIDIA's library may have it"
#define GIN "kernels that reach other hosts by themselves (GIN) need NVIDIA's library"

REFUSE(ncclPutSignal, (const void *buff, size_t count, ncclDataType_t type, int peer, ncclWindow_t win, size_t offset, int index, int ctx, unsigned int flags, ncclComm_t c, cudaStream_t stream), buff && win && c, ONE_SIDED)
REFUSE(ncclSignal, (int peer, int index, int ctx, unsigned int flags, ncclComm_t c, cudaStream_t stream), c, ONE_SIDED)
REFUSE(ncclWaitSignal, (int n, ncclWaitSignalDesc_t *list, ncclComm_t c, cudaStream_t stream), list && c, ONE_SIDED)

// This one returns nothing, and changes nothing that a program could rely on.
API(void, ncclResetDebugInit, (void)) {}

// The device API's host side of networks. Arguments are not looked into.
REFUSE(ncclGinOutboxCreateRequirement, (void), 1, GIN)
REFUSE(ncclGinInboxA2ACreateRequirement, (void), 1, GIN)
REFUSE(ncclGinBarrierCreateRequirement, (void), 1, GIN)
REFUSE(ncclCftBarrierCreateRequirement, (void), 1, CFT)
REFUSE(ncclGetMultimemDeviceLeInfo, (void), 1, CFT)
REFUSE(ncclGetCftDeviceLeInfo, (void), 1, CFT)
REFUSE(ncclGetPeerDeviceLeInfo, (void), 1, CFT)
