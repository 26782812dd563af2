// Runs reduce.cuh on the CPU for TestReduce: requests come on standard input,
// a Request and then its sources, and the results go to standard output.
#include "../reduce.cuh"

#include <stdio.h>
#include <stdlib.h>

#include <vector>

enum Kind { REDUCE = 0, SCALE = 1, DIVIDE = 2 };

struct Request {
  uint64_t bytes;   // of each source, a multiple of 16
  uint64_t factor;  // SCALE
  uint32_t kind, type, op, words, sources;
  uint32_t divisor;  // DIVIDE
};

template <int TYPE, int OP, int W>
static void run(const Request &r, const char *in, char *out) {
  for (uint64_t at = 0; at < r.bytes; at += 4 * W) {
    uint32_t w[W];
    memcpy(w, in + at, sizeof w);
    if (r.kind == SCALE) {
      scale_words<TYPE, W>(w, r.factor);
    } else if (r.kind == DIVIDE) {
      divide_words<TYPE, W>(w, r.divisor);
    } else {
      Reducer<TYPE, OP, W> acc;
      acc.first(w);
      for (uint32_t s = 1; s < r.sources; s++) {
        memcpy(w, in + s * r.bytes + at, sizeof w);
        acc.add(w);
      }
      acc.result(w);
    }
    memcpy(out + at, w, sizeof w);
  }
}

template <int TYPE, int OP>
static void by_words(const Request &r, const char *in, char *out) {
  if (r.words == 2) return run<TYPE, OP, 2>(r, in, out);
  run<TYPE, OP, 4>(r, in, out);
}

template <int TYPE>
static void by_op(const Request &r, const char *in, char *out) {
  switch (r.op) {
    case OP_SUM: return by_words<TYPE, OP_SUM>(r, in, out);
    case OP_PROD: return by_words<TYPE, OP_PROD>(r, in, out);
    case OP_MAX: return by_words<TYPE, OP_MAX>(r, in, out);
    case OP_MIN: return by_words<TYPE, OP_MIN>(r, in, out);
  }
  exit(2);
}

static void by_type(const Request &r, const char *in, char *out) {
  switch (r.type) {
    case TYPE_I8: return by_op<TYPE_I8>(r, in, out);
    case TYPE_U8: return by_op<TYPE_U8>(r, in, out);
    case TYPE_I32: return by_op<TYPE_I32>(r, in, out);
    case TYPE_U32: return by_op<TYPE_U32>(r, in, out);
    case TYPE_I64: return by_op<TYPE_I64>(r, in, out);
    case TYPE_U64: return by_op<TYPE_U64>(r, in, out);
    case TYPE_F16: return by_op<TYPE_F16>(r, in, out);
    case TYPE_F32: return by_op<TYPE_F32>(r, in, out);
    case TYPE_F64: return by_op<TYPE_F64>(r, in, out);
    case TYPE_BF16: return by_op<TYPE_BF16>(r, in, out);
    case TYPE_E4M3: return by_op<TYPE_E4M3>(r, in, out);
    case TYPE_E5M2: return by_op<TYPE_E5M2>(r, in, out);
  }
  exit(2);
}

int main() {
  Request r;
  while (fread(&r, sizeof r, 1, stdin) == 1) {
    std::vector<char> in(r.bytes * r.sources), out(r.bytes);
    if (fread(in.data(), 1, in.size(), stdin) != in.size()) return 1;
    by_type(r, in.data(), out.data());
    if (fwrite(out.data(), 1, out.size(), stdout) != out.size()) return 1;
  }
  return 0;
}
