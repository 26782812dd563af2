// Registrations, as windows.c keeps them.
#ifndef ASSAY_WINDOWS_H
#define ASSAY_WINDOWS_H
#include "device.h"
#include "front.h"

enum what { BUFFER, WINDOW, RESOURCE }; // RESOURCE: of a device communicator

// A registration. Its handle is its address, or where kernels of the program find it.
struct record {
  struct record *next;
  enum what what;
  ncclComm_t comm;
  const void *handle;
  void *buff;
  size_t size;
  uint64_t first, stride; // of all ranks' memory, for kernels of the program; 0: they do not reach it
};

// What waits for a window: a place for its handle, or a device communicator that is to have it.
struct waiting {
  struct record *record;
  ncclWindow_t *win;
  void *out;
  union devcomm made;
  const struct layout *layout;
};

// A layout is what device communicators of some releases look like.
struct layout {
  unsigned first, last;
  size_t bytes, members, barrier, hybrid; // offsets; hybrid: 0 is none
  size_t window, base, stride;            // of the resource window
};

// registered ends a registration that the engine has made, or has failed to make.
void registered(const struct assay_window *w, struct waiting *a, ncclResult_t r);

// put makes a record.
ncclResult_t put(const char *what_for, enum what what, ncclComm_t comm, void *buff, size_t size, struct record **to);

// drop forgets a registration by its handle.
ncclResult_t drop(const char *what_for, enum what what, ncclComm_t comm, const void *handle, uintptr_t *key);

// settle writes the resource window into a device communicator, and the whole to where it belongs.
void settle(struct waiting *a, uint64_t window);
#endif
