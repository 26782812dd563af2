// The structures of NCCL's device API, as kernels of a program and its host code know them. They
// differ from release to release; names, layouts and meaning are those of nccl_device.h.
#ifndef ASSAY_DEVICE_H
#define ASSAY_DEVICE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api.h"

enum { RESOURCE_UNIT = 128 }; // of handles of parts of the resource window

typedef struct {
  uint32_t bufHandle;
  int nBarriers;
} ncclLsaBarrierHandle_t;

typedef struct {
  uint32_t bufHandle, nSlots;
} ncclLLA2AHandle_t;

typedef struct {
  uint32_t signal0, unused;
} ncclGinBarrierHandle_t;

typedef struct ncclDevResourceRequirements {
  struct ncclDevResourceRequirements *next;
  size_t bufferSize, bufferAlign;
  uint32_t *outBufferHandle;
  int ginSignalCount, ginCounterCount;
  uint32_t *outGinSignalStart, *outGinCounterStart;
} ncclDevResourceRequirements_t;

typedef struct ncclTeamRequirements {
  struct ncclTeamRequirements *next;
  ncclTeam_t team;
  bool multimem;
  void **outMultimemHandle;
} ncclTeamRequirements_t;

// What a device communicator is to have: all of it in 2.28.
struct requirements {
  ncclDevResourceRequirements_t *resourceRequirementsList;
  ncclTeamRequirements_t *teamRequirementsList;
  bool lsaMultimem;
  int barrierCount, lsaBarrierCount, railGinBarrierCount;
  int lsaLLA2ABlockCount, lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount, ginSignalCount, ginCounterCount;
};

// Since 2.29 it says of which release it is, and size how much of it there is.
typedef struct {
  size_t size;
  unsigned int magic, version;
  struct requirements first;
  int ginConnectionType; // 2.29.5
  bool ginExclusiveContexts;
  int ginQueueDepth;
  int ginTrafficClass, worldGinBarrierCount; // 2.30
  bool ginStrongSignalsRequired, ginVaSignalsRequired; // 2.31
  int ginCustomStride, ginType;
  bool useRuntimeVersion;
  int cftCaps, cftBarrierCount;
} ncclDevCommRequirements_t;

// Who the ranks are: what all device communicators begin with, from 2.30 on behind magic and version.
struct members {
  int rank, nRanks;
  uint32_t nRanks_rcp32;
  int lsaRank, lsaSize;
  uint32_t lsaSize_rcp32;
  uint64_t windowTable, resourceWindow;
};

// A window in a device communicator, until 2.30. coll/cuda writes those that are in device memory.
struct inlined {
  uint64_t winHost, lsaFlatBase;
  int lsaRank, worldRank;
  uint32_t stride4G, mcOffset4K, ginOffset4K;
};

// ncclDevComm of 2.28.7 to 2.28.9, 2.29.2 and 2.29.3.
struct devcomm_22807 {
  struct members members;
  union {
    struct inlined window;
    char bytes[72];
  } resourceWindow_inlined;
  uint64_t lsaMultimem;
  ncclLsaBarrierHandle_t lsaBarrier;
  ncclGinBarrierHandle_t railGinBarrier;
  uint8_t ginContextCount, ginNetDeviceTypes[4];
  uint64_t ginHandles[4];
  uint32_t ginSignalBase;
  int ginSignalCount;
  uint32_t ginCounterBase;
  int ginCounterCount;
  uint64_t ginSignalShadows;
};

// 2.29.5 to 2.29.7: with more behind.
struct devcomm_22905 {
  struct devcomm_22807 first;
  uint32_t ginContextCount, ginContextBase;
  bool ginIsRailed;
  uint64_t abortFlag;
};

// 2.30.
struct devcomm_23000 {
  unsigned int magic, version;
  struct members members;
  union {
    struct inlined window;
    char bytes[64];
  } resourceWindow_inlined;
  ncclGinBarrierHandle_t hybridWorldGinBarrier;
  uint64_t lsaMultimem;
  ncclLsaBarrierHandle_t lsaBarrier;
  ncclGinBarrierHandle_t railGinBarrier;
  uint8_t ginConnectionCount, ginNetDeviceTypes[4];
  uint64_t ginHandles[4];
  int ginSignalCount, ginCounterCount;
  uint64_t ginSignalShadows;
  uint32_t ginContextCount;
  bool ginConnectionsRailed, ginStrongLegacySignals, ginContextsRailed;
  uint64_t abortFlag;
  ncclLsaBarrierHandle_t hybridLsaBarrier;
  ncclGinBarrierHandle_t hybridRailGinBarrier, worldGinBarrier;
};

// 2.31 and 2.32.
struct devcomm_23100 {
  unsigned int magic, version;
  struct members members;
  struct {
    uint64_t lsaFlatBase;
    uint32_t stride4G, mcOffset4K;
  } resourceWindow_inlined;
  ncclGinBarrierHandle_t hybridDenseGinBarrier;
  uint64_t lsaMultimem;
  ncclLsaBarrierHandle_t lsaBarrier;
  ncclGinBarrierHandle_t railGinBarrier;
  uint8_t ginConnectionCount, backendIndex, ginNetDeviceTypes[4];
  uint64_t ginHandles[4];
  int ginSignalCount, ginCounterCount;
  uint64_t ginSignalShadows;
  uint32_t ginContextCount;
  int ginConnectionStride, ginContextStride;
  bool ginStrongLegacySignals;
  uint64_t abortFlag;
  ncclLsaBarrierHandle_t hybridLsaBarrier;
  ncclGinBarrierHandle_t hybridRailGinBarrier, worldGinBarrier;
  uint32_t ginConnectionStride_rcp32;
  int cftRank, cftSize, cftMultimemRank, cftMultimemSize;
  uint32_t cftMultimemSize_rcp32, ucLeId, mcLeId;
  struct {
    uint32_t bufHandle;
    int nBarriers;
  } cftBarrier, cftMultimemBarrier;
};

union devcomm {
  struct devcomm_22807 v22807;
  struct devcomm_22905 v22905;
  struct devcomm_23000 v23000;
  struct devcomm_23100 v23100;
};

// What a communicator can do. size and version say how much of it a program has.
typedef struct {
  size_t size;
  unsigned int magic, version;
  int rank, nRanks, cudaDev, nvmlDev;
  bool deviceApiSupport, multimemSupport;
  uint8_t ginType8; // 2.29.2, 2.29.3
  int ginType;      // 2.29.5
  int nLsaTeams;
  bool hostRmaSupport;
  int railedGinType;
  uint64_t commHash; // 2.31
  int ginMinStride, ginConnectionType;
  bool ginSupport[64];
  size_t devCommRuntimeVersionSize;
  bool cftSupport, cftMulticastSupport, cftCountedSupport; // 2.32
} ncclCommProperties_t;
#endif
