#!/bin/sh
# Prints one C file of functions that take a compiler some work.
# Usage: unit.sh NAME
awk -v name="$1" 'BEGIN {
	print "/* Generated: stands for a part of Open MPI. */"
	for (i = 0; i < 5; i++) {
		printf "long %s_%d(const long *a, long *b, int n) {\n\tlong s = %d;\n", name, i, i
		printf "\tfor (int k = 0; k < n; k++) {\n\t\tswitch (a[k] %% %d) {\n", i + 3
		for (c = 0; c < 6; c++) printf "\t\tcase %d: s = s * %d + (a[k] ^ b[(k + %d) %% n]); break;\n", c, i + c + 1, c
		print "\t\tdefault: b[k] += s;\n\t\t}\n\t}\n\treturn s;\n}"
	}
}'
