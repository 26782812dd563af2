// Whose library this is. Several libraries have the name libnccl.so.2; package
// internal/host/libnccl tells them apart by what their files say, without loading them.
#include "api.h"

#define TEXT(x) #x
#define NUMBERS(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

__attribute__((used)) static const char whose[] = "assay libnccl " ASSAY_VERSION ", NCCL API " NUMBERS(API_MAJOR, API_MINOR, API_PATCH);
