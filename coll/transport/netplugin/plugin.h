// The calls of a plugin, the same for all versions of its table.
#ifndef ASSAY_NETPLUGIN_PLUGIN_H
#define ASSAY_NETPLUGIN_PLUGIN_H
#include "abi.h"

// A library that was loaded. table is of the version.
struct np_library {
  void *handle;
  char *file; // where it was found
  int version, coll_version; // 0: there is no such table
  const void *table, *coll;
};

// np_open loads a library. The result and *error are the caller's to free, by
// free; *error says why there is no result.
struct np_library *np_open(const char *file, char **error);
// np_find looks the newest tables up. It returns 0 when there is none for
// messages.
int np_find(struct np_library *l);
void np_close(struct np_library *l);
const char *np_name(const struct np_library *l);

// A net is a library that was initialized; context is the communicator's, from
// version 11 on.
struct np_net {
  const struct np_library *l;
  void *context;
  struct np_config config;
};

// np_log is the logger that plugins get.
void np_log(int level, unsigned long subsystems, const char *file, int line, const char *format, ...);
// np_log_wanted says up to which of NP_LOG_… lines are wanted: others are
// dropped before they are formatted.
void np_log_wanted(int level);

int np_init(struct np_net *n, uint64_t comm);
int np_finalize(struct np_net *n);
int np_devices(const struct np_net *n, int *count);

// What a device is, in one form. Strings are the plugin's.
struct np_props {
  const char *name;
  int ptr_support, speed, port, max_comms, max_recvs, device_type, parts;
  float latency;
  size_t max_p2p, max_coll;
};
// np_props_of reads what a table of a version says of a device by get.
int np_props_of(int version, int (*get)(int device, void *p), int device, struct np_props *p);
int np_properties(const struct np_net *n, int device, struct np_props *p);

int np_listen(const struct np_net *n, int device, void *handle, void **listener);
int np_connect(struct np_net *n, int device, void *handle, void **comm);
int np_accept(const struct np_net *n, void *listener, void **comm);
int np_register(const struct np_net *n, void *comm, void *data, size_t size, void **region);
int np_deregister(const struct np_net *n, void *comm, void *region);
int np_isend(const struct np_net *n, void *comm, void *data, size_t size, int tag, void *region, void **request);
int np_irecv(const struct np_net *n, void *comm, void *data, size_t size, int tag, void *region, void **request);
int np_test(const struct np_net *n, void *request, int *done, int *size);
int np_close_send(const struct np_net *n, void *comm);
int np_close_recv(const struct np_net *n, void *comm);
int np_close_listen(const struct np_net *n, void *listener);

// A ring is the slots of one end of a connection, and the requests that the
// plugin has for them. Counters only grow; slot i % NP_SLOTS is request i's.
enum { NP_SLOTS = 8 };
struct np_ring {
  const struct np_net *n;
  void *comm, *region;
  uintptr_t base;         // of the slots' memory, which is registered
  size_t stride, size;    // from slot to slot, and of each, in bytes
  int tag;
  uint32_t wanted;        // requests that there are to be: sends that are committed, receives that have a free slot
  uint32_t begun, ended;  // those that the plugin has taken, and those it is done with, in order
  const char *call;       // the one that failed
  size_t length[NP_SLOTS];
  void *request[NP_SLOTS];
};

// np_push and np_pull begin what is wanted and end what is done. They return
// the ncclResult_t of the call that failed, or 0.
int np_push(struct np_ring *r);
int np_pull(struct np_ring *r);
#endif
