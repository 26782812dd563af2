// The kernels of check.cu on the processor, a thread of the system for each of
// theirs, against what they should do written with a division. Prints what is
// wrong, and the number of cases.
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static

struct Dim {
  unsigned x;
};
static thread_local Dim threadIdx;
static Dim blockIdx, blockDim, gridDim;
static std::barrier<> *block_barrier;
static void __syncthreads() { block_barrier->arrive_and_wait(); }

template <typename T>
static T atomicAdd(T *p, T v) {
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

#include "../check.cu"

// launch runs a kernel's blocks one after the other.
template <typename F>
static void launch(unsigned grid, unsigned block, F kernel) {
  gridDim.x = grid;
  blockDim.x = block;
  for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) {
    std::barrier<> b(block);
    block_barrier = &b;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < block; t++)
      threads.emplace_back([=] {
        threadIdx.x = t;
        kernel();
      });
    for (auto &t : threads) t.join();
  }
}

static std::mt19937_64 rng(1);
static int cases, failures;

static void expect(const char *what, uint64_t got, uint64_t want) {
  cases++;
  if (got == want) return;
  failures++;
  printf("%s: %llu, want %llu\n", what, (unsigned long long)got, (unsigned long long)want);
}

template <typename T, typename Tile, typename Compare>
static void test(Tile tile, Compare compare) {
  for (uint32_t period : {1u, 2u, 7u, 61u, 1021u})
    for (uint64_t n : {0ull, 1ull, 31ull, 64ull, 1000ull})
      for (unsigned grid : {1u, 3u}) {
        const unsigned block = 8;
        std::vector<T> pattern(period), got(n + 2, 42);
        for (T &v : pattern) v = (T)(rng() | 8);  // so that two less is no wrap
        const uint32_t phase = rng() % period;
        T *dst = got.data() + 1;
        launch(grid, block, [&] { tile(dst, n, pattern.data(), period, phase); });
        bool right = got[0] == 42 && got[n + 1] == 42;
        for (uint64_t i = 0; i < n; i++) right &= dst[i] == pattern[(phase + i) % period];
        expect("tile", right, true);

        unsigned long long wrong = 5;  // it adds to it
        auto count = [&](uint64_t slack) {
          launch(grid, block, [&] { compare(dst, n, pattern.data(), period, phase, slack, &wrong); });
        };
        count(0);
        expect("compare what is right", wrong, 5);
        for (uint64_t i = 0; i < n; i += 3) dst[i] -= 2;
        count(2);
        expect("compare within the slack", wrong, 5);
        count(1);
        expect("compare beyond the slack", wrong, 5 + (n + 2) / 3);
        // Far apart in either direction, which must not wrap to near.
        for (uint64_t i = 0; i < n; i++) dst[i] = pattern[(phase + i) % period] ^ (T)((T)1 << (8 * sizeof(T) - 1));
        wrong = 0;
        count(2);
        expect("compare the other half", wrong, n);
      }
}

int main() {
  test<uint8_t>(tile1, compare1);
  test<uint16_t>(tile2, compare2);
  test<uint32_t>(tile4, compare4);
  test<uint64_t>(tile8, compare8);
  printf("%d cases, %d failures\n", cases, failures);
  return failures != 0;
}
