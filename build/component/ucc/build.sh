cp -a /run/assay/ucx/. /
./autogen.sh
./configure --prefix=/usr/local/ucc --disable-static --with-ucx=/usr/local/ucx --with-cuda="$CUDA_HOME" --with-nvcc-gencode="$GENCODE" \
  --with-ibverbs --with-rdmacm --without-nccl --without-rocm --without-sharp
make -j"$(nproc)"
make install-strip DESTDIR=/out
find /out -name '*.la' -delete
