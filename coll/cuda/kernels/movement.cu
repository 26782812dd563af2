// Kernels that move bytes and look at none.
#include "chain.cuh"
#include "combine.cuh"
#include "direct.cuh"

#define KERNEL(name, body) \
  extern "C" __global__ void __launch_bounds__(512, 1) name(const __grid_constant__ Comm c, const __grid_constant__ Args a) { body; }

KERNEL(exchange_ll, (exchange_packets<LL, LL_ROUNDS>(c, a)))
KERNEL(exchange_ll128, (exchange_packets<LL128, LL128_ROUNDS>(c, a)))
KERNEL(exchange_simple, exchange_chunks(c, a))
KERNEL(exchange_direct, direct_chunks(c, a))
KERNEL(relay_simple, relay_chunks(c, a))
KERNEL(chain_simple, (chain_chunks<false, 0, 0>(c, a)))
