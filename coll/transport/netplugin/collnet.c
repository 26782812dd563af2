//go:build cgo

#include "collnet.h"

#define V8(l) ((const struct np_coll_v8 *)(l)->coll)
#define V9(l) ((const struct np_coll_v9 *)(l)->coll)
#define V11(l) ((const struct np_coll_v11 *)(l)->coll)

// ALL is a member that lies in the same place, with the same type, in the
// tables of all versions.
#define ALL(c, member) (V8((c)->l)->member)

const char *np_coll_name(const struct np_library *l) { return V8(l)->name; }

int np_coll_init(struct np_coll *c, uint64_t comm) {
  if (c->l->coll_version < 11) return V8(c->l)->init(np_log);
  return V11(c->l)->init(&c->context, comm, np_log);
}

int np_coll_finalize(struct np_coll *c) {
  if (c->l->coll_version < 11 || !V11(c->l)->finalize) return 0;
  return V11(c->l)->finalize(c->context);
}

int np_coll_devices(const struct np_coll *c, int *count) { return ALL(c, devices)(count); }

int np_coll_properties(const struct np_coll *c, int device, struct np_props *p) {
  return np_props_of(c->l->coll_version, ALL(c, get_properties), device, p);
}

int np_coll_reduces(const struct np_coll *c, int type, int op, int *supported) {
  return ALL(c, reduce_support)(type, op, supported);
}

int np_coll_gathers(const struct np_coll *c) { return ALL(c, iallgather) != NULL; }

int np_coll_scatters(const struct np_coll *c) { return ALL(c, ireducescatter) != NULL; }

int np_coll_listen(const struct np_coll *c, int device, void *handle, void **listener) {
  if (c->l->coll_version < 11) return V8(c->l)->listen(device, handle, listener);
  return V11(c->l)->listen(c->context, device, handle, listener);
}

int np_coll_close_listen(const struct np_coll *c, void *listener) { return ALL(c, close_listen)(listener); }

int np_coll_connect(const struct np_coll *c, void *handles, int n, int rank, void *listener, void **comm) {
  void *each[n];
  for (int i = 0; i < n; i++) each[i] = (char *)handles + (size_t)i * NP_HANDLE_SIZE;
  return ALL(c, connect)(each, n, rank, listener, comm);
}

int np_coll_close(const struct np_coll *c, void *comm) { return ALL(c, close_coll)(comm); }

int np_coll_register(const struct np_coll *c, void *comm, void *data, size_t size, void **region) {
  return ALL(c, reg_mr)(comm, data, size, NP_PTR_HOST, region);
}

int np_coll_deregister(const struct np_coll *c, void *comm, void *region) { return ALL(c, dereg_mr)(comm, region); }

static int allreduce(const struct np_coll *c, void *comm, void *region, const struct np_job *j, void **request) {
  size_t count = j->size / j->element;
  if (c->l->coll_version == 8)
    return V8(c->l)->iallreduce(comm, j->from, j->to, (int)count, j->type, j->op, region, region, request);
  return V9(c->l)->iallreduce(comm, j->from, j->to, count, j->type, j->op, region, region, request);
}

// Every job is all of the ranks' data: the window is the whole.
static int allgather(const struct np_coll *c, void *comm, int n, void *region, const struct np_job *j, void **request) {
  size_t all = j->size * (size_t)n;
  if (c->l->coll_version == 8) {
    struct np_part_v8 to = {region, j->to, (uint32_t)all};
    return V8(c->l)->iallgather(comm, j->from, 1, &to, j->size, 0, all, region, request);
  }
  struct np_part_v9 to = {region, j->to, all};
  return V9(c->l)->iallgather(comm, j->from, 1, &to, j->size, 0, all, region, request);
}

static int reducescatter(const struct np_coll *c, void *comm, int n, void *region, const struct np_job *j, void **request) {
  size_t each = j->size / (size_t)n;
  if (c->l->coll_version == 8) {
    struct np_part_v8 from = {region, j->from, (uint32_t)j->size};
    return V8(c->l)->ireducescatter(comm, 1, &from, j->to, each, 0, j->size, j->type, j->op, region, request);
  }
  struct np_part_v9 from = {region, j->from, j->size};
  return V9(c->l)->ireducescatter(comm, 1, &from, j->to, each, 0, j->size, j->type, j->op, region, request);
}

int np_coll_begin(const struct np_coll *c, void *comm, int n, void *region, const struct np_job *job, void **request, const char **call) {
  *request = NULL;
  switch (job->kind) {
  case NP_ALLREDUCE: *call = "iallreduce"; return allreduce(c, comm, region, job, request);
  case NP_ALLGATHER: *call = "iallgather"; return allgather(c, comm, n, region, job, request);
  default: *call = "ireducescatter"; return reducescatter(c, comm, n, region, job, request);
  }
}

int np_coll_test(const struct np_coll *c, void *request, int *done) {
  int size = 0; // some plugins write it, asked or not
  *done = 0;
  return ALL(c, test)(request, done, &size);
}

int np_coll_push(struct np_coll_ring *r) {
  for (; r->begun != r->wanted; r->begun++) {
    uint32_t i = r->begun % NP_SLOTS;
    int result = np_coll_begin(r->c, r->comm, r->n, r->region, &r->jobs[i], &r->request[i], &r->call);
    if (result) return result;
    if (!r->request[i]) break;
  }
  for (; r->ended != r->begun; r->ended++) {
    int done;
    int result = np_coll_test(r->c, r->request[r->ended % NP_SLOTS], &done);
    if (result) {
      r->call = "test";
      return result;
    }
    if (!done) break;
  }
  return 0;
}
