//go:build linux

#define _GNU_SOURCE
#include "cm_library.h"
#include "library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct {
#define FIELD(result, name, args) result(*name) args;
  CM_REQUIRED(FIELD)
#undef FIELD
} cm;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[512];

static void load(void) {
  void *library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(reason, sizeof reason, "%s", why ? why : "librdmacm.so.1 cannot be loaded");
    return;
  }
  const char *missing = NULL;
#define NEED(result, name, args)                        \
  *(void **)&cm.name = dlsym(library, "rdma_" #name);   \
  if (!cm.name) missing = "rdma_" #name;
  CM_REQUIRED(NEED)
#undef NEED
  if (missing) snprintf(reason, sizeof reason, "librdmacm.so.1 has no function %s", missing);
}

const char *cm_load(void) {
  pthread_once(&once, load);
  return *reason ? reason : NULL;
}

struct cm_event_channel *cm_open(void) {
  struct cm_event_channel *ch = cm.create_event_channel();
  if (ch) fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK);
  return ch;
}

void cm_close(struct cm_event_channel *ch) { cm.destroy_event_channel(ch); }

int cm_next(struct cm_event_channel *ch, int milliseconds, struct cm_happening *h) {
  struct pollfd p = {.fd = ch->fd, .events = POLLIN};
  int n = poll(&p, 1, milliseconds);
  if (n < 0) return errno == EINTR ? 0 : -errno;
  if (n == 0) return 0;
  struct cm_event *e;
  if (cm.get_cm_event(ch, &e)) return errno == EAGAIN ? 0 : -errno;
  *h = (struct cm_happening){.id = e->id, .listener = e->listen_id, .event = e->event, .status = e->status};
  if (e->id->ps == cm_udp) {
    h->qpn = e->param.ud.qp_num;
    h->qkey = e->param.ud.qkey;
    h->address = e->param.ud.ah_attr;
  } else {
    h->responder = e->param.conn.responder_resources;
    h->initiator = e->param.conn.initiator_depth;
  }
  return cm.ack_cm_event(e) ? -errno : 1;
}

// Results of the library are 0, or -1 with errno set.
static int result(int rc) { return rc ? errno : 0; }

static struct sockaddr *address(const struct cm_name *n, struct sockaddr_storage *s) {
  memset(s, 0, sizeof *s);
  if (n->ipv6) {
    struct sockaddr_in6 *a = (struct sockaddr_in6 *)s;
    a->sin6_family = AF_INET6;
    a->sin6_port = htons(n->port);
    a->sin6_scope_id = n->scope;
    memcpy(&a->sin6_addr, n->ip, 16);
  } else {
    struct sockaddr_in *a = (struct sockaddr_in *)s;
    a->sin_family = AF_INET;
    a->sin_port = htons(n->port);
    memcpy(&a->sin_addr, n->ip, 4);
  }
  return (struct sockaddr *)s;
}

static void name(const struct sockaddr_storage *s, struct cm_name *n) {
  memset(n, 0, sizeof *n);
  if (s->ss_family == AF_INET6) {
    const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)s;
    n->ipv6 = 1;
    n->port = ntohs(a->sin6_port);
    n->scope = a->sin6_scope_id;
    memcpy(n->ip, &a->sin6_addr, 16);
  } else {
    const struct sockaddr_in *a = (const struct sockaddr_in *)s;
    n->port = ntohs(a->sin_port);
    memcpy(n->ip, &a->sin_addr, 4);
  }
}

int cm_new(struct cm_event_channel *ch, int space, struct cm_id **id) { return result(cm.create_id(ch, id, NULL, space)); }
int cm_destroy(struct cm_id *id) { return result(cm.destroy_id(id)); }

int cm_bind(struct cm_id *id, const struct cm_name *at) {
  struct sockaddr_storage s;
  return result(cm.bind_addr(id, address(at, &s)));
}

int cm_listen(struct cm_id *id, int backlog) { return result(cm.listen(id, backlog)); }

int cm_resolve(struct cm_id *id, const struct cm_name *from, const struct cm_name *to, int milliseconds) {
  struct sockaddr_storage f, t;
  return result(cm.resolve_addr(id, from ? address(from, &f) : NULL, address(to, &t), milliseconds));
}

int cm_route_to(struct cm_id *id, int milliseconds) { return result(cm.resolve_route(id, milliseconds)); }
int cm_make_qp(struct cm_id *id, struct vb_pd *pd, struct vb_qp_init_attr *a) { return result(cm.create_qp(id, pd, a)); }
void cm_drop_qp(struct cm_id *id) { cm.destroy_qp(id); }
int cm_connect(struct cm_id *id, struct cm_conn_param *p) { return result(cm.connect(id, p)); }
int cm_accept(struct cm_id *id, struct cm_conn_param *p) { return result(cm.accept(id, p)); }
int cm_disconnect(struct cm_id *id) { return result(cm.disconnect(id)); }
int cm_option(struct cm_id *id, int option, uint8_t value) { return result(cm.set_option(id, 0, option, &value, sizeof value)); }

void cm_names(struct cm_id *id, struct cm_name *local, struct cm_name *remote) {
  name(&id->route.addr.src_storage, local);
  name(&id->route.addr.dst_storage, remote);
}

const char *cm_device(struct cm_id *id) { return verbs.get_device_name(id->verbs->device); }

// The library has opened the device itself.
void cm_unblock(struct cm_id *id) {
  int fd = id->verbs->async_fd;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}
