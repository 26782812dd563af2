// Kernels that move bytes and look at none.
#include "chain.cuh"
#include "check.cuh"
#include "combine.cuh"
#include "direct.cuh"
#include "stage.cuh"

#define KERNEL(name, body) \
  extern "C" __global__ void __launch_bounds__(512, 1) name(const __grid_constant__ Comm c, const __grid_constant__ Args a) { body; }

KERNEL(exchange_ll, (exchange_packets<LL, LL_ROUNDS>(c, a)))
KERNEL(exchange_ll128, (exchange_packets<LL128, LL128_ROUNDS>(c, a)))
KERNEL(exchange_simple, exchange_chunks(c, a))
KERNEL(exchange_direct, direct_chunks(c, a))
KERNEL(relay_simple, relay_chunks(c, a))
KERNEL(chain_simple, (chain_chunks<false, 0, 0>(c, a)))

extern "C" __global__ void __launch_bounds__(512, 1) stage(const __grid_constant__ Stage s) {
  const uint32_t each = 2 * s.shares, lane = blockIdx.x / each, of_lane = blockIdx.x % each;
  StageList *l = s.lists + 2 * SHARES * lane + of_lane;
  if (of_lane % 2)
    stage_copies<Slot>(l, s.number);
  else
    stage_copies<Memory>(l, s.number);
}

extern "C" __global__ void __launch_bounds__(512, 1) checksum(const __grid_constant__ Check k) { checksum_spans(k); }
extern "C" __global__ void __launch_bounds__(512, 1) check_words(const __grid_constant__ CheckWords k) { compare_all(k); }
