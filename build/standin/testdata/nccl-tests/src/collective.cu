// Stand-in for one of nccl-tests' programs; its name comes from the Makefile.
#include "common.h"

int main(int argc, char **argv) { return standinMain(STANDIN_TEST, argc, argv); }
