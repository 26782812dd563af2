// What libnccl.so.2, which is C, asks of libassay-coll.so, the engine in Go. Both
// are made together, and assay_abi says so. Every function that returns an int
// returns an ncclResult_t, and writes why into text, of ASSAY_TEXT bytes, unless it
// is ncclSuccess.
#ifndef ASSAY_ENGINE_H
#define ASSAY_ENGINE_H
#include <stddef.h>
#include <stdint.h>

enum { ASSAY_ABI = 5, ASSAY_TEXT = 1024, ASSAY_ID = 128 };

// What an ncclComm_t points to. The address is what the engine knows a communicator by; it never
// gives the same one twice, and nobody reads what is there, since a program may pass any pointer.
struct ncclComm {
  uint64_t magic; // for other libraries, which look for their own
};
#define COMM_MAGIC 0x6d6f632d79617373u

// Kinds of operations.
enum assay_kind {
  ASSAY_ALL_REDUCE,
  ASSAY_BROADCAST,
  ASSAY_REDUCE,
  ASSAY_ALL_GATHER,
  ASSAY_REDUCE_SCATTER,
  ASSAY_ALL_TO_ALL,
  ASSAY_GATHER,
  ASSAY_SCATTER,
  ASSAY_SEND,
  ASSAY_RECV,
};

// An operation on device memory. count is of elements: those of the whole vector or
// of one rank's part, as in NCCL's API.
struct assay_op {
  uintptr_t comm;
  const void *send;
  void *recv;
  uint64_t count;
  void *stream;
  int32_t kind, type, red;
  int32_t root;     // or the peer
  uint64_t factor;  // of a red that was made: the bits of an element, or where they are on the device
  int32_t residence; // which of the two, as ncclScalarResidence_t
};

// How a communicator is made.
enum assay_how { ASSAY_NEW, ASSAY_SPLIT, ASSAY_SHRINK, ASSAY_GROW };

// What a program says of a communicator that it wants: those fields of ncclConfig_t
// that have an effect. INT_MIN and NULL: nothing.
struct assay_config {
  int32_t given, blocking, min_ctas, max_ctas, traffic_class, coll_net, cta_policy, graph_usage, graph_order;
  const char *net, *name;
};

// A communicator that is to be made.
struct assay_new {
  int32_t how;
  int32_t ranks, rank;  // ASSAY_NEW; ranks: ASSAY_GROW
  int32_t color, key;   // ASSAY_SPLIT
  int32_t device;       // ASSAY_NEW: the ordinal
  int32_t abort;        // ASSAY_SHRINK: end what the parent does, first
  const int *without;   // ASSAY_SHRINK: ranks that do not stay
  size_t n_without;
  uintptr_t parent;     // all but ASSAY_NEW
  uint8_t id[ASSAY_ID]; // ASSAY_NEW; ASSAY_GROW where has_id says so
  int32_t has_id;
  struct assay_config config;
  uintptr_t comm; // what will be made
};

// What there is to know of a communicator.
struct assay_info {
  int32_t ranks, rank, device;
};

// What a communicator takes of its device, in bytes.
struct assay_memory {
  uint64_t own, shared; // shared: its part of what it has in common with others
  int32_t suspended;
};

// A communicator that is to be suspended or resumed.
struct assay_pause {
  uintptr_t comm;
  int32_t resume;
};

// Memory that all ranks register, or that each of them gets, zeroed, if at is NULL.
struct assay_window {
  uintptr_t comm;
  uintptr_t key; // the caller's, by which it is closed
  void *at;
  uint64_t size;
  // Afterwards: where kernels of the program find what describes it (ncclWindow_vidmem), or 0; where
  // they find the memory of rank 0, and how far that of the next rank is.
  uint64_t window, first, stride;
};

// Whose memory kernels of the program reach: that of all ranks, which are the LSA team, or only their
// own. Then the text says why.
struct assay_team {
  int32_t ranks, rank, lsa_ranks, lsa_rank, device, nvml, reaches;
  uint64_t table, hash; // table: where they look windows up, if asked for
};

// The engine. assay_make checks a request and enters the communicator, and assay_start makes those
// that were entered, or gives them up. assay_check says what is wrong with an operation that a group
// collects, and finds the factor of its reduction. environ is C's: Go's own is of the time when it was loaded. full and
// value have ASSAY_TEXT bytes.
#define ASSAY_ENGINE(X)                                                                                         \
  X(int, assay_abi, (void))                                                                                     \
  X(int, assay_unique_id, (char **environ, uintptr_t parent, uint8_t *id, char *text))                          \
  X(int, assay_device, (int32_t * device, char *text))                                                          \
  X(int, assay_make, (char **environ, struct assay_new *w, char *text))                                         \
  X(int, assay_start, (uintptr_t * list, size_t n, int give, char *text))                                       \
  X(int, assay_run, (struct assay_op * ops, size_t n, char *text))                                              \
  X(int, assay_estimate, (struct assay_op * ops, size_t n, float *micros, char *text))                          \
  X(int, assay_state, (uintptr_t comm, int32_t *state, char *text))                                             \
  X(int, assay_info, (uintptr_t comm, struct assay_info *info, char *text))                                     \
  X(int, assay_memory, (uintptr_t comm, struct assay_memory *m, char *text))                                     \
  X(int, assay_pause, (struct assay_pause * list, size_t n, char *text))                                        \
  X(int, assay_register, (struct assay_window * list, size_t n, char *text))                                    \
  X(int, assay_deregister, (uintptr_t comm, uintptr_t key, char *text))                                         \
  X(int, assay_lsa, (uintptr_t comm, int use, struct assay_team *team, char *text))                             \
  X(void, assay_warn, (uintptr_t comm, const char *text))                                                       \
  X(int, assay_finalize, (uintptr_t comm, char *text))                                                          \
  X(int, assay_destroy, (uintptr_t comm, char *text))                                                           \
  X(int, assay_abort, (uintptr_t comm, char *text))                                                             \
  X(int, assay_param, (char **environ, const char *name, int32_t number, char *full, char *value, char *text)) \
  X(int, assay_revoke, (uintptr_t comm, char *text))                                                            \
  X(int, assay_scale_new, (uintptr_t comm, const void *scalar, int type, int residence, int32_t *red, char *text)) \
  X(int, assay_check, (struct assay_op * op, char *text))                                                       \
  X(int, assay_scale_drop, (uintptr_t comm, int32_t red, char *text))                                           \
  X(int, assay_mem_alloc, (void **at, size_t n, char *text))                                                    \
  X(int, assay_mem_free, (void *at, char *text))
#endif
