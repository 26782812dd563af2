./autogen.sh
./configure --prefix=/usr CUDA_H_PATH=/run/assay/cuda/include/cuda.h
make -j"$(nproc)" NVCC="$NVCC"
make install NVCC="$NVCC" DESTDIR=/out
