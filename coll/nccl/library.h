// What is used of libnccl.so.2. The functions and their numbers are those of
// nccl.h, which is not needed to build.
#ifndef ASSAY_NCCL_LIBRARY_H
#define ASSAY_NCCL_LIBRARY_H
#include <stddef.h>
#include <stdint.h>

// An ID is passed by value, as ncclUniqueId is.
struct nccl_id {
  char bytes[128];
};

// The functions that every version from 2.18 on has, and those that came
// later. All but the two that give text return an ncclResult_t.
#define NCCL_REQUIRED(X)                                                                  \
  X(GetVersion, (int *))                                                                  \
  X(GetUniqueId, (struct nccl_id *))                                                      \
  X(CommInitRank, (void **, int, struct nccl_id, int))                                    \
  X(CommDestroy, (void *))                                                                \
  X(CommAbort, (void *))                                                                  \
  X(CommGetAsyncError, (void *, int *))                                                   \
  X(GroupStart, (void))                                                                   \
  X(GroupEnd, (void))                                                                     \
  X(AllReduce, (const void *, void *, size_t, int, int, void *, void *))                  \
  X(Broadcast, (const void *, void *, size_t, int, int, void *, void *))                  \
  X(Reduce, (const void *, void *, size_t, int, int, int, void *, void *))                \
  X(AllGather, (const void *, void *, size_t, int, void *, void *))                       \
  X(ReduceScatter, (const void *, void *, size_t, int, int, void *, void *))              \
  X(Send, (const void *, size_t, int, int, void *, void *))                               \
  X(Recv, (void *, size_t, int, int, void *, void *))                                     \
  X(RedOpCreatePreMulSum, (int *, void *, int, int, void *))                              \
  X(RedOpDestroy, (int, void *))

#define NCCL_OPTIONAL(X)                                                                  \
  X(MemAlloc, (void **, size_t))                                                          \
  X(MemFree, (void *))                                                                    \
  X(CommRegister, (void *, void *, size_t, void **))                                      \
  X(CommDeregister, (void *, void *))                                                     \
  X(CommWindowRegister, (void *, void *, size_t, void **, int))                           \
  X(CommWindowDeregister, (void *, void *))                                               \
  X(AlltoAll, (const void *, void *, size_t, int, void *, void *))                        \
  X(Gather, (const void *, void *, size_t, int, int, void *, void *))                     \
  X(Scatter, (const void *, void *, size_t, int, int, void *, void *))

struct nccl {
  const char *(*GetErrorString)(int);
  const char *(*GetLastError)(void *);
#define FIELD(name, args) int (*name) args;
  NCCL_REQUIRED(FIELD)
  NCCL_OPTIONAL(FIELD)
#undef FIELD
};

// nccl_open loads the library. The result and *error are the caller's to free;
// *error says why there is no result.
struct nccl *nccl_open(const char *file, char **error);

// nccl_path is the file that was loaded, or "".
const char *nccl_path(const struct nccl *l);
int nccl_get_version(const struct nccl *l, int *version);
int nccl_unique_id(const struct nccl *l, void *id);
int nccl_init_rank(const struct nccl *l, void **comm, int ranks, const void *id, int rank);
int nccl_destroy(const struct nccl *l, void *comm);
int nccl_abort(const struct nccl *l, void *comm);
int nccl_async_error(const struct nccl *l, void *comm, int *result);
const char *nccl_error_string(const struct nccl *l, int result);
const char *nccl_last_error(const struct nccl *l, void *comm);

int nccl_mem_alloc(const struct nccl *l, uintptr_t *address, size_t n);
int nccl_mem_free(const struct nccl *l, uintptr_t address);
int nccl_register(const struct nccl *l, void *comm, uintptr_t address, size_t n, void **handle);
int nccl_deregister(const struct nccl *l, void *comm, void *handle);
int nccl_window_register(const struct nccl *l, void *comm, uintptr_t address, size_t n, void **window, int flags);
int nccl_window_deregister(const struct nccl *l, void *comm, void *window);

// residence: 0: the scalar is in device memory, 1: it is in the processor's.
int nccl_pre_mul_sum(const struct nccl *l, int *op, uintptr_t scalar, int type, int residence, void *comm);
int nccl_op_destroy(const struct nccl *l, int op, void *comm);

int nccl_group_start(const struct nccl *l);
int nccl_group_end(const struct nccl *l);

// A place is a communicator that operations are for.
struct nccl_place {
  const struct nccl *l;
  void *comm;
  int rank, ranks;
};

enum nccl_collective { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, SEND_RECV };

// size is of an element, in bytes. What a library lacks is a group of Sends and
// Recvs.
int nccl_do(const struct nccl_place *p, enum nccl_collective c, uintptr_t send, uintptr_t recv, size_t count, int type, size_t size, int op, int root, uintptr_t stream);
int nccl_send(const struct nccl_place *p, uintptr_t send, size_t bytes, int peer, uintptr_t stream);
int nccl_recv(const struct nccl_place *p, uintptr_t recv, size_t bytes, int peer, uintptr_t stream);
#endif
