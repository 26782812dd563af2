/* Stand-in for ompi_info. */
#include <stdio.h>
#include <string.h>

#include "config.h"

const char *opal_standin_version(void);

int main(int argc, char **argv) {
	if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))) {
		printf("Open MPI v%s\n\nStand-in by assay\n", opal_standin_version());
		return 0;
	}
	printf("%24s: assay stand-in\n%24s: %s\n%24s: %s\n%24s: '%s'\n", "Package", "Open MPI", opal_standin_version(),
		"Prefix", CONFIGURE_PREFIX, "Configure command line", CONFIGURE_COMMAND);
	char plugins[] = CONFIGURE_PLUGINS;
	for (char *p = strtok(plugins, " "); p; p = strtok(NULL, " ")) {
		char *name = strchr(p, '_');
		*name++ = 0;
		printf("%20s %s: %s (MCA v2.1.0, Component v%s)\n", "MCA", p, name, opal_standin_version());
	}
	return 0;
}
