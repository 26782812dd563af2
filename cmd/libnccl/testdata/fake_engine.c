// A libassay-coll.so that says what it is asked for. ranks of -1 fail; 13 ranks fail later;
// ranks of 7 are still being made.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../front/api.h"
#include "../front/engine.h"

enum { first = 100, most = 100 };
static uintptr_t handles = first;
static int32_t ranks_of[most]; // by the handle
static int over[most];

// unknown says that there is no such communicator, or not any more.
static int unknown(uintptr_t c, char *text) {
  if (c >= first && c < handles && !over[c - first]) return 0;
  strcpy(text, "no such communicator");
  return ncclInvalidArgument;
}

int assay_abi(void) { return getenv("FAKE_ABI") ? atoi(getenv("FAKE_ABI")) : ASSAY_ABI; }

int assay_unique_id(char **environ, uintptr_t parent, uint8_t *id, char *text) {
  int late = 0;
  for (char **e = environ; *e; e++) late |= !strcmp(*e, "NCCL_LATE=1");
  printf("  unique_id, NCCL_LATE %s, parent %lu\n", late ? "seen" : "not seen", (unsigned long)parent);
  memset(id, 7, ASSAY_ID);
  return 0;
}

int assay_device(int32_t *device, char *text) {
  *device = 3;
  return 0;
}

int assay_make(char **environ, struct assay_new *w, char *text) {
  if (w->config.given && w->how != ASSAY_NEW)
    printf("  with blocking %d ctas %d class %d name %s\n", w->config.blocking, w->config.max_ctas, w->config.traffic_class, w->config.name ? w->config.name : "-");
  if (w->how == ASSAY_SHRINK)
    printf("  shrink: of %lu without %zu: %d abort %d\n", (unsigned long)w->parent, w->n_without, w->without[0], w->abort);
  else if (w->how == ASSAY_GROW)
    printf("  grow: %lu to %d, %s\n", (unsigned long)w->parent, w->ranks, w->has_id ? "ID" : "no ID");
  else if (w->how == ASSAY_SPLIT)
    printf("  split: of %lu color %d key %d\n", (unsigned long)w->parent, w->color, w->key);
  else
    printf("  new: rank %d of %d device %d id %d ctas %d %d, %d net %s\n", w->rank, w->ranks, w->device, w->id[127],
           w->config.min_ctas == INT_MIN ? -1 : w->config.min_ctas, w->config.max_ctas == INT_MIN ? -1 : w->config.max_ctas,
           w->config.cta_policy == INT_MIN ? -1 : w->config.cta_policy, w->config.net ? w->config.net : "-");
  if (w->ranks == -1) {
    strcpy(text, "there are no -1 ranks");
    return ncclInvalidArgument;
  }
  ranks_of[handles - first] = w->ranks;
  w->comm = handles++;
  return 0;
}

int assay_start(uintptr_t *list, size_t n, int give, char *text) {
  int r = 0;
  printf(give ? "  give up" : "  start");
  for (size_t i = 0; i < n; i++) {
    printf(" %lu", (unsigned long)list[i]);
    if (ranks_of[list[i] - first] == 13) r = ncclRemoteError, strcpy(text, "13 ranks do not come");
    if (ranks_of[list[i] - first] == 7 && r == 0) r = ncclInProgress;
  }
  printf("\n");
  return r;
}

int assay_run(struct assay_op *ops, size_t n, char *text) {
  for (size_t i = 0; i < n; i++) {
    struct assay_op *o = &ops[i];
    if (unknown(o->comm, text)) return ncclInvalidArgument;
    printf("  op %zu of %zu: comm %lu kind %d send %p recv %p count %llu type %d red %d root %d stream %p\n", i + 1, n, (unsigned long)o->comm, o->kind, o->send, o->recv,
           (unsigned long long)o->count, o->type, o->red, o->root, o->stream);
    if (o->count == 13) {
      strcpy(text, "13 is bad luck");
      return ncclRemoteError;
    }
  }
  return 0;
}

int assay_estimate(struct assay_op *ops, size_t n, float *micros, char *text) {
  printf("  estimate of %zu, the first of %llu\n", n, (unsigned long long)ops->count);
  *micros = 2.5;
  if (ops->count != 13) return 0;
  strcpy(text, "13 takes for ever");
  return ncclRemoteError;
}

