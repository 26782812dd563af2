/* Stand-in for fi_info. */
#include <stdio.h>
#include <string.h>

const char *fi_standin_version(void);

int main(int argc, char **argv) {
	if (argc > 1 && !strcmp(argv[1], "--version")) {
		printf("fi_info: %s (stand-in)\nlibfabric: %s\n", fi_standin_version(), fi_standin_version());
		return 0;
	}
	fprintf(stderr, "fi_getinfo: -61 (No data available)\n");
	return 61;
}
