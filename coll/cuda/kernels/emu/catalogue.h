// The kernels that the program was linked with, by name.
#ifndef ASSAY_EMU_CATALOGUE_H
#define ASSAY_EMU_CATALOGUE_H
#include <string>
#include <vector>

#include "../abi.h"
#include "reference.h"

namespace emu {

using Kernel = void(Comm, Args);
using NormKernel = void(Comm, Args, Norm);

enum Protocol { kLL, kLL128, kSimple };

struct Typed {
  Kernel *reduce[2], *allreduce[3], *combine;  // by protocol
  Kernel *chain;                               // null where it would round
};

struct Normed {
  NormKernel *whole, *local;
};

Kernel *exchange(Protocol p);
Kernel *direct();
Kernel *relay();
Kernel *chain();
const Typed &typed(int type, int op);
// normed are those of a type with norms.
const Normed &normed(int type);
// types are those whose kernels are there.
const std::vector<int> &types();
const char *type_name(int type);
const char *op_name(int op);
const char *protocol_name(Protocol p);

}  // namespace emu
#endif
