// Broadcasts and Reduces over chunks, from rank to rank.
#ifndef ASSAY_CHAIN_CUH
#define ASSAY_CHAIN_CUH
#include "rows.cuh"

// chain_chunks passes a message from rank to rank, each piece of it as soon as it
// is there, so that a link has one sender: a Broadcast from the root on, or a
// Reduce that ends there, to which every rank adds what it has.
//
// In turn, the first rank's blocks take on pieces, and a channel ends with a message that is none.
template <bool REDUCE, int T, int OP> __device__ __forceinline__ void chain_chunks(const Comm &c, const Args &a) {
  const Team t = whole_block();
  SHARED(Channel, s);
  SHARED(TwoWords, taken);
  const uint32_t ch = blockIdx.x;
  const Line line(ch);
  begin(c, s, line.state, t);
  Waiter waiting(c, line.state, s.left);
  const int prev = next_peer(c, c.ranks - 1), next = next_peer(c, 1);
  const bool from = c.rank != (REDUCE ? (a.root + 1) % c.ranks : a.root);  // the first one of the chain
  const bool to = (REDUCE ? c.rank : next) != a.root;                      // the last one
  const bool keep = REDUCE ? !to : from || a.in[c.rank] != a.out[c.rank];
  const uint64_t total = a.send[c.rank];
  const int me = serving_lane();
  const bool turns = in_turn(c, a, total, 2 * AHEAD);
  const uint32_t ran = run_steps(t, taken, !turns, waiting,
            [&](uint32_t k) {
              uint32_t piece = turns ? NONE : own_piece(a, ch, total, k);
              if (!turns && piece == NONE) return NONE;
              if (me == 0 && from) {
                const uint32_t number = s.received[prev] + 1 + k;
                await_step(c, a, line, prev, number, k, waiting);
                if (turns) piece = ld_volatile(&label_of(c, c.rank, line.ch, prev, number)->piece);
              } else if (me == 0 && turns) {
                piece = claim(c, a, pieces_in(a, total));
              }
              if (to && me == TO) await_credit(c, s, line.state, next, s.sent[next] + 1 + k, c.depth, waiting);
              return __shfl_sync(~0u, piece, 0);
            },
            [&](uint32_t k, uint32_t piece) {
              const uint64_t at = (uint64_t)piece * a.chunk, n = min((uint64_t)a.chunk, total - at);
              const char *own = REDUCE || !from ? a.in[c.rank] + at : nullptr;
              const char *in = from ? chunk_of(c, c.rank, line.ch, prev, s.received[prev] + 1 + k) : nullptr;
              char *out = to ? chunk_of(c, next, line.ch, c.rank, s.sent[next] + 1 + k) : nullptr;
              pass_rows<REDUCE, T, OP>(t, a, own, in, out, keep ? a.out[c.rank] + at : nullptr, n, !to);
            },
            [&](uint32_t k, uint32_t piece) {
              if (!turns && piece == NONE) return;
              if (from && me == 0) release(c, line, prev, s.received[prev] + 1 + k);
              if (!to || me != TO) return;
              const uint32_t number = s.sent[next] + 1 + k;
              if (turns) label(c, a, line, next, number, piece);
              post(c, a, line, next, number, turns ? 1 : k);
            });
  if (ran == LEFT) return;
  const uint32_t messages = turns ? ran : ran - 1;
  if (t.tells() && from && me == 0) leave_received(c, s, line, prev, messages);
  if (t.tells() && to && me == TO) leave_sent(c, s, line, next, messages);
}

#endif
