// What a driver's libraries answer before anything else, by their own functions.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *cuda, *nvml;

static int (*find(void *library, const char *name))(void *, unsigned) {
  void *f = library ? dlsym(library, name) : NULL;
  if (!f) printf("no %s: %s\n", name, dlerror()), exit(1);
  return (int (*)(void *, unsigned))f;
}

int main(void) {
  int version = 0, devices = 0, r;
  cuda = dlopen("libcuda.so.1", RTLD_NOW);
  nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  r = find(cuda, "cuDriverGetVersion")(&version, 0);
  printf("cuDriverGetVersion %d %d\n", r, version);
  printf("cuInit %d\n", ((int (*)(unsigned))find(cuda, "cuInit"))(0));
  printf("cuDeviceGetCount %d\n", find(cuda, "cuDeviceGetCount")(&devices, 0));
  printf("nvmlInit_v2 %d\n", ((int (*)(void))find(nvml, "nvmlInit_v2"))());
}
