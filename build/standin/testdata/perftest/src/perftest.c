/* Stand-in for perftest's programs: version, help, and a look for a device.
 * As in current perftest, libcuda is looked up only when --use_cuda asks. */
#include <dlfcn.h>
#include <infiniband/umad.h>
#include <infiniband/verbs.h>
#include <pci/pci.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keeps the libraries that perftest links, though little of them is used. */
void *standin_links[] = {(void *)rdma_create_event_channel, (void *)umad_init, (void *)pci_alloc};

static int use_cuda(void) {
#ifdef HAVE_CUDA
	if (dlopen("libcuda.so.1", RTLD_NOW)) return 0;
	fprintf(stderr, " Failed to load CUDA library: %s\n", dlerror());
#else
	fprintf(stderr, " " NAME ": unrecognized option '--use_cuda'\n");
#endif
	return 1;
}

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-V") || !strcmp(argv[i], "--version")) {
			printf("Version: " VERSION "\n");
			return 0;
		}
		if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
			printf("Usage:\n  " NAME " (stand-in)    start a server and wait for connection\n  " NAME " <host>     connect to server at <host>\n");
#ifdef HAVE_CUDA
			printf("      --use_cuda=<cuda device id>  Use CUDA specific device for GPUDirect RDMA testing\n");
#endif
			return 0;
		}
		if (!strncmp(argv[i], "--use_cuda", 10) && use_cuda()) return 1;
	}
	int n = 0;
	struct ibv_device **devices = ibv_get_device_list(&n);
	if (!devices || n == 0) {
		fprintf(stderr, " Did not detect devices\n If device exists, check if driver is up\n");
		return 1;
	}
	printf(" %s: stand-in, moves no data\n", ibv_get_device_name(devices[0]));
	ibv_free_device_list(devices);
	return 1;
}
