#!/bin/sh
# Builds the packages of a stand-in EFA installer into /mnt/out.
# Needs: VERSION (1.47.0), OFI_NCCL (1.18.0), LIBFABRIC (2.4.0amzn1.0),
# RDMA_CORE (61.0-1), OPENMPI (4.1.7), ARCH, MACHINE; FAULT.
set -eu
. /mnt/in/debs/lib.sh
top=/opt/amazon lib=lib
case $VERSION in 1.4[0-3].*) lib=lib/$MACHINE-linux-gnu ;; esac # from about 1.44 on plainly lib
[ "${FAULT-}" = wrong-version ] && OFI_NCCL=0.0.1

pkg=$(package libfabric-aws-bin $LIBFABRIC "" libc6 "EFA's libfabric")
efa=$pkg$top/efa
mkdir -p $efa/bin $efa/lib $pkg/etc/ld.so.conf.d
gcc -O2 -shared -fPIC -DVERSION="\"$LIBFABRIC\"" -Wl,-soname,libfabric.so.1 /mnt/in/efa/fabric.c -o $efa/lib/libfabric.so.1
ln -s libfabric.so.1 $efa/lib/libfabric.so
gcc -O2 /mnt/in/efa/fi_info.c -o $efa/bin/fi_info -L$efa/lib -lfabric -Wl,-rpath,$top/efa/lib
echo $top/efa/lib > $pkg/etc/ld.so.conf.d/000_efa.conf
printf '#!/bin/sh\nset -e\nldconfig\n' > $pkg/DEBIAN/postinst && chmod 0755 $pkg/DEBIAN/postinst

ofi=$(package libnccl-ofi $OFI_NCCL-1 "" "libfabric-aws-bin" "EFA's NCCL plugin")
mkdir -p $ofi$top/ofi-nccl/$lib $ofi/etc/ld.so.conf.d
for name in net-ofi ofi-tuner; do
	gcc -O2 -shared -fPIC -DVERSION="\"$OFI_NCCL\"" /mnt/in/efa/plugin.c -o $ofi$top/ofi-nccl/$lib/libnccl-$name.so \
		-L$efa/lib -Wl,--no-as-needed -lfabric $(fault_libs)
done
ln -s libnccl-net-ofi.so $ofi$top/ofi-nccl/$lib/libnccl-net.so
echo $top/ofi-nccl/$lib > $ofi/etc/ld.so.conf.d/100_ofinccl.conf
cp $pkg/DEBIAN/postinst $ofi/DEBIAN/postinst
close_package $pkg
close_package $ofi

# The installer gives no network either: what its packages depend on besides one
# another has to be there.
for ubuntu in 2204 2404; do
	case $ubuntu in 2204) depends="udev, lsb-base" ;; *) depends=udev ;; esac
	core=$(package rdma-core $RDMA_CORE "" "$depends" "EFA's rdma-core")
	close_package $core
	mv /mnt/out/rdma-core_*_$ARCH.deb /mnt/out/ubuntu$ubuntu.rdma-core_${RDMA_CORE}_$ARCH.deb
done

mpi=$(package openmpi40-aws $OPENMPI-1 "" "libc6, environment-modules, tcl" "EFA's Open MPI")
mkdir /tmp/ompi && cp -r /mnt/in/openmpi /tmp/ompi/src
printf 'VERSION := %s\n' $OPENMPI > /tmp/ompi/src/standin.mk
cd /tmp/ompi
sh src/configure --prefix=$top/openmpi --with-hwloc=internal > /dev/null
make -j2 UNITS=1 install DESTDIR=$mpi > /dev/null
close_package $mpi
