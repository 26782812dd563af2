# One call of nvcc: its own build needs a newer CMake than the oldest Ubuntu has. Boost's archive is
# passed as a file because nvcc does not keep -Bstatic in front of the library that it applies to,
# and no image contains the shared library.
mkdir -p /out/usr/bin
# shellcheck disable=SC2046,SC2086
nvcc -std=c++17 -O3 $GENCODE -I. -DGIT_VERSION='"v'"$VERSION"'"' -o /out/usr/bin/nvbandwidth $(ls ./*.cpp ./*.cu json/*.cpp 2>/dev/null) \
  "$LIB/libboost_program_options.a" -L"$CUDA_HOME/lib64/stubs" -lnvidia-ml -lcuda
