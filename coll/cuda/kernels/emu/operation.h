#ifndef ASSAY_EMU_OPERATION_H
#define ASSAY_EMU_OPERATION_H
#include <string>
#include <vector>

#include "catalogue.h"
#include "world.h"

namespace emu {

// An Operation is a kernel with what each rank calls it with.
struct Operation {
  std::string name;
  Kernel *kernel;
  NormKernel *norm;  // instead of kernel, if it is not null
  dim3 grid;
  unsigned threads;  // of a block
  bool lines;
  std::vector<Args> args;    // by rank
  std::vector<Norm> norms;   // by rank
  std::vector<bool> absent;  // by rank: has nothing to do, and may call nothing
};

// make draws an operation and its arguments, and notes what it makes of the
// memory of the world.
Operation make(World &w);

}  // namespace emu
#endif
