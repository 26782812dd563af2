#!/bin/sh
# Installs the stand-in CUDA toolkit into the root it runs in, laid out as the
# real devel images have it, with stand-in libnccl packages of the base's own
# version on hold, as there.
# Needs: CUDA (12.9.1), NCCL (2.27.3-1), ARCH, MACHINE, MULTIARCH.
set -eu
mm=${CUDA%.*} major=${CUDA%%.*} minor=${mm#*.}
code=$((major * 1000 + minor * 10))
[ "$ARCH" = amd64 ] && target=x86_64-linux || target=sbsa-linux
home=/usr/local/cuda-$mm
dir=$home/targets/$target
mkdir -p $home/bin $home/nvvm/libdevice $dir/include $dir/lib/stubs /etc/alternatives
ln -sfn targets/$target/include $home/include
ln -sfn targets/$target/lib $home/lib64
ln -sfn $home /etc/alternatives/cuda
ln -sfn /etc/alternatives/cuda /usr/local/cuda
ln -sfn $home /etc/alternatives/cuda-$major
ln -sfn /etc/alternatives/cuda-$major /usr/local/cuda-$major

cp /mnt/in/cuda/include/* $dir/include/
sed -i "s/@CUDA_CODE@/$code/" $dir/include/*
for tool in nvcc cuobjdump; do
	sed "s/@CUDA@/$CUDA/g" /mnt/in/cuda/$tool > $home/bin/$tool
	chmod 0755 $home/bin/$tool
done
echo stand-in > $home/nvvm/libdevice/libdevice.10.bc # CMake looks for it
printf '{"cuda": {"name": "CUDA SDK (stand-in)", "version": "%s"}}\n' "$CUDA" > $home/version.json

cc="gcc -O2 -fPIC -I$dir/include"
$cc -c /mnt/in/cuda/cudart.c -o /tmp/cudart.o
ar rcsD $dir/lib/libcudart_static.a /tmp/cudart.o
ar rcsD $dir/lib/libcudadevrt.a
$cc -shared -Wl,-soname,libcudart.so.$major /tmp/cudart.o -o $dir/lib/libcudart.so.$CUDA
ln -sf libcudart.so.$CUDA $dir/lib/libcudart.so.$major
ln -sf libcudart.so.$major $dir/lib/libcudart.so
$cc -shared -Wl,-soname,libcuda.so.1 /mnt/in/cuda/cuda_stub.c -o $dir/lib/stubs/libcuda.so
$cc -shared -Wl,-soname,libnvidia-ml.so.1 /mnt/in/cuda/nvml_stub.c -o $dir/lib/stubs/libnvidia-ml.so
rm -f /tmp/cudart.o

# What is this machine's own: see machine.go.
if [ -e /mnt/machine/cuda.h ]; then cp /mnt/machine/cuda.h $dir/include/; fi
if [ -d /mnt/machine/compiler ]; then cp -r /mnt/machine/compiler $home/; fi

printf '%s\n' /usr/local/cuda/targets/$target/lib > /etc/ld.so.conf.d/000_cuda.conf
printf '/usr/local/nvidia/lib\n/usr/local/nvidia/lib64\n' > /etc/ld.so.conf.d/nvidia.conf
mkdir -p /opt/nvidia
printf '#!/bin/sh\n# Stand-in for the entry point of NVIDIA'"'"'s image.\nexec "$@"\n' > /opt/nvidia/nvidia_entrypoint.sh
chmod 0755 /opt/nvidia/nvidia_entrypoint.sh

. /mnt/in/debs/lib.sh
lib=/usr/lib/$MULTIARCH nver=${NCCL%-*}
pkg=$(package libnccl2 "$NCCL+cuda$mm" "" "libc6" "The base image's own NCCL, to be replaced")
mkdir -p $pkg$lib
printf 'int ncclGetVersion(int *v) { *v = 0; return 0; }\n' | gcc -shared -fPIC -x c - -Wl,-soname,libnccl.so.2 -o $pkg$lib/libnccl.so.$nver
ln -s libnccl.so.$nver $pkg$lib/libnccl.so.2
close_package $pkg
pkg=$(package libnccl-dev "$NCCL+cuda$mm" "" "libnccl2 (= $NCCL+cuda$mm)" "The base image's own NCCL, to be replaced")
mkdir -p $pkg$lib $pkg/usr/include
ln -s libnccl.so.2 $pkg$lib/libnccl.so
echo '/* Stand-in: the header of the NCCL in the base image. */' > $pkg/usr/include/nccl.h
close_package $pkg

# What real devel images hold for desktops: it needs libraries that no image has.
[ "$ARCH" = amd64 ] && desktop=linux-desktop-glibc_2_11_3-x64 || desktop=linux-desktop-t210-a64
nsight=/opt/nvidia/nsight-compute/2025.2.1/host/$desktop
pkg=$(package nsight-compute-2025.2.1 2025.2.1-1 "" "libc6" "Nsight Compute")
mkdir -p $pkg$nsight/Plugins/platforms
echo 'int standin_desktop;' > /tmp/desktop.c
echo 'int main(void) { return 0; }' > /tmp/main.c
gcc -shared -fPIC -Wl,-soname,libstandin-desktop.so.6 /tmp/desktop.c -o /tmp/libdesktop.so
gcc -shared -fPIC -Wl,--no-as-needed /tmp/desktop.c /tmp/libdesktop.so -o $pkg$nsight/Plugins/platforms/libqxcb.so
gcc -Wl,--no-as-needed /tmp/main.c /tmp/libdesktop.so -o $pkg$nsight/ncu-ui.bin
close_package $pkg
pkg=$(package cuda-gdb-$major-$minor $CUDA-1 "" "libc6" "cuda-gdb")
mkdir -p $pkg$home/bin
gcc -Wl,--no-as-needed /tmp/main.c /tmp/libdesktop.so -o $pkg$home/bin/cuda-gdb-python3.9-tui
close_package $pkg
rm -f /tmp/desktop.c /tmp/main.c /tmp/libdesktop.so

dpkg -i /mnt/out/*.deb
apt-mark hold libnccl2 libnccl-dev
ldconfig
rm -rf /var/cache/ldconfig/aux-cache /var/cache/apt/*.bin /var/log/* /var/lib/dpkg/*-old
