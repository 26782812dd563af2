#!/bin/sh
# Makes the stand-in for DOCA's package of XPMEM's library.
# Needs: VERSION, ARCH, MULTIARCH.
set -eu
. /mnt/in/debs/lib.sh
lib=/usr/lib/$MULTIARCH
pkg=$(package libxpmem0 $VERSION "" libc6 "XPMEM's library")
mkdir -p $pkg$lib
printf 'int xpmem_version(void) { return 0; }\n' | gcc -shared -fPIC -x c - -Wl,-soname,libxpmem.so.0 -o $pkg$lib/libxpmem.so.0.0.0
ln -s libxpmem.so.0.0.0 $pkg$lib/libxpmem.so.0
close_package $pkg
