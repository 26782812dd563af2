// libibverbs.so.1, looked up when it is first needed.
#ifndef ASSAY_VERBS_LIBRARY_H
#define ASSAY_VERBS_LIBRARY_H
#include "abi.h"

// Result, name behind "ibv_", arguments. All are of version IBVERBS_1.1, or of
// the one version there is.
#define VERBS_REQUIRED(X)                                                                                     \
  X(struct vb_device **, get_device_list, (int *))                                                            \
  X(void, free_device_list, (struct vb_device **))                                                            \
  X(const char *, get_device_name, (struct vb_device *))                                                      \
  X(struct vb_context *, open_device, (struct vb_device *))                                                   \
  X(int, close_device, (struct vb_context *))                                                                 \
  X(int, query_device, (struct vb_context *, struct vb_device_attr *))                                        \
  X(int, query_port, (struct vb_context *, uint8_t, struct vb_port_attr *))                                   \
  X(struct vb_pd *, alloc_pd, (struct vb_context *))                                                          \
  X(int, dealloc_pd, (struct vb_pd *))                                                                        \
  X(struct vb_mr *, reg_mr, (struct vb_pd *, void *, size_t, int))                                            \
  X(int, dereg_mr, (struct vb_mr *))                                                                          \
  X(struct vb_comp_channel *, create_comp_channel, (struct vb_context *))                                     \
  X(int, destroy_comp_channel, (struct vb_comp_channel *))                                                    \
  X(struct vb_cq *, create_cq, (struct vb_context *, int, void *, struct vb_comp_channel *, int))             \
  X(int, destroy_cq, (struct vb_cq *))                                                                        \
  X(int, get_cq_event, (struct vb_comp_channel *, struct vb_cq **, void **))                                  \
  X(void, ack_cq_events, (struct vb_cq *, unsigned))                                                          \
  X(struct vb_qp *, create_qp, (struct vb_pd *, struct vb_qp_init_attr *))                                    \
  X(int, modify_qp, (struct vb_qp *, struct vb_qp_attr *, int))                                               \
  X(int, query_qp, (struct vb_qp *, struct vb_qp_attr *, int, struct vb_qp_init_attr *))                      \
  X(int, destroy_qp, (struct vb_qp *))                                                                        \
  X(struct vb_srq *, create_srq, (struct vb_pd *, struct vb_srq_init_attr *))                                 \
  X(int, destroy_srq, (struct vb_srq *))                                                                      \
  X(struct vb_ah *, create_ah, (struct vb_pd *, struct vb_ah_attr *))                                         \
  X(struct vb_ah *, create_ah_from_wc, (struct vb_pd *, struct vb_wc *, void *, uint8_t))                     \
  X(int, destroy_ah, (struct vb_ah *))                                                                        \
  X(int, get_async_event, (struct vb_context *, struct vb_async_event *))                                     \
  X(void, ack_async_event, (struct vb_async_event *))

// Of later releases: relaxed ordering (1.8), DMA buffers (1.12).
#define VERBS_OPTIONAL(X)                                                                                     \
  X(struct vb_mr *, reg_mr_iova2, (struct vb_pd *, void *, size_t, uint64_t, unsigned))                       \
  X(struct vb_mr *, reg_dmabuf_mr, (struct vb_pd *, uint64_t, size_t, uint64_t, int, int))

struct verbs_library {
#define FIELD(result, name, args) result(*name) args;
  VERBS_REQUIRED(FIELD)
  VERBS_OPTIONAL(FIELD)
#undef FIELD
};

extern struct verbs_library verbs;

// verbs_load looks the library up, once. NULL: it is there; else the reason.
const char *verbs_load(void);

struct vb_device *verbs_device_at(struct vb_device **list, int i);
const char *verbs_name(struct vb_device *d);
struct vb_device **verbs_list(int *n);
void verbs_free_list(struct vb_device **list);
struct vb_context *verbs_open(struct vb_device *d);
int verbs_close(struct vb_context *c);
int verbs_query_device(struct vb_context *c, struct vb_device_attr *a);
int verbs_query_port(struct vb_context *c, int port, struct vb_port_attr *a);
struct vb_pd *verbs_alloc_pd(struct vb_context *c);
int verbs_dealloc_pd(struct vb_pd *pd);
struct vb_mr *verbs_reg_mr(struct vb_pd *pd, uintptr_t address, size_t n, int access);
struct vb_mr *verbs_reg_dmabuf(struct vb_pd *pd, uint64_t offset, size_t n, uint64_t iova, int fd, int access);
int verbs_dereg_mr(struct vb_mr *mr);
struct vb_comp_channel *verbs_create_channel(struct vb_context *c);
int verbs_destroy_channel(struct vb_comp_channel *ch);
struct vb_cq *verbs_create_cq(struct vb_context *c, int n, struct vb_comp_channel *ch, int vector);
int verbs_destroy_cq(struct vb_cq *cq);
int verbs_poll(struct vb_cq *cq, int n, struct vb_wc *wc);
int verbs_notify(struct vb_cq *cq, int solicited);
// verbs_wait waits for an event of the CQ's channel: 1 for one, 0 when none came
// in time, or -errno.
int verbs_wait(struct vb_cq *cq, int milliseconds);
struct vb_qp *verbs_create_qp(struct vb_pd *pd, struct vb_qp_init_attr *a);
int verbs_modify_qp(struct vb_qp *qp, struct vb_qp_attr *a, int mask);
int verbs_query_qp(struct vb_qp *qp, struct vb_qp_attr *a, int mask, struct vb_qp_init_attr *init);
int verbs_destroy_qp(struct vb_qp *qp);
struct vb_srq *verbs_create_srq(struct vb_pd *pd, struct vb_srq_init_attr *a);
int verbs_destroy_srq(struct vb_srq *srq);
int verbs_post_send(struct vb_qp *qp, struct vb_send_wr *wr, struct vb_send_wr **bad);
// verbs_post_recv posts to the QP's own queue, or to the one it shares.
int verbs_post_recv(struct vb_qp *qp, struct vb_recv_wr *wr, struct vb_recv_wr **bad);
struct vb_ah *verbs_create_ah(struct vb_pd *pd, struct vb_ah_attr *a);
struct vb_ah *verbs_create_ah_from_wc(struct vb_pd *pd, struct vb_wc *wc, void *grh, int port);
int verbs_destroy_ah(struct vb_ah *ah);
// verbs_event waits for an asynchronous event and acknowledges it: 1 for one,
// 0 for none after all, -ECANCELED when the file stop can be read, or -errno.
// *object is its QP, CQ or SRQ, or NULL.
int verbs_event(struct vb_context *c, int stop, int *type, void **object, int *port);
#endif
