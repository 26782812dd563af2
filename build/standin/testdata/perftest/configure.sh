#!/bin/sh
# Stand-in for perftest's configure: autoconf's common options, the same
# required headers, and CUDA support where CUDA_H_PATH says so.
set -e
prefix=/usr cuda=${CUDA_H_PATH-}
for arg; do
	case $arg in
	--prefix=*) prefix=${arg#*=} ;;
	CUDA_H_PATH=*) cuda=${arg#*=} ;;
	CC=* | CFLAGS=* | LDFLAGS=* | LIBS=*) export "${arg?}" ;;
	--enable-* | --disable-* | --with-* | --without-* | --*dir=* | --host=* | --build=* | -q | --quiet) ;;
	*) echo "configure: error: unrecognized option: $arg" >&2; exit 1 ;;
	esac
done
CC=${CC:-gcc}
need() { # HEADER PACKAGE
	printf 'checking for %s... ' "$1"
	if echo "#include <stdint.h>
#include <$1>" | $CC $CFLAGS -x c -E - > /dev/null 2>&1; then echo yes; else
		echo no
		echo "configure: error: $1 not found, consider installing $2" >&2
		exit 1
	fi
}
need infiniband/verbs.h libibverbs-dev
need rdma/rdma_cma.h librdmacm-dev
need infiniband/umad.h libibumad-dev
need pci/pci.h libpci-dev
defines=
if [ -n "$cuda" ]; then
	[ -f "$cuda" ] || { echo "configure: error: CUDA_H_PATH: $cuda does not exist" >&2; exit 1; }
	defines="-DHAVE_CUDA -include $cuda"
fi
{
	echo "prefix = $prefix"
	echo "CC = $CC"
	echo "CFLAGS = -O2 ${CFLAGS-}"
	echo "LDFLAGS = ${LDFLAGS-}"
	echo "DEFINES = $defines"
	cat Makefile.in
} > Makefile
echo "config.status: creating Makefile"
