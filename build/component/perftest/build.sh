./autogen.sh
./configure --prefix=/usr CUDA_H_PATH=/run/assay/cuda/include/cuda.h LDFLAGS=-L/run/assay/cuda/lib64/stubs
make -j"$(nproc)" NVCC="$NVCC"
make install NVCC="$NVCC" DESTDIR=/out
