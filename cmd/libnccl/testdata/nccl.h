// The functions of NCCL's API that the test programs call, as nccl.h declares them.
#include "../front/api.h"

// unset_config is a configuration that says nothing.
static const ncclConfig_t unset_config = {
    .size = sizeof(ncclConfig_t), .magic = CONFIG_MAGIC, .version = 23007, .blocking = UNSET, .cgaClusterSize = UNSET, .minCTAs = UNSET, .maxCTAs = UNSET,
    .splitShare = UNSET, .trafficClass = UNSET, .collnetEnable = UNSET, .CTAPolicy = UNSET, .shrinkShare = UNSET, .nvlsCTAs = UNSET, .nChannelsPerNetPeer = UNSET, .nvlinkCentricSched = UNSET,
    .graphUsageMode = UNSET, .numRmaCtx = UNSET, .maxP2pPeers = UNSET, .graphStreamOrdering = UNSET};

#define DECLARE(name, args) ncclResult_t name args;
const char *ncclGetLastError(ncclComm_t);
const char *ncclGetErrorString(ncclResult_t);
DECLARE(ncclGetVersion, (int *))
DECLARE(ncclGetUniqueId, (ncclUniqueId *))
DECLARE(ncclCommInitRank, (ncclComm_t *, int, ncclUniqueId, int))
DECLARE(ncclCommInitRankConfig, (ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))
DECLARE(ncclCommInitAll, (ncclComm_t *, int, const int *))
DECLARE(ncclCommSplit, (ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *))
DECLARE(ncclCommShrink, (ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int))
DECLARE(ncclCommGetUniqueId, (ncclComm_t, ncclUniqueId *))
DECLARE(ncclCommGrow, (ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig_t *))
DECLARE(ncclCommRevoke, (ncclComm_t, int))
DECLARE(ncclCommSuspend, (ncclComm_t, int))
DECLARE(ncclCommResume, (ncclComm_t))
DECLARE(ncclCommFinalize, (ncclComm_t))
DECLARE(ncclCommDestroy, (ncclComm_t))
DECLARE(ncclCommAbort, (ncclComm_t))
DECLARE(ncclCommGetAsyncError, (ncclComm_t, ncclResult_t *))
DECLARE(ncclCommCount, (ncclComm_t, int *))
DECLARE(ncclCommUserRank, (ncclComm_t, int *))
DECLARE(ncclCommCuDevice, (ncclComm_t, int *))
DECLARE(ncclMemAlloc, (void **, size_t))
DECLARE(ncclMemFree, (void *))
DECLARE(ncclCommMemStats, (ncclComm_t, ncclCommMemStat_t, uint64_t *))
DECLARE(ncclGroupSimulateEnd, (ncclSimInfo_t *))
DECLARE(ncclCommRegister, (const ncclComm_t, void *, size_t, void **))
DECLARE(ncclCommDeregister, (const ncclComm_t, void *))
DECLARE(ncclCommWindowRegister, (ncclComm_t, void *, size_t, ncclWindow_t *, int))
DECLARE(ncclCommWindowDeregister, (ncclComm_t, ncclWindow_t))
DECLARE(ncclWinGetUserPtr, (ncclComm_t, ncclWindow_t, void **))
DECLARE(ncclGroupStart, (void))
DECLARE(ncclGroupEnd, (void))
DECLARE(ncclAllReduce, (const void *, void *, size_t, int, int, ncclComm_t, void *))
DECLARE(ncclBroadcast, (const void *, void *, size_t, int, int, ncclComm_t, void *))
DECLARE(ncclReduce, (const void *, void *, size_t, int, int, int, ncclComm_t, void *))
DECLARE(ncclAllGather, (const void *, void *, size_t, int, ncclComm_t, void *))
DECLARE(ncclReduceScatter, (const void *, void *, size_t, int, int, ncclComm_t, void *))
DECLARE(ncclAlltoAll, (const void *, void *, size_t, int, ncclComm_t, void *))
DECLARE(ncclGather, (const void *, void *, size_t, int, int, ncclComm_t, void *))
DECLARE(ncclScatter, (const void *, void *, size_t, int, int, ncclComm_t, void *))
DECLARE(ncclSend, (const void *, size_t, int, int, ncclComm_t, void *))
DECLARE(ncclRecv, (void *, size_t, int, int, ncclComm_t, void *))
DECLARE(ncclRedOpCreatePreMulSum, (int *, void *, int, int, ncclComm_t))
DECLARE(ncclRedOpDestroy, (int, ncclComm_t))
DECLARE(ncclParamBind, (ncclParamHandle_t *, const char *))
DECLARE(ncclParamGetI8, (ncclParamHandle_t, int8_t *))
DECLARE(ncclParamGetI32, (ncclParamHandle_t, int32_t *))
DECLARE(ncclParamGetU16, (ncclParamHandle_t, uint16_t *))
DECLARE(ncclParamGetU64, (ncclParamHandle_t, uint64_t *))
DECLARE(ncclParamGetStr, (ncclParamHandle_t, const char **))
DECLARE(ncclParamGet, (ncclParamHandle_t, void *, int, int *))
DECLARE(ncclParamGetParameter, (const char *, const char **, int *))
DECLARE(ncclParamGetAllParameterKeys, (const char ***, int *))
DECLARE(ncclCommInitRankScalable, (ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *))
DECLARE(ncclBcast, (void *, size_t, int, int, ncclComm_t, void *))
DECLARE(ncclPutSignal, (const void *, size_t, int, int, ncclWindow_t, size_t, int, int, unsigned, ncclComm_t, void *))
DECLARE(ncclSignal, (int, int, int, unsigned, ncclComm_t, void *))
DECLARE(ncclWaitSignal, (int, ncclWaitSignalDesc_t *, ncclComm_t, void *))
DECLARE(ncclCommQueryProperties, (ncclComm_t, void *))
DECLARE(ncclDevCommCreate, (ncclComm_t, const void *, void *))
DECLARE(ncclDevCommDestroy, (ncclComm_t, const void *))
DECLARE(ncclGetLsaMultimemDevicePointer, (ncclWindow_t, size_t, void **))
DECLARE(ncclGetLsaDevicePointer, (ncclWindow_t, size_t, int, void **))
DECLARE(ncclGetPeerDevicePointer, (ncclWindow_t, size_t, int, void **))
DECLARE(ncclParamGetI16, (ncclParamHandle_t, int16_t *))
DECLARE(ncclParamGetI64, (ncclParamHandle_t, int64_t *))
DECLARE(ncclParamGetU8, (ncclParamHandle_t, uint8_t *))
DECLARE(ncclParamGetU32, (ncclParamHandle_t, uint32_t *))
ncclTeam_t ncclTeamWorld(ncclComm_t), ncclTeamRail(ncclComm_t), ncclTeamLsa(ncclComm_t);
int ncclTeamRankToWorld(ncclComm_t, ncclTeam_t, int), ncclTeamRankToLsa(ncclComm_t, ncclTeam_t, int);
void ncclParamDumpAll(void);
#undef DECLARE

enum { ncclInt32 = 2, ncclUint64 = 5, ncclFloat32 = 7 };
enum { ncclSum = 0, ncclMax = 2 };
enum { ncclScalarDevice, ncclScalarHostImmediate };
