//go:build linux

// dlvsym
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>

struct verbs_library verbs;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[512];

// Structures grew with 1.1; the functions of 1.0 are there for old programs.
static void *find(void *library, const char *name) {
  void *f = dlvsym(library, name, "IBVERBS_1.1");
  return f ? f : dlsym(library, name);
}

static void load(void) {
  void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(reason, sizeof reason, "%s", why ? why : "libibverbs.so.1 cannot be loaded");
    return;
  }
  const char *missing = NULL;
#define FIND(result, name, args) *(void **)&verbs.name = find(library, "ibv_" #name);
#define NEED(result, name, args)  \
  FIND(result, name, args)        \
  if (!verbs.name) missing = "ibv_" #name;
  VERBS_REQUIRED(NEED)
  VERBS_OPTIONAL(FIND)
#undef NEED
#undef FIND
  if (missing) snprintf(reason, sizeof reason, "libibverbs.so.1 has no function %s", missing);
}

const char *verbs_load(void) {
  pthread_once(&once, load);
  return *reason ? reason : NULL;
}

struct vb_device **verbs_list(int *n) { return verbs.get_device_list(n); }
void verbs_free_list(struct vb_device **list) { verbs.free_device_list(list); }
struct vb_device *verbs_device_at(struct vb_device **list, int i) { return list[i]; }
const char *verbs_name(struct vb_device *d) { return verbs.get_device_name(d); }

struct vb_context *verbs_open(struct vb_device *d) {
  struct vb_context *c = verbs.open_device(d);
  if (c) fcntl(c->async_fd, F_SETFL, fcntl(c->async_fd, F_GETFL) | O_NONBLOCK);
  return c;
}

int verbs_close(struct vb_context *c) { return verbs.close_device(c); }
int verbs_query_device(struct vb_context *c, struct vb_device_attr *a) { return verbs.query_device(c, a); }
int verbs_query_port(struct vb_context *c, int port, struct vb_port_attr *a) { return verbs.query_port(c, port, a); }
struct vb_pd *verbs_alloc_pd(struct vb_context *c) { return verbs.alloc_pd(c); }
int verbs_dealloc_pd(struct vb_pd *pd) { return verbs.dealloc_pd(pd); }

// The flags from this one on may be left out by a kernel that does not know
// them, which only the newer function arranges.
enum { first_optional_access = 1 << 20 };

struct vb_mr *verbs_reg_mr(struct vb_pd *pd, uintptr_t address, size_t n, int access) {
  if (access >= first_optional_access) {
    if (verbs.reg_mr_iova2) return verbs.reg_mr_iova2(pd, (void *)address, n, address, access);
    access &= first_optional_access - 1;
  }
  return verbs.reg_mr(pd, (void *)address, n, access);
}

struct vb_mr *verbs_reg_dmabuf(struct vb_pd *pd, uint64_t offset, size_t n, uint64_t iova, int fd, int access) {
  if (!verbs.reg_dmabuf_mr) {
    errno = ENOSYS;
    return NULL;
  }
  return verbs.reg_dmabuf_mr(pd, offset, n, iova, fd, access);
}

int verbs_dereg_mr(struct vb_mr *mr) { return verbs.dereg_mr(mr); }

struct vb_comp_channel *verbs_create_channel(struct vb_context *c) {
  struct vb_comp_channel *ch = verbs.create_comp_channel(c);
  if (ch) fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK);
  return ch;
}

int verbs_destroy_channel(struct vb_comp_channel *ch) { return verbs.destroy_comp_channel(ch); }

struct vb_cq *verbs_create_cq(struct vb_context *c, int n, struct vb_comp_channel *ch, int vector) {
  return verbs.create_cq(c, n, NULL, ch, vector);
}

int verbs_destroy_cq(struct vb_cq *cq) { return verbs.destroy_cq(cq); }
int verbs_poll(struct vb_cq *cq, int n, struct vb_wc *wc) { return cq->context->ops.poll_cq(cq, n, wc); }
int verbs_notify(struct vb_cq *cq, int solicited) { return cq->context->ops.req_notify_cq(cq, solicited); }

// readable waits for a file: 1, 0 when the time is over, or -errno.
static int readable(int fd, int milliseconds) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  int n = poll(&p, 1, milliseconds);
  if (n < 0) return errno == EINTR ? 0 : -errno;
  return n;
}

int verbs_wait(struct vb_cq *cq, int milliseconds) {
  int n = readable(cq->channel->fd, milliseconds);
  if (n <= 0) return n;
  struct vb_cq *which;
  void *context;
  if (verbs.get_cq_event(cq->channel, &which, &context)) return errno == EAGAIN ? 0 : -errno;
  verbs.ack_cq_events(which, 1);
  return 1;
}

struct vb_qp *verbs_create_qp(struct vb_pd *pd, struct vb_qp_init_attr *a) { return verbs.create_qp(pd, a); }
int verbs_modify_qp(struct vb_qp *qp, struct vb_qp_attr *a, int mask) { return verbs.modify_qp(qp, a, mask); }
int verbs_query_qp(struct vb_qp *qp, struct vb_qp_attr *a, int mask, struct vb_qp_init_attr *init) {
  return verbs.query_qp(qp, a, mask, init);
}
int verbs_destroy_qp(struct vb_qp *qp) { return verbs.destroy_qp(qp); }

struct vb_srq *verbs_create_srq(struct vb_pd *pd, struct vb_srq_init_attr *a) { return verbs.create_srq(pd, a); }
int verbs_destroy_srq(struct vb_srq *srq) { return verbs.destroy_srq(srq); }

int verbs_post_send(struct vb_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad) {
  return qp->context->ops.post_send(qp, wr, bad);
}

int verbs_post_recv(struct vb_qp *qp, struct vb_recv_wr *wr, struct vb_recv_wr **bad) {
  if (qp->srq) return qp->context->ops.post_srq_recv(qp->srq, wr, bad);
  return qp->context->ops.post_recv(qp, wr, bad);
}

struct vb_ah *verbs_create_ah(struct vb_pd *pd, struct vb_ah_attr *a) { return verbs.create_ah(pd, a); }
struct vb_ah *verbs_create_ah_from_wc(struct vb_pd *pd, struct vb_wc *wc, void *grh, int port) {
  return verbs.create_ah_from_wc(pd, wc, grh, port);
}
int verbs_destroy_ah(struct vb_ah *ah) { return verbs.destroy_ah(ah); }

// Events of a CQ (0), a QP (1 to 7), a port (9, 10), the device (8), a LID,
// P_Key or SM (11 to 13), an SRQ (14, 15), a QP's last WQE (16), a client's
// registration or GID (17, 18).
int verbs_event(struct vb_context *c, int stop, int *type, void **object, int *port) {
  // No time limit: a thread that wakes up now and then is seen in what is measured.
  struct pollfd p[] = {{.fd = c->async_fd, .events = POLLIN}, {.fd = stop, .events = POLLIN}};
  if (poll(p, 2, -1) < 0) return errno == EINTR ? 0 : -errno;
  if (p[1].revents) return -ECANCELED;
  struct vb_async_event e;
  if (verbs.get_async_event(c, &e)) return errno == EAGAIN ? 0 : -errno;
  *type = e.event_type;
  *object = NULL;
  *port = 0;
  if (e.event_type <= 7 || (e.event_type >= 14 && e.event_type <= 16)) *object = e.element.object;
  else if (e.event_type != 8) *port = e.element.port_num;
  verbs.ack_async_event(&e);
  return 1;
}
