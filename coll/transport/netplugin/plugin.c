//go:build cgo

#define _GNU_SOURCE // dlinfo
#include "plugin.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V8(l) ((const struct np_net_v8 *)(l)->table)
#define V9(l) ((const struct np_net_v9 *)(l)->table)
#define V10(l) ((const struct np_net_v10 *)(l)->table)
#define V11(l) ((const struct np_net_v11 *)(l)->table)

// ALL is a member that lies in the same place, with the same type, in the
// tables of all versions: pointers to functions have one size.
#define ALL(n, member) (V8((n)->l)->member)

struct np_library *np_open(const char *file, char **error) {
  *error = NULL;
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    *error = strdup(dlerror());
    return NULL;
  }
  struct np_library *l = calloc(1, sizeof *l);
  struct link_map *map;
  l->handle = handle;
  l->file = strdup(dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] ? map->l_name : file);
  return l;
}

// find returns the newest table of a kind, and its version.
static const void *find(void *handle, const char *symbol, int *version) {
  for (int v = NP_NEWEST; v >= NP_OLDEST; v--) {
    char name[64];
    snprintf(name, sizeof name, "%s_v%d", symbol, v);
    const void *table = dlsym(handle, name);
    if (table) {
      *version = v;
      return table;
    }
  }
  *version = 0;
  return NULL;
}

int np_find(struct np_library *l) {
  l->table = find(l->handle, "ncclNetPlugin", &l->version);
  l->coll = find(l->handle, "ncclCollNetPlugin", &l->coll_version);
  return l->version;
}

void np_close(struct np_library *l) {
  dlclose(l->handle);
  free(l->file);
  free(l);
}

const char *np_name(const struct np_library *l) { return V8(l)->name; }

// Of Go.
void assayNetPluginLog(int level, unsigned long subsystems, char *text);

static atomic_int wanted = NP_LOG_WARN;

void np_log_wanted(int level) { atomic_store(&wanted, level); }

__attribute__((format(printf, 5, 6)))
void np_log(int level, unsigned long subsystems, const char *file, int line, const char *format, ...) {
  (void)file, (void)line;
  if (level == NP_LOG_ABORT) level = NP_LOG_WARN;
  if (level > atomic_load(&wanted)) return;
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  assayNetPluginLog(level, subsystems, text);
}

// Nothing is profiled.
static int profiler(void **event, int type, void *parent, int64_t plugin, void *data) {
  (void)type, (void)parent, (void)plugin, (void)data;
  if (event) *event = NULL;
  return 0;
}

int np_init(struct np_net *n, uint64_t comm) {
  n->config.traffic_class = NP_NO_TRAFFIC_CLASS;
  switch (n->l->version) {
  case 8: return V8(n->l)->init(np_log);
  case 9: return V9(n->l)->init(np_log);
  case 10: return V10(n->l)->init(np_log, profiler);
  default: return V11(n->l)->init(&n->context, comm, &n->config, np_log, profiler);
  }
}

int np_finalize(struct np_net *n) {
  if (n->l->version < 11 || !V11(n->l)->finalize) return 0;
  return V11(n->l)->finalize(n->context);
}

int np_devices(const struct np_net *n, int *count) { return ALL(n, devices)(count); }

// COPY takes over what every version has and this package reads.
#define COPY(p, from)                                                                                        \
  *(p) = (struct np_props){.name = (from).name, .ptr_support = (from).ptr_support, .speed = (from).speed,    \
      .port = (from).port, .max_comms = (from).max_comms, .max_recvs = (from).max_recvs,                     \
      .device_type = (from).device_type, .latency = (from).latency}

// Before version 9, messages were at most so many bytes.
enum { v8_max = 1 << 30, v8_max_coll = 512 << 20 };

int np_props_of(int version, int (*get)(int device, void *p), int device, struct np_props *p) {
  if (version == 8) {
    struct np_props_v8 from = {0};
    int result = get(device, &from);
    COPY(p, from);
    p->parts = 1;
    p->max_p2p = v8_max;
    p->max_coll = v8_max_coll;
    return result;
  }
  if (version >= 12) {
    struct np_props_v12 from = {0};
    int result = get(device, &from);
    COPY(p, from);
    p->parts = from.parts;
    p->max_p2p = from.max_p2p;
    p->max_coll = from.max_coll;
    return result;
  }
  struct np_props_v11 from = {0}; // begins as versions 9 and 10 do
  int result = get(device, &from);
  COPY(p, from.base);
  p->parts = from.base.parts;
  p->max_p2p = from.base.max_p2p;
  p->max_coll = from.base.max_coll;
  return result;
}

