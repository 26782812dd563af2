#include "catalogue.h"

#include <dlfcn.h>

namespace emu {

void *find(const std::string &name) { return dlsym(RTLD_DEFAULT, name.c_str()); }

const std::vector<int> &types() {
  static const std::vector<int> all = [] {
    std::vector<int> v;
    for (int t = 0; t < kTypes; t++)
      if (find(std::string("combine_") + type_name(t) + "_sum")) v.push_back(t);
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
