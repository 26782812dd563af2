#!/bin/sh
# Builds the tree of a stand-in HPC-X into /mnt/out/tree. @DIST@ in its text
# files becomes the distribution's name when it is packed.
# Needs: VERSION (2.23), OMPI (4.1.7a1), UCX (1.19.0), ARCH, a root with
# libibverbs-dev; FAULT.
set -eu
. /mnt/in/debs/lib.sh
out=/mnt/out/tree prefix=/build-result/@DIST@
src=/mnt/in/hpcx
since() { echo "$VERSION" | awk -F. '{ print ($1 * 100 + $2 >= '$1') }'; }
two_mpis=$(since 226)
mkdir -p $out/sources
echo "HPC-X v$VERSION (stand-in)" > $out/VERSION
printf 'A stand-in for HPC-X v%s, made by assay'"'"'s tests. Nothing here is NVIDIA'"'"'s.\n' "$VERSION" > $out/README-stand-in.txt

# library DIR NAME SONUMBER [FLAGS…]: DIR/lib/libNAME.so.N and what goes with it
library() {
	dir=$out/$1 name=$2 so=$3
	shift 3
	mkdir -p $dir/lib/pkgconfig
	gcc -O2 -shared -fPIC -DNAME=$name -DVERSION="\"$version\"" -Wl,-soname,lib$name.so.$so $src/library.c \
		-o $dir/lib/lib$name.so.$so.0.0 -Wl,--no-as-needed "$@" -Wl,--allow-shlib-undefined
	ln -s lib$name.so.$so.0.0 $dir/lib/lib$name.so.$so
	ln -s lib$name.so.$so $dir/lib/lib$name.so
	printf "# stand-in libtool archive\ndlname='lib%s.so.%s'\nlibdir='%s/%s/lib'\n" $name $so $prefix ${dir#$out/} > $dir/lib/lib$name.la
}
pc() { # DIR NAME VERSION
	printf 'prefix=%s/%s\nlibdir=${prefix}/lib\nName: %s\nDescription: stand-in\nVersion: %s\nCflags: -I${prefix}/include\nLibs: -L${libdir} -l%s\n' \
		$prefix $1 $2 $3 $2 > $out/$1/lib/pkgconfig/$2.pc
}
program() { # DIR NAME LIB
	mkdir -p $out/$1/bin
	gcc -O2 -DNAME=$3 -DPROGRAM=\"$2\" $src/program.c -o $out/$1/bin/$2 -L$out/$1/lib -Wl,--no-as-needed -l$3 -Wl,--allow-shlib-undefined
}
header() { # DIR PATH
	mkdir -p $out/$1/include/${2%/*}
	echo "/* stand-in */" > $out/$1/include/$2
}

ucx() { # DIR: UCX, and its debug and multithreaded variants
	version=$UCX
	library $1 ucm 0
	library $1 ucs 0
	library $1 uct 0 -L$out/$1/lib -lucs
	library $1 ucp 0 -DUSES=uct -L$out/$1/lib -luct -lucs -lucm $(fault_libs)
	mkdir -p $out/$1/lib/ucx
	gcc -O2 -shared -fPIC -DNAME=uct_ib -DVERSION="\"$UCX\"" -Wl,-soname,libuct_ib.so.0 $src/library.c \
		-o $out/$1/lib/ucx/libuct_ib.so.0 -Wl,--no-as-needed -libverbs -L$out/$1/lib -luct
	gcc -O2 -shared -fPIC -DNAME=uct_xpmem -DVERSION="\"$UCX\"" -Wl,-soname,libuct_xpmem.so.0 $src/library.c \
		-o $out/$1/lib/ucx/libuct_xpmem.so.0 -Wl,--no-as-needed /tmp/libxpmem.so -L$out/$1/lib -luct
	pc $1 ucp $UCX
	program $1 ucx_info ucp
	header $1 ucp/api/ucp.h
	mkdir -p $out/$1/lib/cmake/ucx
	echo "set(UCX_PREFIX \"$prefix/$1\") # stand-in" > $out/$1/lib/cmake/ucx/ucx-config.cmake
}
# OFED has the library that one of UCX's transports needs.
printf 'int xpmem_version(void) { return 0; }\n' | gcc -shared -fPIC -x c - -Wl,-soname,libxpmem.so.0 -o /tmp/libxpmem.so
[ "${FAULT-}" = wrong-version ] && UCX=0.0.1 OMPI=0.0.1
ucx ucx
mkdir -p $out/ucx/mt $out/ucx/debug
ucx ucx/mt
ucx ucx/debug

version=$VERSION
library ucc ucc 1 -L$out/ucx/lib -lucs
mkdir -p $out/ucc/lib/ucc
gcc -O2 -shared -fPIC -DNAME=ucc_tl_ucp -DVERSION="\"$VERSION\"" $src/library.c -o $out/ucc/lib/ucc/libucc_tl_ucp.so \
	-Wl,--no-as-needed -L$out/ucx/lib -lucp -lucs -Wl,--allow-shlib-undefined
pc ucc ucc 1.5.0; program ucc ucc_info ucc; header ucc ucc/api/ucc.h
library sharp sharp 5
library sharp sharp_coll 5 -DUSES=sharp -L$out/sharp/lib -lsharp -libverbs
pc sharp sharp $VERSION; program sharp sharp_hello sharp_coll; header sharp sharp/api/sharp.h
library hcoll hcoll 1 -DUSES=sharp_coll -L$out/ucx/lib -lucp -L$out/sharp/lib -lsharp_coll
pc hcoll hcoll 4.8; program hcoll hcoll_info hcoll; header hcoll hcoll/api/hcoll_api.h
library nccl_rdma_sharp_plugin nccl-net 0 -DNET_PLUGIN -L$out/sharp/lib -lsharp_coll -libverbs
if [ $two_mpis = 1 ]; then
	ln -s libnccl-net.so $out/nccl_rdma_sharp_plugin/lib/libnccl-net-ibext.so
	mkdir -p $out/nccl_spectrum-x_plugin/lib
	spcx=$out/nccl_spectrum-x_plugin/lib/libnccl-net-spcx.so
	gcc -O2 -shared -fPIC -DNAME=spcx -DNET_PLUGIN -DVERSION="\"$VERSION\"" $src/library.c -o $spcx -Wl,--no-as-needed -libverbs
	if [ $(since 250) = 1 ]; then # it has the generic name, too
		mv $spcx ${spcx%-spcx.so}.so
		ln -s libnccl-net.so $spcx
	fi
fi
if [ "$ARCH" = amd64 ] || [ $(since 251) = 1 ]; then
	mkdir -p $out/clusterkit/bin
	printf '#!/bin/sh\n# Stand-in for clusterkit.\necho "clusterkit (stand-in)"\n' > $out/clusterkit/bin/clusterkit.sh
	chmod 0755 $out/clusterkit/bin/clusterkit.sh
fi

# The shipped Open MPI: the sources that are in sources/, in little.
mpi() { # DIR VERSION
	rm -rf /tmp/ompi && mkdir /tmp/ompi
	cp -r /mnt/in/openmpi /tmp/ompi/src
	printf 'VERSION := %s\n' $2 > /tmp/ompi/src/standin.mk
	cd /tmp/ompi
	sh src/configure --prefix=$prefix/$1 --with-hwloc=internal > /dev/null
	sed -i 's|PREFIX ".*"|PREFIX "/build-result"|; s|COMMAND ".*"|COMMAND "prebuilt"|' config.h
	make -j2 UNITS=1 install DESTDIR=/tmp/ompi/dest > /dev/null
	cp -a "/tmp/ompi/dest$prefix/$1" $out/$1
	for d in osu-micro-benchmarks osu-micro-benchmarks-cuda; do
		mkdir -p $out/$1/tests/$d
		echo stand-in > $out/$1/tests/$d/README
	done
}
if [ $two_mpis = 1 ]; then
	mpi ompi4 $OMPI
	mpi ompi5 5.0.10a1
	ln -s ompi4 $out/ompi
	sed 's|/ompi\b|/ompi4|g' $src/hpcx-init.sh > $out/hpcx-init.sh
	sed 's|/ompi\b|/ompi5|g' $src/hpcx-init.sh > $out/hpcx-init-ompi5.sh
else
	mpi ompi $OMPI
	cp $src/hpcx-init.sh $out/hpcx-init.sh
fi
