make -j"$(nproc)" pkg.debian.build CXX="$CXX" CUDA_HOME="$CUDA_HOME" NVCC_GENCODE="$GENCODE" PKG_TIMESTAMP="$(date -Ru -d "@$SOURCE_DATE_EPOCH")"
mkdir -p /out/deb /out/tree
for p in libnccl2 libnccl-dev; do
  cp build/pkg/deb/${p}_*.deb /out/deb/$p.deb
  dpkg-deb -x /out/deb/$p.deb /out/tree
done