int np_properties(const struct np_net *n, int device, struct np_props *p) {
  return np_props_of(n->l->version, (int (*)(int, void *))ALL(n, get_properties), device, p);
}

int np_listen(const struct np_net *n, int device, void *handle, void **listener) {
  if (n->l->version < 11) return V8(n->l)->listen(device, handle, listener);
  return V11(n->l)->listen(n->context, device, handle, listener);
}

int np_connect(struct np_net *n, int device, void *handle, void **comm) {
  void *offload = NULL; // nobody but the processor is to do the work
  switch (n->l->version) {
  case 8:
  case 9: return V8(n->l)->connect(device, handle, comm, &offload);
  case 10: return V10(n->l)->connect(device, &n->config, handle, comm, &offload);
  default: return V11(n->l)->connect(n->context, device, handle, comm, &offload);
  }
}

int np_accept(const struct np_net *n, void *listener, void **comm) {
  void *offload = NULL;
  return ALL(n, accept)(listener, comm, &offload);
}

int np_register(const struct np_net *n, void *comm, void *data, size_t size, void **region) {
  return ALL(n, reg_mr)(comm, data, size, NP_PTR_HOST, region);
}

int np_deregister(const struct np_net *n, void *comm, void *region) { return ALL(n, dereg_mr)(comm, region); }

int np_isend(const struct np_net *n, void *comm, void *data, size_t size, int tag, void *region, void **request) {
  *request = NULL;
  switch (n->l->version) {
  case 8: return V8(n->l)->isend(comm, data, (int)size, tag, region, request);
  case 9: return V9(n->l)->isend(comm, data, size, tag, region, request);
  default: return V10(n->l)->isend(comm, data, size, tag, region, NULL, request);
  }
}

int np_irecv(const struct np_net *n, void *comm, void *data, size_t size, int tag, void *region, void **request) {
  int sizes = (int)size;
  void *event = NULL;
  *request = NULL;
  switch (n->l->version) {
  case 8: return V8(n->l)->irecv(comm, 1, &data, &sizes, &tag, &region, request);
  case 9: return V9(n->l)->irecv(comm, 1, &data, &size, &tag, &region, request);
  default: return V10(n->l)->irecv(comm, 1, &data, &size, &tag, &region, &event, request);
  }
}

int np_test(const struct np_net *n, void *request, int *done, int *size) {
  int sizes[8] = {0}; // of a group of receives, had we any
  *done = 0;
  int result = ALL(n, test)(request, done, sizes);
  *size = sizes[0];
  return result;
}

int np_close_send(const struct np_net *n, void *comm) { return ALL(n, close_send)(comm); }

int np_close_recv(const struct np_net *n, void *comm) { return ALL(n, close_recv)(comm); }

int np_close_listen(const struct np_net *n, void *listener) { return ALL(n, close_listen)(listener); }

static int fail(struct np_ring *r, const char *call, int result) {
  r->call = call;
  return result;
}

static void *slot(const struct np_ring *r, uint32_t i) { return (void *)(r->base + i % NP_SLOTS * r->stride); }

// end tests the oldest requests until one is not done, at most so many.
static int end(struct np_ring *r, int most) {
  for (; most > 0 && r->ended != r->begun; most--) {
    int done, size;
    uint32_t i = r->ended % NP_SLOTS;
    int result = np_test(r->n, r->request[i], &done, &size);
    if (result) return fail(r, "test", result);
    if (!done) break;
    r->length[i] = (size_t)size;
    r->ended++;
  }
  return 0;
}

int np_push(struct np_ring *r) {
  for (; r->begun != r->wanted; r->begun++) {
    uint32_t i = r->begun % NP_SLOTS;
    int result = np_isend(r->n, r->comm, slot(r, r->begun), r->length[i], r->tag, r->region, &r->request[i]);
    if (result) return fail(r, "isend", result);
    if (!r->request[i]) break;
  }
  return end(r, NP_SLOTS);
}

int np_pull(struct np_ring *r) {
  for (; r->begun != r->wanted; r->begun++) {
    uint32_t i = r->begun % NP_SLOTS;
    int result = np_irecv(r->n, r->comm, slot(r, r->begun), r->size, r->tag, r->region, &r->request[i]);
    if (result) return fail(r, "irecv", result);
    if (!r->request[i]) break;
  }
  return end(r, 1);
}
