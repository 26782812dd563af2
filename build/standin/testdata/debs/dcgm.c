/* Stand-in for DCGM: libdcgm (-DLIB), dcgmi (-DDCGMI), nv-hostengine
 * (-DHOSTENGINE) and plugins (-DPLUGIN). There is never a GPU. */
#include <stdio.h>
#include <string.h>

const char *dcgmStandinVersion(void);

#if defined(LIB)
const char *dcgmStandinVersion(void) { return VERSION; }
#elif defined(PLUGIN)
const char *dcgmStandinPluginVersion(void) { return VERSION; }
#else
int main(int argc, char **argv) {
	if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-v"))) {
#if defined(DCGMI)
		printf("\ndcgmi  version: %s\n\n", dcgmStandinVersion());
#else
		printf("Version : %s\nBuild ID : 0\nBuild Type : Stand-in\n", dcgmStandinVersion());
#endif
		return 0;
	}
#if defined(DCGMI)
	fprintf(stderr, "Error: unable to establish a connection to the specified host: localhost\n");
	return 255;
#else
	fprintf(stderr, "Err: Failed to start DCGM Server: -7 (stand-in: no NVML)\n");
	return 255;
#endif
}
#endif
