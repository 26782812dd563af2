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

}  // namespace emu
