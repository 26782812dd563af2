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

// find returns a kernel; null: the program was linked without it.
void *find(const std::string &name);
// types are those whose kernels are there.
const std::vector<int> &types();
const char *type_name(int type);
const char *op_name(int op);
const char *protocol_name(Protocol p);

}  // namespace emu
#endif
