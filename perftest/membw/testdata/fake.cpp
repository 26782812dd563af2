// The fake driver with the kernels of kernels.cu.
#include "fakecuda.h"

#include "kernels.cu"

std::map<std::string, CUfunc_st> functions{
    {"spin", kernel_of(spin)}, {"fill", kernel_of(fill)}, {"check", kernel_of(check)},
    {"copy", kernel_of(copy)}, {"copy_both", kernel_of(copy_both)}, {"chase", kernel_of(chase)}};
