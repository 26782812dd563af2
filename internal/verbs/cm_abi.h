// The part of librdmacm's binary interface that is used here, version 1.0,
// which every release since 2006 has kept. abi_test.go compares it with the
// machine's own header, if it has one.
#ifndef ASSAY_VERBS_CM_ABI_H
#define ASSAY_VERBS_CM_ABI_H
#include "abi.h"

#include <sys/socket.h>

struct cm_ib_addr {
  union vb_gid sgid, dgid;
  uint16_t pkey;
};

struct cm_addr {
  struct sockaddr_storage src_storage, dst_storage;
  struct cm_ib_addr addr;
};

struct cm_route {
  struct cm_addr addr;
  void *path_rec;
  int num_paths;
};

struct cm_event_channel {
  int fd;
};

struct cm_id {
  struct vb_context *verbs;
  struct cm_event_channel *channel;
  void *context;
  struct vb_qp *qp;
  struct cm_route route;
  int ps;
  uint8_t port_num;
};

struct cm_conn_param {
  const void *private_data;
  uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
  uint32_t qp_num;
};

struct cm_ud_param {
  const void *private_data;
  uint8_t private_data_len;
  struct vb_ah_attr ah_attr;
  uint32_t qp_num, qkey;
};

struct cm_event {
  struct cm_id *id, *listen_id;
  int event, status;
  union {
    struct cm_conn_param conn;
    struct cm_ud_param ud;
  } param;
};
#endif
