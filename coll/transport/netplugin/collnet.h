// The calls of a plugin whose network reduces, the same for all versions.
#ifndef ASSAY_NETPLUGIN_COLLNET_H
#define ASSAY_NETPLUGIN_COLLNET_H
#include "plugin.h"

// A collnet is a library whose table for reductions was initialized; context
// is the communicator's, from version 11 on.
struct np_coll {
  const struct np_library *l;
  void *context;
};

const char *np_coll_name(const struct np_library *l);
int np_coll_init(struct np_coll *c, uint64_t comm);
int np_coll_finalize(struct np_coll *c);
int np_coll_devices(const struct np_coll *c, int *count);
int np_coll_properties(const struct np_coll *c, int device, struct np_props *p);
int np_coll_reduces(const struct np_coll *c, int type, int op, int *supported);
int np_coll_gathers(const struct np_coll *c);
int np_coll_scatters(const struct np_coll *c);

int np_coll_listen(const struct np_coll *c, int device, void *handle, void **listener);
int np_coll_close_listen(const struct np_coll *c, void *listener);
// np_coll_connect takes the handles of n heads, NP_HANDLE_SIZE bytes each.
int np_coll_connect(const struct np_coll *c, void *handles, int n, int rank, void *listener, void **comm);
int np_coll_close(const struct np_coll *c, void *comm);
int np_coll_register(const struct np_coll *c, void *comm, void *data, size_t size, void **region);
int np_coll_deregister(const struct np_coll *c, void *comm, void *region);

enum { NP_ALLREDUCE, NP_ALLGATHER, NP_REDUCESCATTER };

// A job is one collective among the heads, of memory that is registered. size
// is what a head gives, in bytes.
struct np_job {
  int kind, type, op;
  size_t size, element;
  void *from, *to;
};

// np_coll_begin begins a job among n heads. *request is NULL when it is not to
// be now. *call is what failed, if anything did.
int np_coll_begin(const struct np_coll *c, void *comm, int n, void *region, const struct np_job *job, void **request, const char **call);
int np_coll_test(const struct np_coll *c, void *request, int *done);

// A ring is the slots of a head, each with room for what it gives and what it
// gets, and the jobs of them. Counters only grow; slot i % NP_SLOTS is job i's.
struct np_coll_ring {
  const struct np_coll *c;
  void *comm, *region;
  int n;                         // heads
  uint32_t wanted, begun, ended; // jobs that are committed, that the plugin has taken, that are done, in order
  const char *call;              // the one that failed
  struct np_job jobs[NP_SLOTS];
  void *request[NP_SLOTS];
};

// np_coll_push begins what is wanted and ends what is done. It returns the
// ncclResult_t of the call that failed, or 0.
int np_coll_push(struct np_coll_ring *r);
#endif
