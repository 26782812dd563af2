//go:build linux

#include "loop.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <x86intrin.h>
static inline uint64_t cycles(void) { return __rdtsc(); }
static inline void relax(void) { _mm_pause(); }
#elif defined(__aarch64__)
static inline uint64_t cycles(void) {
  uint64_t v;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
  return v;
}
static inline void relax(void) { __asm__ volatile("yield"); }
#else
#error "no cycle counter is known for this architecture"
#endif

uint64_t cycles_now(void) { return cycles(); }

enum { signaled = 2 };

// post is ibv_post_send: through the table of the QP's context.
static inline int post(struct vb_qp *qp, struct vb_send_wr *wr) {
  struct vb_send_wr *bad;
  return qp->context->ops.post_send(qp, wr, &bad);
}

static inline int post_recv(struct vb_qp *qp, struct vb_recv_wr *wr) {
  struct vb_recv_wr *bad;
  if (qp->srq) return qp->context->ops.post_srq_recv(qp->srq, wr, &bad);
  return qp->context->ops.post_recv(qp, wr, &bad);
}

static inline int poll_cq(struct vb_cq *cq, int n, struct vb_wc *wc) { return cq->context->ops.poll_cq(cq, n, wc); }

// Of the file library.c of package verbs: waits for an event of a CQ.
int verbs_wait(struct vb_cq *cq, int milliseconds);

// doze sleeps until a CQ has something, or some time has passed. A completion
// between the last poll and the request for an event brings none, so the caller
// polls again.
static int doze(struct vb_cq *cq) {
  int n = verbs_wait(cq, 100);
  if (n <= 0) return n;
  return cq->context->ops.req_notify_cq(cq, 0) ? -EIO : 1;
}

static int in_sample(const struct bounds *b, uint64_t now) { return b->end == 0 || (now >= b->sample && now < b->cool); }

// advance lets the next message begin behind the one before.
static void advance(struct bandwidth *b, struct loop_qp *q) {
  q->send->sg_list->addr = q->from + q->offset;
  if (b->remote) q->send->wr.rdma.remote_addr = q->to + q->offset;
  q->offset += b->step;
  if (q->offset + b->step > b->buffer) q->offset = 0;
}

// may_post begins the next burst when it is due. After a delay bursts follow each other until
// the rate is made up for.
static int may_post(struct bandwidth *b) {
  if (!b->gap || b->left > 0) return 1;
  uint64_t now = cycles();
  if (b->due == 0) b->due = now;
  if (now < b->due) return 0;
  b->due += b->gap;
  b->left = b->burst;
  return 1;
}

// fill posts what a QP may have under way.
static int fill(struct bandwidth *b, int i, uint64_t *stamps) {
  struct loop_qp *q = &b->qp[i];
  while (q->posted < b->sends && q->posted - q->completed + b->list <= b->depth && may_post(b)) {
    if (b->list == 1) {
      uint64_t n = q->posted + 1;
      if (n % b->moderate == 0 || n == b->sends) q->send->send_flags |= signaled;
      else q->send->send_flags &= ~signaled;
      if (b->step) advance(b, q);
    }
    uint64_t now = 0;
    if (b->posts || b->first == 0) {
      now = cycles();
      if (b->posts) b->posts[(*stamps)++] = now;
      if (b->first == 0) b->first = now;
    }
    if ((b->error = post(q->qp, q->send))) return loop_post_send;
    q->posted += b->list;
    b->left -= b->list;
    for (int k = 1; b->posts && k < b->list; k++) b->posts[(*stamps)++] = now;
  }
  return loop_done;
}

// reap takes completions of sends.
static int reap(struct bandwidth *b, uint64_t *completed) {
  struct vb_wc *wc = b->wc;
  int n = poll_cq(b->cq, b->batch, wc);
  if (n < 0) return loop_poll;
  uint64_t now = n ? cycles() : 0;
  for (int k = 0; k < n; k++) {
    if (wc[k].status) {
      b->bad = wc[k];
      return loop_failed;
    }
    struct loop_qp *q = &b->qp[wc[k].wr_id];
    uint64_t more = b->moderate;
    if (q->completed + more > q->posted) more = q->posted - q->completed;
    q->completed += more;
    *completed += more;
    if (b->completions) b->completions[*completed - 1] = now;
    if (in_sample(&b->bounds, now)) b->sent += more;
    b->end = now;
  }
  return loop_done;
}

// take takes messages that have come, and posts their receives again.
static int take(struct bandwidth *b) {
  struct vb_wc *wc = b->wc;
  // The first message came after the last look, and the next ones may be there
  // as well: without this a short test would take no time.
  uint64_t before = b->first ? 0 : cycles();
  int n = poll_cq(b->recv_cq, b->batch, wc);
  if (n < 0) return loop_poll;
  if (n == 0) return loop_done;
  uint64_t now = cycles();
  if (b->starts_late) {
    b->starts_late = 0;
    b->bounds.sample += now;
    b->bounds.cool += now;
    b->bounds.end = b->bounds.end ? b->bounds.end + now : 0;
  }
  if (b->first == 0) b->first = before;
  for (int k = 0; k < n; k++) {
    if (wc[k].status) {
      b->bad = wc[k];
      return loop_failed;
    }
    struct loop_qp *q = &b->qp[wc[k].wr_id];
    q->received++;
    if (in_sample(&b->bounds, now)) b->got++;
    if (++q->taken < b->recv_list) continue;
    q->taken = 0;
    if ((b->error = post_recv(q->qp, q->recv))) return loop_post_recv;
  }
  b->end = now;
  return loop_done;
}

