/* Stand-in for libopen-rte: what a rank learns from mpirun. */
#include <stdlib.h>

int orte_standin_number(const char *name, int otherwise) {
	const char *text = getenv(name);
	return text ? atoi(text) : otherwise;
}
