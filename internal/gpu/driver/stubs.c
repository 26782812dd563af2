//go:build cuda && cgo

#include "stubs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

// Hidden: the stubs are for the objects of this program. A library that is
// loaded later and needs the driver's functions must find the driver's.
#define HIDDEN __attribute__((visibility("hidden")))

static const char *const names[] = {
#define NAME(n) #n,
#include "names.h"
#undef NAME
};

// What each stub jumps to. NULL: not looked up yet.
HIDDEN void *assay_cu_table[sizeof names / sizeof names[0]];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library; // NULL: no driver
static int initialised = ASSAY_CU_NO_DEVICE; // what cuInit answered
static char reason[512];

static void load(void) {
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		const char *why = dlerror();
		snprintf(reason, sizeof reason, "%s", why ? why : "libcuda.so.1 cannot be loaded");
		return;
	}
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
	if (init == NULL) {
		library = NULL;
		snprintf(reason, sizeof reason, "libcuda.so.1 has no cuInit");
		return;
	}
	initialised = init(0);
}

int assay_cu_load(const char **why) {
	pthread_once(&once, load);
	*why = library ? NULL : reason;
	return initialised;
}

// gorgonia.org/cu calls cuInit when the program starts and ends the process if
// that fails. The driver's cuInit takes a good part of a second on a machine
// with GPUs, so it waits until something else is called.
static int init_later(unsigned flags) {
	(void)flags;
	return ASSAY_CU_SUCCESS;
}

static int no_devices(int *count) {
	*count = 0;
	return ASSAY_CU_SUCCESS;
}

static int no_device(void) { return ASSAY_CU_NO_DEVICE; }

static int not_supported(void) { return ASSAY_CU_NOT_SUPPORTED; }

// assay_cu_resolve fills in an entry of the table. The stubs call it. Threads
// that come at the same time write the same value.
HIDDEN void *assay_cu_resolve(unsigned long i) {
	void *f;
	const char *why;
	if (strcmp(names[i], "cuInit") == 0) {
		f = (void *)init_later;
	} else if (assay_cu_load(&why) == ASSAY_CU_SUCCESS) {
		f = dlsym(library, names[i]);
		if (f == NULL)
			f = (void *)not_supported;
	} else if (strcmp(names[i], "cuDeviceGetCount") == 0) {
		f = (void *)no_devices;
	} else {
		f = (void *)no_device;
	}
	__atomic_store_n(&assay_cu_table[i], f, __ATOMIC_RELEASE);
	return f;
}
