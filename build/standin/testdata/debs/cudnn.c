/* Stand-in for one of cuDNN's libraries: it knows its version, nothing else. */
#include <stddef.h>

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
size_t JOIN(PART, _standin_version)(void) { return CODE; }
size_t __attribute__((weak)) cudnnGetVersion(void) { return CODE; }
