make -j"$(nproc)" CUDA="$CUDA_HOME" prefix=/usr libdir="$LIB" DESTDIR=/out lib_install exes_install
