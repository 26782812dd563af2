#!/bin/sh
# Makes the stand-in DCGM packages of one version: the single package of
# version 3, or the split ones of version 4.
# Needs: VERSION (1:4.5.2-1 or 1:3.3.6), ARCH, MULTIARCH; FAULT.
set -eu
. /mnt/in/debs/lib.sh
v=${VERSION#*:} v=${v%-*} so=${v%%.*} lib=/usr/lib/$MULTIARCH
says=$v
[ "${FAULT-}" = wrong-version ] && says=0.0.1

core() { # DIR gets libdcgm, dcgmi, nv-hostengine and the unit
	mkdir -p $1$lib $1/usr/bin $1/usr/lib/systemd/system
	cc="gcc -O2 -DVERSION=\"$says\""
	$cc -DLIB -shared -fPIC -Wl,-soname,libdcgm.so.$so /mnt/in/debs/dcgm.c -o $1$lib/libdcgm.so.$v $(fault_libs)
	ln -s libdcgm.so.$v $1$lib/libdcgm.so.$so
	$cc -DDCGMI /mnt/in/debs/dcgm.c -o $1/usr/bin/dcgmi $1$lib/libdcgm.so.$v -Wl,--allow-shlib-undefined
	$cc -DHOSTENGINE /mnt/in/debs/dcgm.c -o $1/usr/bin/nv-hostengine $1$lib/libdcgm.so.$v -Wl,--allow-shlib-undefined
	printf '[Unit]\nDescription=DCGM (stand-in)\n[Service]\nExecStart=/usr/bin/nv-hostengine -n\n' > $1/usr/lib/systemd/system/nvidia-dcgm.service
}
plugin() { # DIR PATH
	mkdir -p $1${2%/*}
	gcc -O2 -DPLUGIN -DVERSION="\"$says\"" -shared -fPIC /mnt/in/debs/dcgm.c -o $1$2
}

if [ $so = 3 ]; then
	pkg=$(package datacenter-gpu-manager $VERSION "" libc6 "DCGM, all in one package")
	core $pkg
	close_package $pkg
	exit
fi
p=datacenter-gpu-manager-4 plugins=/usr/libexec/datacenter-gpu-manager-4/plugins
pkg=$(package $p-core $VERSION "" libc6 "DCGM core")
core $pkg
close_package $pkg
pkg=$(package $p-proprietary $VERSION "" "$p-core (= $VERSION)" "DCGM proprietary modules")
plugin $pkg $lib/libdcgmmoduleprofiling.so.4
close_package $pkg
for cuda in 11 12 13; do
	pkg=$(package $p-cuda$cuda $VERSION "" "$p-core (= $VERSION)" "DCGM for CUDA $cuda" "Recommends: $p-proprietary-cuda$cuda")
	plugin $pkg $plugins/cuda$cuda/libMemory.so.4
	close_package $pkg
	pkg=$(package $p-proprietary-cuda$cuda $VERSION "" "$p-cuda$cuda (= $VERSION), $p-proprietary (= $VERSION)" "DCGM proprietary diagnostics for CUDA $cuda")
	plugin $pkg $plugins/cuda$cuda/libDiagnostic.so.4
	close_package $pkg
done
