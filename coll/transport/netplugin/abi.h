// What is used of NCCL's network plugin interface, versions 8 to 12: numbers,
// names of symbols and layouts of tables, restated. All calls but the logger
// return an ncclResult_t, which is an int: 0 is success.
#ifndef ASSAY_NETPLUGIN_ABI_H
#define ASSAY_NETPLUGIN_ABI_H
#include <stddef.h>
#include <stdint.h>

enum {
  NP_OLDEST = 8,
  NP_NEWEST = 12,
  NP_HANDLE_SIZE = 128,     // bytes of what listen gives and connect takes
  NP_MAX_REQUESTS = 32,     // under way at once, of one connection
  NP_PTR_HOST = 1,          // kinds of memory, as bits
  NP_DEVICE_HOST = 0,       // the processor moves the data, not a GPU
  NP_INTERNAL_ERROR = 3,    // an ncclResult_t
  NP_NO_TRAFFIC_CLASS = -1,
};

// Levels of the logger.
enum { NP_LOG_WARN = 2, NP_LOG_INFO = 3, NP_LOG_ABORT = 4, NP_LOG_TRACE = 5 };

typedef void (*np_logger)(int level, unsigned long subsystems, const char *file, int line, const char *format, ...);
// The profiler's callback came with version 10.
typedef int (*np_profiler)(void **event, int type, void *parent, int64_t plugin, void *data);

struct np_config {
  int traffic_class;
};

// What a device is: each version has some more fields in the middle or in the
// end. A virtual device consists of up to 4 devices, from version 12 on 8.
struct np_props_v8 {
  char *name, *pci_path;
  uint64_t guid;
  int ptr_support, reg_is_global;
  int speed, port;
  float latency;
  int max_comms, max_recvs;
  int device_type, device_version;
};

struct np_props_v9 { // and 10
  char *name, *pci_path;
  uint64_t guid;
  int ptr_support, reg_is_global, force_flush;
  int speed, port;
  float latency;
  int max_comms, max_recvs;
  int device_type, device_version;
  int parts, part[4];
  size_t max_p2p, max_coll;
};

struct np_props_v11 {
  struct np_props_v9 base;
  int max_multi_request;
};

struct np_props_v12 {
  char *name, *pci_path;
  uint64_t guid;
  int ptr_support, reg_is_global, force_flush;
  int speed, port;
  float latency;
  int max_comms, max_recvs;
  int device_type, device_version;
  int parts, part[8];
  size_t max_p2p, max_coll;
  int max_multi_request;
  int16_t rail, plane;
};

// The tables. What all versions have alike comes from macros; the pointer
// behind connect's and accept's comm is for GPUs that do the work themselves.
#define NP_MEMORY                                                                                             \
  int (*accept)(void *listener, void **comm, void **device);                                                  \
  int (*reg_mr)(void *comm, void *data, size_t size, int type, void **region);                                \
  int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **region); \
  int (*dereg_mr)(void *comm, void *region);
#define NP_ENDING                                                                                             \
  int (*iflush)(void *comm, int n, void **data, int *sizes, void **regions, void **request);                  \
  int (*test)(void *request, int *done, int *sizes);                                                          \
  int (*close_send)(void *comm);                                                                              \
  int (*close_recv)(void *comm);                                                                              \
  int (*close_listen)(void *listener);                                                                        \
  int (*get_device_mr)(void *comm, void *region, void **device);                                              \
  int (*irecv_consumed)(void *comm, int n, void *request);

struct np_net_v8 {
  const char *name;
  int (*init)(np_logger log);
  int (*devices)(int *n);
  int (*get_properties)(int device, struct np_props_v8 *p);
  int (*listen)(int device, void *handle, void **listener);
  int (*connect)(int device, void *handle, void **comm, void **offload);
  NP_MEMORY
  int (*isend)(void *comm, void *data, int size, int tag, void *region, void **request);
  int (*irecv)(void *comm, int n, void **data, int *sizes, int *tags, void **regions, void **request);
  NP_ENDING
};

struct np_net_v9 {
  const char *name;
  int (*init)(np_logger log);
  int (*devices)(int *n);
  int (*get_properties)(int device, struct np_props_v9 *p);
  int (*listen)(int device, void *handle, void **listener);
  int (*connect)(int device, void *handle, void **comm, void **offload);
  NP_MEMORY
  int (*isend)(void *comm, void *data, size_t size, int tag, void *region, void **request);
  int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **regions, void **request);
  NP_ENDING
  int (*make_vdevice)(int *device, void *parts);
};

