[ ! -d /run/assay/gdrcopy ] || cp -a /run/assay/gdrcopy/usr/. /usr/
mkdir -p external/gpunetio config/m4 config/aux
tar -xf /run/assay/gpunetio -C external/gpunetio --strip-components=1 --no-same-owner
autoreconf --install # autogen.sh would ask git for gpunetio
./contrib/configure-release --prefix=/usr/local/ucx --disable-static --enable-mt --with-verbs --with-rdmacm --with-mlx5 \
  --with-cuda="$CUDA_HOME" --with-nvcc-gencode="$GENCODE" --without-rocm --without-xpmem --without-knem --without-fuse3 --without-java --without-go
make -j"$(nproc)"
make install-strip DESTDIR=/out
find /out -name '*.la' -delete
