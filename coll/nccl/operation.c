//go:build cuda && cgo

#include "library.h"

int nccl_all_reduce(const struct nccl_place *p, uintptr_t send, uintptr_t recv, size_t count, int type, int op, uintptr_t stream) {
  return p->l->AllReduce((void *)send, (void *)recv, count, type, op, p->comm, (void *)stream);
}

int nccl_broadcast(const struct nccl_place *p, uintptr_t send, uintptr_t recv, size_t count, int type, int root, uintptr_t stream) {
  return p->l->Broadcast((void *)send, (void *)recv, count, type, root, p->comm, (void *)stream);
}

int nccl_reduce(const struct nccl_place *p, uintptr_t send, uintptr_t recv, size_t count, int type, int op, int root, uintptr_t stream) {
  return p->l->Reduce((void *)send, (void *)recv, count, type, op, root, p->comm, (void *)stream);
}

int nccl_all_gather(const struct nccl_place *p, uintptr_t send, uintptr_t recv, size_t count, int type, uintptr_t stream) {
  return p->l->AllGather((void *)send, (void *)recv, count, type, p->comm, (void *)stream);
}

int nccl_reduce_scatter(const struct nccl_place *p, uintptr_t send, uintptr_t recv, size_t count, int type, int op, uintptr_t stream) {
  return p->l->ReduceScatter((void *)send, (void *)recv, count, type, op, p->comm, (void *)stream);
}

int nccl_send(const struct nccl_place *p, uintptr_t send, size_t count, int type, int peer, uintptr_t stream) {
  return p->l->Send((void *)send, count, type, peer, p->comm, (void *)stream);
}

int nccl_recv(const struct nccl_place *p, uintptr_t recv, size_t count, int type, int peer, uintptr_t stream) {
  return p->l->Recv((void *)recv, count, type, peer, p->comm, (void *)stream);
}

// ended closes a group, whatever happened in it, and keeps the first error.
static int ended(const struct nccl_place *p, int result) {
  int end = p->l->GroupEnd();
  return result ? result : end;
}

int nccl_send_recv(const struct nccl_place *p, uintptr_t send, int to, uintptr_t recv, int from, size_t count, int type, uintptr_t stream) {
  int r = p->l->GroupStart();
  if (r) return r;
  r = nccl_send(p, send, count, type, to, stream);
  if (!r) r = nccl_recv(p, recv, count, type, from, stream);
  return ended(p, r);
}

int nccl_all_to_all(const struct nccl_place *p, uintptr_t send, uintptr_t recv, size_t count, int type, size_t size, uintptr_t stream) {
  if (p->l->AlltoAll) return p->l->AlltoAll((void *)send, (void *)recv, count, type, p->comm, (void *)stream);
  int r = p->l->GroupStart();
  if (r) return r;
  for (int peer = 0; peer < p->ranks && !r; peer++) {
    r = nccl_send(p, send + peer * count * size, count, type, peer, stream);
    if (!r) r = nccl_recv(p, recv + peer * count * size, count, type, peer, stream);
  }
  return ended(p, r);
}

int nccl_gather(const struct nccl_place *p, uintptr_t send, uintptr_t recv, size_t count, int type, size_t size, int root, uintptr_t stream) {
  if (p->l->Gather) return p->l->Gather((void *)send, (void *)recv, count, type, root, p->comm, (void *)stream);
  int r = p->l->GroupStart();
  if (r) return r;
  r = nccl_send(p, send, count, type, root, stream);
  for (int peer = 0; p->rank == root && peer < p->ranks && !r; peer++)
    r = nccl_recv(p, recv + peer * count * size, count, type, peer, stream);
  return ended(p, r);
}

int nccl_scatter(const struct nccl_place *p, uintptr_t send, uintptr_t recv, size_t count, int type, size_t size, int root, uintptr_t stream) {
  if (p->l->Scatter) return p->l->Scatter((void *)send, (void *)recv, count, type, root, p->comm, (void *)stream);
  int r = p->l->GroupStart();
  if (r) return r;
  for (int peer = 0; p->rank == root && peer < p->ranks && !r; peer++)
    r = nccl_send(p, send + peer * count * size, count, type, peer, stream);
  if (!r) r = nccl_recv(p, recv, count, type, root, stream);
  return ended(p, r);
}
