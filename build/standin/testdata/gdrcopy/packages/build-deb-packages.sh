#!/bin/bash
# Stand-in for GDRCopy's packaging. Writes libgdrapi, gdrcopy-tests, gdrcopy
# and, unless -k is given, gdrdrv-dkms packages into the current directory.
# -t leaves out the tests. CUDA names the toolkit. The real script needs
# devscripts, debhelper, fakeroot and pkg-config; this needs dpkg-deb alone.
set -eu
kernel=1 tests=1
while getopts "kt" option; do
	case $option in
	k) kernel= ;;
	t) tests= ;;
	*) exit 1 ;;
	esac
done
CUDA=${CUDA:-/usr/local/cuda}
[ -x "$CUDA/bin/nvcc" ] || { echo "CUDA toolkit not found in $CUDA" >&2; exit 1; }
top=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^VERSION := //p' "$top/standin.mk")-1
arch=$(dpkg --print-architecture) lib=/usr/lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)
distro=$(. /etc/os-release && echo "${NAME%% *}${VERSION_ID//./_}")
cuda=$("$CUDA/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pack() { # NAME ARCH DEPENDS FILE-SUFFIX: packs $work/NAME
	mkdir -p "$work/$1/DEBIAN"
	printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: assay stand-in <standin@invalid>\n%sDescription: GDRCopy (stand-in)\n' \
		"$1" "$version" "$2" "${3:+Depends: $3
}" > "$work/$1/DEBIAN/control"
	dpkg-deb --root-owner-group --build "$work/$1" "./$1_${version}_$2.$distro$4.deb"
}

make -C "$top" lib_install CUDA="$CUDA" PREFIX=/usr LIBDIR="$lib" DESTDIR="$work/libgdrapi"
pack libgdrapi "$arch" libc6 ""
if [ -n "$tests" ]; then
	make -C "$top" exes_install CUDA="$CUDA" PREFIX=/usr LIBDIR="$lib" DESTDIR="$work/gdrcopy-tests"
	pack gdrcopy-tests "$arch" "libgdrapi (>= ${version%-*})" "+cuda$cuda"
fi
[ -z "$kernel" ] || pack gdrdrv-dkms all "" ""
pack gdrcopy all "libgdrapi (>= ${version%-*})" ""
