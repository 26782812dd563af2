// librdmacm.so.1, looked up when it is first needed.
#ifndef ASSAY_VERBS_CM_LIBRARY_H
#define ASSAY_VERBS_CM_LIBRARY_H
#include "cm_abi.h"

// Result, name behind "rdma_", arguments. All are of version RDMACM_1.0.
#define CM_REQUIRED(X)                                                                     \
  X(struct cm_event_channel *, create_event_channel, (void))                               \
  X(void, destroy_event_channel, (struct cm_event_channel *))                              \
  X(int, create_id, (struct cm_event_channel *, struct cm_id **, void *, int))             \
  X(int, destroy_id, (struct cm_id *))                                                     \
  X(int, bind_addr, (struct cm_id *, struct sockaddr *))                                   \
  X(int, resolve_addr, (struct cm_id *, struct sockaddr *, struct sockaddr *, int))        \
  X(int, resolve_route, (struct cm_id *, int))                                             \
  X(int, create_qp, (struct cm_id *, struct vb_pd *, struct vb_qp_init_attr *))            \
  X(void, destroy_qp, (struct cm_id *))                                                    \
  X(int, connect, (struct cm_id *, struct cm_conn_param *))                                \
  X(int, listen, (struct cm_id *, int))                                                    \
  X(int, accept, (struct cm_id *, struct cm_conn_param *))                                 \
  X(int, disconnect, (struct cm_id *))                                                     \
  X(int, get_cm_event, (struct cm_event_channel *, struct cm_event **))                    \
  X(int, ack_cm_event, (struct cm_event *))                                                \
  X(int, set_option, (struct cm_id *, int, int, void *, size_t))

// cm_load looks the library up, once. NULL: it is there; else the reason.
const char *cm_load(void);

// An address and port. ip is the first four bytes of IPv4.
struct cm_name {
  uint8_t ip[16];
  uint32_t scope;
  uint16_t port;
  uint8_t ipv6;
};

// What happened, without pointers to what the library frees.
struct cm_happening {
  struct cm_id *id, *listener;
  int event, status;
  uint8_t responder, initiator;  // of connections: what the peer asks for
  uint32_t qpn, qkey;            // of datagrams, as the address
  struct vb_ah_attr address;
};

enum { cm_tcp = 0x0106, cm_udp = 0x0111 };

struct cm_event_channel *cm_open(void);
void cm_close(struct cm_event_channel *ch);
// cm_next waits for an event and acknowledges it: 1 for one, 0 when none came
// in time, or -errno.
int cm_next(struct cm_event_channel *ch, int milliseconds, struct cm_happening *h);
int cm_new(struct cm_event_channel *ch, int space, struct cm_id **id);
int cm_destroy(struct cm_id *id);
int cm_bind(struct cm_id *id, const struct cm_name *at);
int cm_listen(struct cm_id *id, int backlog);
int cm_resolve(struct cm_id *id, const struct cm_name *from, const struct cm_name *to, int milliseconds);
int cm_route_to(struct cm_id *id, int milliseconds);
int cm_make_qp(struct cm_id *id, struct vb_pd *pd, struct vb_qp_init_attr *a);
void cm_drop_qp(struct cm_id *id);
int cm_connect(struct cm_id *id, struct cm_conn_param *p);
int cm_accept(struct cm_id *id, struct cm_conn_param *p);
int cm_disconnect(struct cm_id *id);
int cm_option(struct cm_id *id, int option, uint8_t value);
// cm_names are both ends of a connection.
void cm_names(struct cm_id *id, struct cm_name *local, struct cm_name *remote);
const char *cm_device(struct cm_id *id);
void cm_unblock(struct cm_id *id);
#endif
