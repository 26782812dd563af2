// An auditing library (LD_AUDIT) by which the loader finds no driver, whatever is installed.
#define _GNU_SOURCE
#include <link.h>
#include <string.h>

unsigned la_version(unsigned version) { return version; }

char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag) {
  int hidden = strstr(name, "/libcuda.so") || strstr(name, "/libnvidia-ml.so");
  return hidden && flag != LA_SER_ORIG ? NULL : (char *)name;
}
