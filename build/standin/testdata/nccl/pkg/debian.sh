#!/bin/sh
# Packs a finished build as libnccl2 and libnccl-dev.
# Usage: debian.sh BUILDDIR VERSION
set -eu
build=$1 version=$2
arch=$(dpkg --print-architecture) lib=usr/lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)
out=$build/pkg/deb
rm -rf $build/pkg && mkdir -p $out

control() { # DIR NAME DEPENDS DESCRIPTION
	mkdir -p $1/DEBIAN
	printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: assay stand-in <standin@invalid>\nDepends: %s\nSection: libs\nPriority: optional\nDescription: %s (stand-in)\n' \
		$2 $version $arch "$3" "$4" > $1/DEBIAN/control
}
pack() { dpkg-deb --root-owner-group --build $1 $out; }

dir=$build/pkg/libnccl2
mkdir -p $dir/$lib
cp -P $build/lib/libnccl.so.* $dir/$lib/
control $dir libnccl2 libc6 "NCCL runtime"
pack $dir

dir=$build/pkg/libnccl-dev
mkdir -p $dir/$lib $dir/usr/include $dir/usr/bin
cp -P $build/lib/libnccl.so $build/lib/libnccl_static.a $dir/$lib/
cp $build/include/*.h $dir/usr/include/
cp $build/bin/ncclras $dir/usr/bin/
control $dir libnccl-dev "libnccl2 (= $version)" "NCCL development files"
pack $dir
