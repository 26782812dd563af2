cp -a /run/assay/ucx/. /run/assay/ucc/. /
printf '%s\n' /usr/local/ucx/lib /usr/local/ucc/lib > /etc/ld.so.conf.d/build.conf
ldconfig
# What ompi_info says of who compiled it, and where.
export USER=assay HOSTNAME=assay
./configure --prefix=/usr/local/mpi --disable-static --with-ucx=/usr/local/ucx --with-ucc=/usr/local/ucc --with-cuda="$CUDA_HOME" --with-cuda-libdir="$CUDA_HOME/lib64/stubs" \
  --with-hwloc=external --with-libevent=external --with-pmix=internal --with-prrte=internal --with-slurm --without-ofi --enable-prte-prefix-by-default
make -j"$(nproc)"
make install-strip DESTDIR=/out
find /out -name '*.la' -delete
