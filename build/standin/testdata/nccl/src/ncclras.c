/* Stand-in for ncclras. */
#include <stdio.h>

int main(void) {
	puts("ncclras (stand-in) " VERSION);
	return 0;
}
