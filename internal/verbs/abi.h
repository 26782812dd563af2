// The part of libibverbs' binary interface that is used here, version 1.1,
// which every release since 2006 has kept: structures that programs and
// providers share. Posting and polling have no function in the library: they
// are calls through the context's table. abi_test.go compares all of this with
// the machine's own header, if it has one.
#ifndef ASSAY_VERBS_ABI_H
#define ASSAY_VERBS_ABI_H
#include <stddef.h>
#include <stdint.h>

struct vb_context;
struct vb_device;
struct vb_mr;
struct vb_cq;
struct vb_qp;
struct vb_srq;
struct vb_ah;
struct vb_wc;
struct vb_send_wr;
struct vb_recv_wr;

union vb_gid {
  uint8_t raw[16];
  struct {
    uint64_t prefix, id;
  } global;
};

struct vb_ops {
  void *before_poll[11];
  int (*poll_cq)(struct vb_cq *, int, struct vb_wc *);
  int (*req_notify_cq)(struct vb_cq *, int solicited);
  void *before_srq[7];
  int (*post_srq_recv)(struct vb_srq *, struct vb_recv_wr *, struct vb_recv_wr **);
  void *before_send[4];
  int (*post_send)(struct vb_qp *, struct vb_send_wr *, struct vb_send_wr **);
  int (*post_recv)(struct vb_qp *, struct vb_recv_wr *, struct vb_recv_wr **);
  void *rest[5];
};

struct vb_context {
  struct vb_device *device;
  struct vb_ops ops;
  int cmd_fd, async_fd, num_comp_vectors;
};

struct vb_pd {
  struct vb_context *context;
  uint32_t handle;
};

struct vb_mr {
  struct vb_context *context;
  struct vb_pd *pd;
  void *addr;
  size_t length;
  uint32_t handle, lkey, rkey;
};

struct vb_comp_channel {
  struct vb_context *context;
  int fd, refcnt;
};

struct vb_cq {
  struct vb_context *context;
  struct vb_comp_channel *channel;
  void *cq_context;
  uint32_t handle;
  int cqe;
};

struct vb_qp {
  struct vb_context *context;
  void *qp_context;
  struct vb_pd *pd;
  struct vb_cq *send_cq, *recv_cq;
  struct vb_srq *srq;
  uint32_t handle, qp_num;
  int state, qp_type;
};

struct vb_wc {
  uint64_t wr_id;
  int status, opcode;
  uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags;
  uint16_t pkey_index, slid;
  uint8_t sl, dlid_path_bits;
};

struct vb_sge {
  uint64_t addr;
  uint32_t length, lkey;
};

struct vb_send_wr {
  uint64_t wr_id;
  struct vb_send_wr *next;
  struct vb_sge *sg_list;
  int num_sge, opcode;
  unsigned send_flags;
  uint32_t imm_data;
  union {
    struct {
      uint64_t remote_addr;
      uint32_t rkey;
    } rdma;
    struct {
      uint64_t remote_addr, compare_add, swap;
      uint32_t rkey;
    } atomic;
    struct {
      struct vb_ah *ah;
      uint32_t remote_qpn, remote_qkey;
    } ud;
  } wr;
  uint32_t remote_srqn;
  uint64_t bind[6]; // memory windows, segmentation
};

struct vb_recv_wr {
  uint64_t wr_id;
  struct vb_recv_wr *next;
  struct vb_sge *sg_list;
  int num_sge;
};

struct vb_global_route {
  union vb_gid dgid;
  uint32_t flow_label;
  uint8_t sgid_index, hop_limit, traffic_class;
};

struct vb_ah_attr {
  struct vb_global_route grh;
  uint16_t dlid;
  uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct vb_qp_cap {
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct vb_qp_init_attr {
  void *qp_context;
  struct vb_cq *send_cq, *recv_cq;
  struct vb_srq *srq;
  struct vb_qp_cap cap;
  int qp_type, sq_sig_all;
};

struct vb_srq_attr {
  uint32_t max_wr, max_sge, srq_limit;
};

struct vb_srq_init_attr {
  void *srq_context;
  struct vb_srq_attr attr;
};

struct vb_qp_attr {
  int qp_state, cur_qp_state, path_mtu, path_mig_state;
  uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
  unsigned qp_access_flags;
  struct vb_qp_cap cap;
  struct vb_ah_attr ah_attr, alt_ah_attr;
  uint16_t pkey_index, alt_pkey_index;
  uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
  uint32_t rate_limit;
};

struct vb_device_attr {
  char fw_ver[64];
  uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
  uint32_t vendor_id, vendor_part_id, hw_ver;
  int max_qp, max_qp_wr;
  unsigned device_cap_flags;
  int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap;
  int max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
  uint16_t max_pkeys;
  uint8_t local_ca_ack_delay, phys_port_cnt;
};

struct vb_port_attr {
  int state, max_mtu, active_mtu, gid_tbl_len;
  uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
  uint16_t pkey_tbl_len, lid, sm_lid;
  uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer, flags;
  uint16_t port_cap_flags2;
};

struct vb_async_event {
  union {
    void *object;
    int port_num;
  } element;
  int event_type;
};
#endif
