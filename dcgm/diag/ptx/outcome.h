// Matrix products that every block makes of the same two small matrices, over and
// over, so that all results must be the same to the last bit. A block is bound to
// no tile: what differs is which multiprocessor has made it.

// What a block says. product.go reads it.
struct Outcome {
  u64 sum;  // of its product, the same for all blocks
  unsigned sm;
  unsigned bad;  // threads' rounds whose result was not that of their first round
};

// What a launch is to do: each round makes the product so many times over, adds
// the results up and compares the sums with those of the first round. flip is the
// number of the multiprocessor whose second round is to get a wrong bit, plus 1.
// The sums of block 0 go to c, where there is one: after the first round.
struct Check {
  u64 rounds, reps, flip;
  Outcome *out;
};

// A Tally is a thread's part in it.
struct Tally {
  unsigned first = 0, bad = 0;

  __device__ void round(u64 r, unsigned h) {
    if (r == 0) {
      first = h;
    } else if (h != first) {
      bad++;
    }
  }
  __device__ void done(const Check &check) const {
    Outcome *o = check.out + blockIdx.x;
    atomicAdd(&o->sum, ((u64)first << 17 ^ first) * (2 * threadIdx.x + 1));
    if (bad) atomicAdd(&o->bad, bad);
    if (threadIdx.x == 0) o->sm = multiprocessor();
  }
};

// fold mixes a result into a thread's sum. A change of any one shows.
__device__ inline unsigned fold(unsigned h, unsigned bits) { return (h << 5 | h >> 27) + bits; }

__device__ inline unsigned fold_value(unsigned h, float v) { return fold(h, float_bits(v)); }
__device__ inline unsigned fold_value(unsigned h, double v) {
  const u64 b = double_bits(v);
  return fold(fold(h, (unsigned)b), (unsigned)(b >> 32));
}

__device__ inline bool flipped(const Check &check, u64 round) {
  return check.flip && round == 1 && threadIdx.x == 0 && multiprocessor() + 1 == check.flip;
}
