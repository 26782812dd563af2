# What the scripts that make stand-in Debian packages share. The packages end
# in /mnt/out.
export SOURCE_DATE_EPOCH=1700000000

# package NAME VERSION ARCH DEPENDS DESCRIPTION [FIELD: VALUE…] starts a package
# and prints the directory of its files. ARCH defaults to this machine's.
package() {
	_dir=/tmp/standin-debs/$1
	rm -rf $_dir && mkdir -p $_dir/DEBIAN
	{
		printf 'Package: %s\nVersion: %s\nArchitecture: %s\n' "$1" "$2" "${3:-$ARCH}"
		printf 'Maintainer: assay stand-in <standin@invalid>\nSection: libs\nPriority: optional\n'
		[ -z "$4" ] || printf 'Depends: %s\n' "$4"
		printf 'Description: %s (stand-in)\n Made by assay'"'"'s tests in the shape of the vendor'"'"'s package.\n' "$5"
		shift 5
		[ $# = 0 ] || printf '%s\n' "$@"
	} > $_dir/DEBIAN/control
	echo $_dir
}

# close_package DIR builds it. File times come from SOURCE_DATE_EPOCH.
close_package() {
	find $1 -exec touch -h -d @$SOURCE_DATE_EPOCH {} +
	dpkg-deb -Zgzip --root-owner-group --build $1 /mnt/out > /dev/null
	rm -rf $1
}

# absent prints linker flags which make a library need one that is nowhere, for
# a test of "a component whose library does not resolve".
absent() {
	mkdir -p /tmp/standin
	printf 'int standin_absent;\n' | gcc -shared -fPIC -x c - -Wl,-soname,libstandin-absent.so.1 -o /tmp/standin/libabsent.so
	echo "-Wl,--no-as-needed /tmp/standin/libabsent.so -Wl,--as-needed"
}
# fault_libs prints them only where FAULT asks for it.
fault_libs() { [ "${FAULT-}" != unresolved ] || absent; }