int assay_memory(uintptr_t comm, struct assay_memory *m, char *text) {
  *m = (struct assay_memory){100, 20, 0};
  return 0;
}

int assay_pause(struct assay_pause *list, size_t n, char *text) {
  for (size_t i = 0; i < n; i++) printf("  pause %zu of %zu: comm %lu resume %d\n", i + 1, n, (unsigned long)list[i].comm, list[i].resume);
  return 0;
}

// Kernels reach windows of 400 bytes and more.
int assay_register(struct assay_window *list, size_t n, char *text) {
  static uint64_t windows = 0x7000;
  for (size_t i = 0; i < n; i++) {
    printf("  register %zu of %zu: comm %lu %llu bytes at %p\n", i + 1, n, (unsigned long)list[i].comm, (unsigned long long)list[i].size, list[i].at);
    if (list[i].size < 400) continue;
    list[i].window = windows += 256;
    list[i].first = 0x5000100000;
    list[i].stride = 3ull << 32;
  }
  if (list->size != 13) return 0;
  strcpy(text, "13 is no size");
  return ncclUnhandledCudaError;
}

// The communicators with an odd number are those of which kernels reach nothing.
int assay_lsa(uintptr_t c, int use, struct assay_team *t, char *text) {
  if (unknown(c, text)) return ncclInvalidArgument;
  *t = (struct assay_team){.ranks = 4, .rank = 2, .lsa_ranks = 4, .lsa_rank = 2, .device = 3, .nvml = 5, .reaches = 1, .table = use ? 0x6000 : 0, .hash = 0x1234567890};
  if (c % 2 == 0) return 0;
  t->lsa_ranks = 1, t->lsa_rank = 0, t->reaches = 0, t->table = 0;
  strcpy(text, "ranks do not reach one another");
  return 0;
}

void assay_warn(uintptr_t c, const char *text) { printf("  warn: comm %lu: %zu letters\n", (unsigned long)c, strlen(text)); }

int assay_deregister(uintptr_t comm, uintptr_t key, char *text) {
  printf("  deregister: comm %lu, %s\n", (unsigned long)comm, key ? "a key" : "no key");
  return 0;
}

int assay_state(uintptr_t comm, int32_t *state, char *text) {
  if (unknown(comm, text)) return ncclInvalidArgument;
  strcpy(text, "rank 3 died");
  *state = ncclRemoteError;
  return 0;
}

int assay_info(uintptr_t comm, struct assay_info *i, char *text) {
  if (unknown(comm, text)) return ncclInvalidArgument;
  *i = (struct assay_info){4, 2, 3};
  return 0;
}

#define SAYS(name, ends)                       \
  int assay_##name(uintptr_t c, char *text) {  \
    if (unknown(c, text)) return ncclInvalidArgument; \
    printf("  " #name " %lu\n", (unsigned long)c); \
    over[c - first] = ends;                    \
    return 0;                                  \
  }
SAYS(finalize, 0)
SAYS(destroy, 1)
SAYS(abort, 1)
SAYS(revoke, 0)

int assay_scale_new(uintptr_t c, const void *scalar, int type, int residence, int32_t *red, char *text) {
  printf("  scale %g type %d residence %d\n", *(const float *)scalar, type, residence);
  if (residence == 0) {
    strcpy(text, "not from the device");
    return ncclInvalidUsage;
  }
  *red = 17;
  return 0;
}

int assay_check(struct assay_op *o, char *text) {
  if (unknown(o->comm, text)) return ncclInvalidArgument;
  if (o->red > ncclAvg) printf("  find %d\n", o->red);
  return 0;
}

int assay_scale_drop(uintptr_t c, int32_t red, char *text) {
  printf("  drop %d\n", red);
  return 0;
}

int assay_mem_alloc(void **at, size_t n, char *text) {
  *at = malloc(n);
  return 0;
}

int assay_mem_free(void *at, char *text) {
  free(at);
  return 0;
}

int assay_param(char **environ, const char *name, int32_t number, char *full, char *value, char *text) {
  static const char *const all[][2] = {{"NCCL_A", "70000"}, {"NCCL_B", "auto"}, {"NCCL_C", "-1"}};
  for (int i = 0; i < 3; i++) {
    if (name ? strcmp(name, all[i][0]) : i != number) continue;
    strcpy(full, all[i][0]);
    strcpy(value, all[i][1]);
    return 0;
  }
  strcpy(text, "no such variable");
  return ncclInvalidArgument;
}