struct np_net_v10 {
  const char *name;
  int (*init)(np_logger log, np_profiler profiler);
  int (*devices)(int *n);
  int (*get_properties)(int device, struct np_props_v9 *p);
  int (*listen)(int device, void *handle, void **listener);
  int (*connect)(int device, struct np_config *config, void *handle, void **comm, void **offload);
  NP_MEMORY
  int (*isend)(void *comm, void *data, size_t size, int tag, void *region, void *event, void **request);
  int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **regions, void **events, void **request);
  NP_ENDING
  int (*make_vdevice)(int *device, void *parts);
};

struct np_net_v11 { // and 12, whose properties differ
  const char *name;
  int (*init)(void **context, uint64_t comm, struct np_config *config, np_logger log, np_profiler profiler);
  int (*devices)(int *n);
  int (*get_properties)(int device, void *p);
  int (*listen)(void *context, int device, void *handle, void **listener);
  int (*connect)(void *context, int device, void *handle, void **comm, void **offload);
  NP_MEMORY
  int (*isend)(void *comm, void *data, size_t size, int tag, void *region, void *event, void **request);
  int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **regions, void **events, void **request);
  NP_ENDING
  int (*make_vdevice)(int *device, void *parts);
  int (*finalize)(void *context);
  int (*set_net_attr)(void *context, void *attr);
};

// Networks that reduce. A part is memory with its region; only one is ever
// given. The window is that of all ranks' data, one after the other.
struct np_part_v8 {
  void *region, *address;
  uint32_t size;
};

struct np_part_v9 { // and later
  void *region, *address;
  size_t size;
};

#define NP_GROUP                                                                                              \
  int (*connect)(void **handles, int n, int rank, void *listener, void **comm);                               \
  int (*reduce_support)(int type, int op, int *supported);                                                    \
  int (*reg_mr)(void *comm, void *data, size_t size, int type, void **region);                                \
  int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **region); \
  int (*dereg_mr)(void *comm, void *region);
#define NP_COLLECTIVES(count_t, part_t)                                                                       \
  int (*iallreduce)(void *comm, void *from, void *to, count_t count, int type, int op, void *from_region,     \
      void *to_region, void **request);                                                                       \
  int (*iallgather)(void *comm, void *from, int n, part_t *to, size_t each, size_t window, size_t size,       \
      void *region, void **request);                                                                          \
  int (*ireducescatter)(void *comm, int n, part_t *from, void *to, size_t each, size_t window, size_t size,   \
      int type, int op, void *region, void **request);
#define NP_GROUP_ENDING                                                                                       \
  int (*iflush)(void *comm, void *data, int size, void *region, void **request);                              \
  int (*test)(void *request, int *done, int *size);                                                           \
  int (*close_coll)(void *comm);                                                                              \
  int (*close_listen)(void *listener);

struct np_coll_v8 {
  const char *name;
  int (*init)(np_logger log);
  int (*devices)(int *n);
  int (*get_properties)(int device, void *p);
  int (*listen)(int device, void *handle, void **listener);
  NP_GROUP
  NP_COLLECTIVES(int, struct np_part_v8)
  NP_GROUP_ENDING
};

struct np_coll_v9 { // and 10
  const char *name;
  int (*init)(np_logger log);
  int (*devices)(int *n);
  int (*get_properties)(int device, void *p);
  int (*listen)(int device, void *handle, void **listener);
  NP_GROUP
  NP_COLLECTIVES(size_t, struct np_part_v9)
  NP_GROUP_ENDING
  int (*make_vdevice)(int *device, void *parts);
};

struct np_coll_v11 { // and 12
  const char *name;
  int (*init)(void **context, uint64_t comm, np_logger log);
  int (*devices)(int *n);
  int (*get_properties)(int device, void *p);
  int (*listen)(void *context, int device, void *handle, void **listener);
  NP_GROUP
  NP_COLLECTIVES(size_t, struct np_part_v9)
  NP_GROUP_ENDING
  int (*make_vdevice)(int *device, void *parts);
  int (*finalize)(void *context);
};
#endif
