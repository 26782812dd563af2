// The types of NCCL's API, as far as the library looks into them. Names and numbers
// are those of nccl.h 2.30, which is not needed to build.
#ifndef ASSAY_API_H
#define ASSAY_API_H
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

// The NCCL whose API this is.
#define API_MAJOR 2
#define API_MINOR 30
#define API_PATCH 7
enum { API_VERSION = API_MAJOR * 10000 + API_MINOR * 100 + API_PATCH };

typedef enum {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress,
  ncclTimeout,
  ncclNumResults
} ncclResult_t;

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct ncclParamHandle *ncclParamHandle_t;
typedef void *cudaStream_t;
typedef int ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t;

typedef enum { ncclStatGpuMemSuspend, ncclStatGpuMemSuspended, ncclStatGpuMemPersist, ncclStatGpuMemTotal } ncclCommMemStat_t;

typedef struct {
  char internal[128];
} ncclUniqueId;

// A program's own may be shorter, of an older release: size says how long.
typedef struct {
  size_t size;
  unsigned int magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs; // 2.14 to 2.17
  const char *netName;                            // 2.17
  int splitShare;                                 // 2.18
  int trafficClass;                               // 2.26
  const char *commName;                           // 2.27
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
  int nChannelsPerNetPeer, nvlinkCentricSched; // 2.28
  int graphUsageMode, numRmaCtx, maxP2pPeers, graphStreamOrdering;
} ncclConfig_t;

enum { ncclAvg = 4 }; // the last reduction that nobody makes
enum { UNSET = INT_MIN };
#define CONFIG_MAGIC 0xcafebeefu

typedef struct {
  size_t size;
  unsigned int magic, version;
  float estimatedTime;
} ncclSimInfo_t;

#define SIM_MAGIC 0x74685283u

typedef struct {
  int nRanks, rank, stride;
} ncclTeam_t;

typedef struct {
  int opCnt, peer, sigIdx, ctx;
} ncclWaitSignalDesc_t;

// API marks a function of the API, which has a second name with a p before it, for
// programs that put their own in front.
#define API(type, name, args)                                              \
  __attribute__((visibility("default"))) type name args;                   \
  __attribute__((visibility("default"), alias(#name))) type p##name args; \
  type name args
#endif
