// The loops that are timed. They are C because a call from Go to C takes about
// as long as a NIC takes for a small message's doorbell: each call of these runs
// a whole test. Another thread ends one by its stop.
#ifndef ASSAY_PROBE_LOOP_H
#define ASSAY_PROBE_LOOP_H
#include "../../internal/verbs/abi.h"

#include <stdint.h>

// How a loop ended.
enum {
  loop_done = 0,
  loop_stopped = 1,    // it was told to
  loop_stalled = 2,    // nothing completed for too long
  loop_failed = 3,     // a completion that is none: bad
  loop_post_send = 4,  // posting failed: error
  loop_post_recv = 5,
  loop_poll = 6,
  loop_event = 7,
};

// Latencies are counted in buckets: 32 to each power of two of cycles.
enum { histogram_buckets = 64 * 32 };

// Bounds of what counts, in cycles: before sample the test warms up, from cool
// on it no longer counts, at end nothing more is posted. end is 0 when
// a number of messages ends the test.
struct bounds {
  uint64_t sample, cool, end;
};

struct loop_qp {
  struct vb_qp *qp;
  struct vb_send_wr *send;  // a list of as many as are posted at once
  struct vb_send_wr *last;  // its last one, the one to be signalled
  struct vb_recv_wr *recv;  // a list, all alike, that is posted again and again
  uint32_t taken;           // messages that came since it was posted
  uint64_t posted, completed, received;
  // Messages that are short go through the buffer, so that not all of them touch
  // the same lines: offset is the next one's.
  uint64_t from, to;
  uint32_t offset;
};

struct bandwidth {
  struct vb_cq *cq, *recv_cq;
  struct loop_qp *qp;
  int qps;
  int list;          // messages in a list
  uint32_t recv_list; // receives in a list
  int remote;        // requests have a remote address
  uint32_t step;     // bytes from a message to the next in the buffer; 0: all at its beginning
  uint32_t buffer;   // its bytes
  uint32_t depth;    // messages of a QP that may be under way
  uint32_t moderate; // every so many messages are signalled
  uint64_t sends;    // of each QP; 0: it only receives
  uint64_t recvs;    // of all QPs; 0: it only sends
  int events;        // sleeps in between
  int starts_late;   // bounds are counted from the first message that comes
  struct bounds bounds;
  uint64_t patience; // cycles
  uint64_t gap;      // cycles from one burst of messages to the next; 0: no limit of the rate
  int burst;         // messages of a burst
  struct vb_wc *wc;  // room for completions
  int batch;         // how many
  volatile int stop;

  uint64_t due; // cycles: the next burst's
  int left;     // messages of the present burst

  uint64_t *posts, *completions; // stamps of messages, in order of posting and completing; NULL: none
  uint64_t first, end;           // cycles of the first post or receive, and of the last completion
  uint64_t sent, got;            // messages that count
  int error;
  struct vb_wc bad;
};

int run_bandwidth(struct bandwidth *b);

struct latency {
  struct vb_cq *cq, *recv_cq;
  struct loop_qp qp;
  int polls_memory; // write: the peer's message shows in memory
  int receives;     // send
  int first;        // this side begins
  uint64_t sends, recvs;
  volatile uint8_t *in, *out; // write: last bytes of both messages
  uint64_t gap;               // cycles to wait before each post
  int events;
  struct bounds bounds;
  uint64_t patience;
  volatile int stop;

  uint64_t *posts; // stamps; NULL in tests by time
  uint64_t begin, last, count;
  uint32_t *histogram; // of cycles between posts, in tests by time
  int error;
  struct vb_wc bad;
};

int run_latency(struct latency *l);

uint64_t cycles_now(void);
#endif
