#include "catalogue.h"

// A kernel of a type that was not compiled is null.
#define KERNEL(name) extern "C" __attribute__((weak)) void name(Comm, Args);
#define KERNELS(type, op)          \
  KERNEL(reduce_ll_##type##_##op)  \
  KERNEL(reduce_ll128_##type##_##op) \
  KERNEL(allreduce_ll_##type##_##op) \
  KERNEL(allreduce_ll128_##type##_##op) \
  KERNEL(allreduce_simple_##type##_##op) \
  KERNEL(combine_##type##_##op)    \
  KERNEL(reduce_chain_##type##_##op)
#define ENTRY(type, op)                                                                        \
  {{reduce_ll_##type##_##op, reduce_ll128_##type##_##op},                                      \
   {allreduce_ll_##type##_##op, allreduce_ll128_##type##_##op, allreduce_simple_##type##_##op}, \
   combine_##type##_##op, reduce_chain_##type##_##op},
#define OPS(what, type) what(type, sum) what(type, prod) what(type, max) what(type, min)
#define TYPES(what)                                                                                 \
  OPS(what, i8) OPS(what, u8) OPS(what, i32) OPS(what, u32) OPS(what, i64) OPS(what, u64) OPS(what, f16) \
  OPS(what, f32) OPS(what, f64) OPS(what, bf16) OPS(what, e4m3) OPS(what, e5m2)

KERNEL(exchange_ll)
KERNEL(exchange_ll128)
KERNEL(exchange_simple)
KERNEL(exchange_direct)
KERNEL(relay_simple)
KERNEL(chain_simple)
TYPES(KERNELS)

#define NORM(name) extern "C" __attribute__((weak)) void name(Comm, Args, Norm);
#define NORMS(type) NORM(norm_ll_##type) NORM(norm_local_##type)
#define NORM_ENTRY(type) {norm_ll_##type, norm_local_##type}
NORMS(f16)
NORMS(f32)
NORMS(bf16)

namespace emu {

Kernel *exchange(Protocol p) {
  static Kernel *const table[] = {exchange_ll, exchange_ll128, exchange_simple};
  return table[p];
}

Kernel *direct() { return exchange_direct; }

Kernel *relay() { return relay_simple; }

Kernel *chain() { return chain_simple; }

const Typed &typed(int type, int op) {
  static const Typed table[kTypes * kOps] = {TYPES(ENTRY)};
  return table[type * kOps + op];
}

const Normed &normed(int type) {
  static const Normed f16 = NORM_ENTRY(f16), f32 = NORM_ENTRY(f32), bf16 = NORM_ENTRY(bf16), none = {};
  return type == 6 ? f16 : type == 7 ? f32 : type == 9 ? bf16 : none;
}

const std::vector<int> &types() {
  static const std::vector<int> all = [] {
    std::vector<int> v;
    for (int t = 0; t < kTypes; t++)
      if (typed(t, 0).combine) v.push_back(t);
    return v;
  }();
  return all;
}

const char *type_name(int type) {
  static const char *const names[kTypes] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "e4m3", "e5m2"};
  return names[type];
}

const char *op_name(int op) {
  static const char *const names[kOps] = {"sum", "prod", "max", "min"};
  return names[op];
}

const char *protocol_name(Protocol p) {
  static const char *const names[] = {"ll", "ll128", "simple"};
  return names[p];
}

}  // namespace emu
