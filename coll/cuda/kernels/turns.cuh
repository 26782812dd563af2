// Pieces of long messages, which blocks take on in turn.
#ifndef ASSAY_TURNS_CUH
#define ASSAY_TURNS_CUH
#include "team.cuh"

// Blocks get unequal parts of a link: on an H200 a third of them send 1.3 times as much as the others.
// So blocks take on the pieces of longer messages in turn, each the next one that no other has.
//
// in_turn reports whether they do; of shorter messages, piece k * channels + ch is step k of a channel.
// Where receivers' blocks take them on, so is each of a channel's first AHEAD steps. Windows in host
// memory, which have no LL128, are too far away to be counted in.
enum { AHEAD = 4 };
__device__ __forceinline__ bool in_turn(const Comm &c, const Args &a, uint64_t bytes, uint32_t steps) {
  return c.depth >= AHEAD && c.ll128_slot && bytes > (uint64_t)steps * a.channels * a.chunk;
}

// pieces_in is how many pieces a message has, and own_piece one that needs not be taken on, or NONE.
__device__ __forceinline__ uint32_t pieces_in(const Args &a, uint64_t bytes) { return (uint32_t)((bytes + a.chunk - 1) / a.chunk); }
__device__ __forceinline__ uint32_t own_piece(const Args &a, uint32_t ch, uint64_t bytes, uint32_t k) {
  const uint32_t piece = k * a.channels + ch;
  return piece < pieces_in(a, bytes) ? piece : NONE;
}

// claim takes on one of so many pieces, or NONE. The last block to find none leaves the count as the next
// operation needs it.
__device__ __forceinline__ uint32_t claim(const Comm &c, const Args &a, uint32_t pieces) {
  uint32_t *claimed = &channel_of(c, c.rank, PACKET_CHANNELS)->claimed;
  const uint32_t got = atomicAdd(claimed, 1);
  if (got + 1 == pieces + a.channels) atomicExch(claimed, 0);
  return got < pieces ? got : NONE;
}

// label says which piece message `number` to a peer is.
__device__ __forceinline__ void label(const Comm &c, const Args &a, const Line &l, int p, uint32_t number, uint32_t piece) {
  st_volatile((uint2 *)&label_of(c, p, l.ch, c.rank, number)->sign, make_uint2(a.sign, piece));
}

#endif
