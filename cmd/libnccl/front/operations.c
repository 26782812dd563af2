// Operations, and groups of them.
#include "front.h"

API(ncclResult_t, ncclGroupStart, (void)) { return group_start(); }
API(ncclResult_t, ncclGroupEnd, (void)) { return group_end(); }

#define OP(kind_, ...) \
  struct assay_op o = {.kind = kind_, .count = count, .type = datatype, .stream = stream, __VA_ARGS__}

API(ncclResult_t, ncclAllReduce, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_ALL_REDUCE, .send = sendbuff, .recv = recvbuff, .red = op);
  return add("ncclAllReduce", &o, comm);
}

API(ncclResult_t, ncclReduce, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_REDUCE, .send = sendbuff, .recv = recvbuff, .red = op, .root = root);
  return add("ncclReduce", &o, comm);
}

API(ncclResult_t, ncclBroadcast, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_BROADCAST, .send = sendbuff, .recv = recvbuff, .root = root);
  return add("ncclBroadcast", &o, comm);
}

API(ncclResult_t, ncclBcast, (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_BROADCAST, .send = buff, .recv = buff, .root = root);
  return add("ncclBcast", &o, comm);
}

API(ncclResult_t, ncclReduceScatter, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_REDUCE_SCATTER, .send = sendbuff, .recv = recvbuff, .red = op);
  return add("ncclReduceScatter", &o, comm);
}

API(ncclResult_t, ncclAllGather, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_ALL_GATHER, .send = sendbuff, .recv = recvbuff);
  return add("ncclAllGather", &o, comm);
}

API(ncclResult_t, ncclAlltoAll, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_ALL_TO_ALL, .send = sendbuff, .recv = recvbuff);
  return add("ncclAlltoAll", &o, comm);
}

API(ncclResult_t, ncclGather, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_GATHER, .send = sendbuff, .recv = recvbuff, .root = root);
  return add("ncclGather", &o, comm);
}

API(ncclResult_t, ncclScatter, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_SCATTER, .send = sendbuff, .recv = recvbuff, .root = root);
  return add("ncclScatter", &o, comm);
}

API(ncclResult_t, ncclSend, (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_SEND, .send = sendbuff, .root = peer);
  return add("ncclSend", &o, comm);
}

API(ncclResult_t, ncclRecv, (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream)) {
  OP(ASSAY_RECV, .recv = recvbuff, .root = peer);
  return add("ncclRecv", &o, comm);
}

// ncclRedOpCreatePreMulSum sets op to a number in any case: programs have been seen
// that do not look at the result, and an operation with that number fails.
API(ncclResult_t, ncclRedOpCreatePreMulSum, (ncclRedOp_t * op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm)) {
  if (!op || !scalar) return fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: an argument is NULL");
  *op = INT_MAX;
  ASK("ncclRedOpCreatePreMulSum", e->assay_scale_new(id(comm), scalar, datatype, residence, op, text));
  return r;
}

API(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  ASK("ncclRedOpDestroy", e->assay_scale_drop(id(comm), op, text));
  return r;
}
