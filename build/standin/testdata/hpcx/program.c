/* Stand-in for one of HPC-X's programs: -v tells the library's version. */
#include <stdio.h>
#include <string.h>

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
const char *JOIN(NAME, _standin_version)(void);

int main(int argc, char **argv) {
	if (argc > 1 && (!strcmp(argv[1], "-v") || !strcmp(argv[1], "--version")))
		printf("# Library version: %s\n# " PROGRAM " (stand-in)\n", JOIN(NAME, _standin_version)());
	else
		printf("# " PROGRAM " (stand-in): no transport found\n");
	return 0;
}
