#!/bin/sh
# Makes stand-ins for DOCA-OFED's (or the EFA installer's) userspace packages:
# Debian's own, contents unchanged, under the vendor's version. Debian's are
# fetched once, by fetch.sh.
# Needs: VERSION (2501mlnx56-1.2501060).
set -eu
. /mnt/in/debs/lib.sh
for deb in /mnt/debian/*.deb; do
	name=$(dpkg-deb -f "$deb" Package) old=$(dpkg-deb -f "$deb" Version)
	dir=/tmp/standin-debs/$name
	rm -rf $dir && mkdir -p /tmp/standin-debs
	dpkg-deb -R "$deb" $dir
	sed -i "s/^Version: .*/Version: $VERSION/; s/(= $old)/(= $VERSION)/g; s/^Maintainer: .*/Maintainer: assay stand-in <standin@invalid>/
		s/^Description: .*/& (stand-in: Debian's $old)/; /^Recommends:/d" $dir/DEBIAN/control
	close_package $dir
done
