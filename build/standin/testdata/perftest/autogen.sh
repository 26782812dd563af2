#!/bin/sh
# Stand-in for perftest's autogen.sh: it needs what the real one needs, and
# then has nothing to generate but the configure script.
set -e
for tool in autoreconf aclocal automake libtoolize; do
	command -v $tool > /dev/null || { echo "autogen.sh: $tool not found; install autoconf, automake and libtool" >&2; exit 1; }
done
cp configure.sh configure
chmod +x configure