int run_bandwidth(struct bandwidth *b) {
  uint64_t stamps = 0, completed = 0, received = 0, idle = 0, since = 0;
  uint64_t all = b->sends == UINT64_MAX ? UINT64_MAX : b->sends * b->qps;
  int posting = b->sends > 0, rc;
  for (;;) {
    if (b->stop) return loop_stopped;
    uint64_t under_way = 0, before = completed + received;
    for (int i = 0; i < b->qps; i++) {
      if (posting && (rc = fill(b, i, &stamps))) return rc;
      under_way += b->qp[i].posted - b->qp[i].completed;
    }
    if (under_way && (rc = reap(b, &completed))) return rc;
    if (b->recvs) {
      if ((rc = take(b))) return rc;
      received = 0;
      for (int i = 0; i < b->qps; i++) received += b->qp[i].received;
    }
    if (b->bounds.end && !b->starts_late) {
      uint64_t now = cycles();
      if (now >= b->bounds.end) {
        // What is under way need not complete: the other side may have ended.
        posting = 0;
        if (under_way == 0 || b->recvs || now >= b->bounds.end + b->patience / 8) return loop_done;
      }
    } else if (completed >= all && (b->recvs == 0 || received >= b->recvs)) {
      return loop_done;
    }
    // Between two bursts nothing is due.
    if (completed + received != before || (b->gap && !under_way && !b->recvs)) {
      idle = 0;
      continue;
    }
    // The clock is not read in each round: that takes as long as a poll.
    if (idle++ % 256 == 0 || b->events) {
      uint64_t now = cycles();
      if (idle == 1) since = now;
      else if (now - since > b->patience) return loop_stalled;
    }
    if (b->events && (rc = doze(under_way ? b->cq : b->recv_cq)) < 0) {
      b->error = -rc;
      return loop_event;
    }
  }
}

// await waits for one completion.
static int await(struct latency *l, struct vb_cq *cq) {
  struct vb_wc wc;
  uint64_t from = 0; // the clock is not read before it is needed
  for (unsigned spins = 1;; spins++) {
    int n = poll_cq(cq, 1, &wc);
    if (n < 0) return loop_poll;
    if (n > 0) {
      if (wc.status == 0) return loop_done;
      l->bad = wc;
      return loop_failed;
    }
    if (l->stop) return loop_stopped;
    if (spins % 64 == 0 || l->events) {
      uint64_t now = cycles();
      if (l->bounds.end && now >= l->bounds.end) return loop_stopped;
      if (from == 0) from = now;
      if (now - from > l->patience) return loop_stalled;
    }
    int rc;
    if (l->events && (rc = doze(cq)) < 0) {
      l->error = -rc;
      return loop_event;
    }
  }
}

// lacking reports whether a wait since a time, which the test's end has ended, has left out much of
// what was to be measured: the peer hangs, and no later exchange would show it.
static int lacking(const struct latency *l, uint64_t since, uint64_t now) {
  uint64_t much = (l->bounds.cool - l->bounds.sample) / 4;
  if (much > l->patience / 4) much = l->patience / 4;
  return since < l->bounds.cool && now - since > much;
}

// see waits until the peer's message shows in memory.
static int see(struct latency *l, uint8_t value) {
  uint64_t from = 0;
  // Without a pause: on some processors one takes as long as a tenth of a message.
  for (unsigned spins = 1; *l->in != value; spins++) {
    if (l->stop) return loop_stopped;
    if (spins % 256) continue;
    uint64_t now = cycles();
    if (from == 0) from = now;
    if (l->bounds.end && now >= l->bounds.end) return lacking(l, from, now) ? loop_stalled : loop_stopped;
    if (now - from > l->patience) return loop_stalled;
  }
  return loop_done;
}

static void count_latency(struct latency *l, uint64_t cycles) {
  int power = 63 - __builtin_clzll(cycles | 1);
  unsigned fraction = power >= 5 ? (cycles >> (power - 5)) & 31 : (cycles << (5 - power)) & 31;
  l->histogram[power * 32 + fraction]++;
}

// send_one posts a message, and waits until it has left.
static int send_one(struct latency *l, uint64_t n) {
  uint64_t now = cycles();
  if (l->gap)
    for (uint64_t from = now; now - from < l->gap; now = cycles()) relax();
  if (l->posts) l->posts[n] = now;
  else if (in_sample(&l->bounds, now)) {
    if (l->begin == 0) l->begin = now;
    else {
      l->count++;
      count_latency(l, now - l->last);
    }
    l->last = now;
  }
  if (l->out) *l->out = (uint8_t)(n + 1);
  if ((l->error = post(l->qp.qp, l->qp.send))) return loop_post_send;
  return await(l, l->cq);
}

static int receive_one(struct latency *l, uint64_t n) {
  if (l->polls_memory) return see(l, (uint8_t)(n + 1));
  int rc = await(l, l->recv_cq);
  if (rc) return rc;
  if ((l->error = post_recv(l->qp.qp, l->qp.recv))) return loop_post_recv;
  return loop_done;
}

int run_latency(struct latency *l) {
  uint64_t sent = 0, received = 0;
  int rc, both = l->polls_memory || l->receives;
  while (sent < l->sends || (both && received < l->recvs)) {
    if (l->stop) return loop_stopped;
    if (l->bounds.end && cycles() >= l->bounds.end) return loop_done;
    if (both && received < l->recvs && (sent > 0 || !l->first)) {
      if ((rc = receive_one(l, received))) return rc == loop_stopped && l->bounds.end && !l->stop ? loop_done : rc;
      received++;
    }
    if (sent < l->sends) {
      if ((rc = send_one(l, sent))) return rc == loop_stopped && l->bounds.end && !l->stop ? loop_done : rc;
      l->qp.posted = ++sent;
    }
  }
  return loop_done;
}
