#include "reference.h"

#include <string.h>
#include <algorithm>

#include "../reduce.cuh"

namespace emu {

size_t size_of(int type) {
  static const size_t sizes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

template <int T, int OP> static void reduce_all(char *out, const char *const *in, int n, size_t bytes, const Scaling &s) {
  for (size_t at = 0; at < bytes; at += 16) {
    const size_t m = std::min<size_t>(16, bytes - at);
    Reducer<T, OP, 4> r;
    uint32_t w[4];
    for (int i = 0; i < n; i++) {
      memset(w, 0, sizeof w);
      memcpy(w, in[i] + at, m);
      if (s.kind == 1) scale_words<T, 4>(w, s.factor);
      if (i == 0)
        r.first(w);
      else
        r.add(w);
    }
    r.result(w);
    if (s.kind == 2) divide_words<T, 4>(w, s.divisor);
    memcpy(out + at, w, m);
  }
}

template <int T> static void reduce_op(int op, char *out, const char *const *in, int n, size_t bytes, const Scaling &s) {
  switch (op) {
    case OP_SUM: return reduce_all<T, OP_SUM>(out, in, n, bytes, s);
    case OP_PROD: return reduce_all<T, OP_PROD>(out, in, n, bytes, s);
    case OP_MAX: return reduce_all<T, OP_MAX>(out, in, n, bytes, s);
    case OP_MIN: return reduce_all<T, OP_MIN>(out, in, n, bytes, s);
  }
}

void reduce(int type, int op, char *out, const char *const *in, int n, size_t bytes, const Scaling &s) {
  using Reduce = void(int, char *, const char *const *, int, size_t, const Scaling &);
  static Reduce *const table[kTypes] = {reduce_op<0>, reduce_op<1>, reduce_op<2>, reduce_op<3>, reduce_op<4>,  reduce_op<5>,
                                        reduce_op<6>, reduce_op<7>, reduce_op<8>, reduce_op<9>, reduce_op<10>, reduce_op<11>};
  table[type](op, out, in, n, bytes, s);
}

float load(int type, const char *at) {
  uint32_t w = 0;
  memcpy(&w, at, size_of(type));
  float x[2] = {bits<float>(w), 0};
  if (type == TYPE_F16) Narrow<TYPE_F16>::widen(x, w);
  if (type == TYPE_BF16) Narrow<TYPE_BF16>::widen(x, w);
  return x[0];
}

void store(int type, char *at, float x) {
  const float both[2] = {x, 0};
  uint32_t w = bits<uint32_t>(x);
  if (type == TYPE_F16) w = Narrow<TYPE_F16>::round(both);
  if (type == TYPE_BF16) w = Narrow<TYPE_BF16>::round(both);
  memcpy(at, &w, size_of(type));
}

void normalize(int type, char *out, char *residual, const char *sum, const char *before, const char *weight, size_t rows, size_t row, float eps) {
  const size_t size = size_of(type);
  for (size_t begin = 0; begin < rows * row; begin += row) {
    double squares = 0;
    for (size_t i = begin; i < begin + row; i += size) {
      store(type, residual + i, load(type, sum + i) + load(type, before + i));
      squares += double(load(type, residual + i)) * load(type, residual + i);
    }
    const double factor = 1 / sqrt(squares / double(row / size) + eps);
    for (size_t i = 0; i < row; i += size) store(type, out + begin + i, float(load(type, residual + begin + i) * factor * load(type, weight + i)));
  }
}

}  // namespace emu
