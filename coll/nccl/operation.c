//go:build cuda && cgo

#include "library.h"

int nccl_do(const struct nccl_place *p, enum nccl_collective c, uintptr_t send, uintptr_t recv, size_t count, int type, size_t size, int op, int root, uintptr_t stream) {
  const void *s = (void *)send;
  void *r = (void *)recv, *at = (void *)stream;
  switch (c) {
    case ALL_REDUCE: return p->l->AllReduce(s, r, count, type, op, p->comm, at);
    case BROADCAST: return p->l->Broadcast(s, r, count, type, root, p->comm, at);
    case REDUCE: return p->l->Reduce(s, r, count, type, op, root, p->comm, at);
    case ALL_GATHER: return p->l->AllGather(s, r, count, type, p->comm, at);
    case REDUCE_SCATTER: return p->l->ReduceScatter(s, r, count, type, op, p->comm, at);
    case ALL_TO_ALL:
      if (p->l->AlltoAll) return p->l->AlltoAll(s, r, count, type, p->comm, at);
      break;
    case GATHER:
      if (p->l->Gather) return p->l->Gather(s, r, count, type, root, p->comm, at);
      break;
    case SCATTER:
      if (p->l->Scatter) return p->l->Scatter(s, r, count, type, root, p->comm, at);
      break;
    case SEND_RECV: break;
  }
  int result = p->l->GroupStart();
  if (result) return result;
  const uintptr_t part = count * size;
  for (int peer = 0; peer < p->ranks; peer++) {
    // Of the rank's buffers the parts for and from the peer; part 0 where there is one.
    const int sends = c == ALL_TO_ALL || (c == GATHER && peer == root) || (c == SCATTER && p->rank == root) || (c == SEND_RECV && peer == (p->rank + 1) % p->ranks);
    const int recvs = c == ALL_TO_ALL || (c == SCATTER && peer == root) || (c == GATHER && p->rank == root) || (c == SEND_RECV && p->rank == (peer + 1) % p->ranks);
    const uintptr_t from = c == ALL_TO_ALL || c == SCATTER ? send + peer * part : send;
    const uintptr_t to = c == ALL_TO_ALL || c == GATHER ? recv + peer * part : recv;
    if (sends && !result) result = p->l->Send((void *)from, count, type, peer, p->comm, at);
    if (recvs && !result) result = p->l->Recv((void *)to, count, type, peer, p->comm, at);
  }
  // The group is closed, whatever happened in it, and the first error counts.
  const int end = p->l->GroupEnd();
  return result ? result : end;
}

enum { bytes_type = 1 }; // ncclUint8

int nccl_send(const struct nccl_place *p, uintptr_t send, size_t bytes, int peer, uintptr_t stream) {
  return p->l->Send((void *)send, bytes, bytes_type, peer, p->comm, (void *)stream);
}

int nccl_recv(const struct nccl_place *p, uintptr_t recv, size_t bytes, int peer, uintptr_t stream) {
  return p->l->Recv((void *)recv, bytes, bytes_type, peer, p->comm, (void *)stream);
}
