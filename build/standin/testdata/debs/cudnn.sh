#!/bin/sh
# Makes the stand-in cuDNN packages of one version.
# Needs: VERSION (9.10.2.21-1), CUDA_MAJOR, ARCH, MULTIARCH; FAULT.
set -eu
. /mnt/in/debs/lib.sh
v=${VERSION%-*} lib=/usr/lib/$MULTIARCH inc=/usr/include/$MULTIARCH
soversion=${v%.*}
major=${v%%.*} rest=${soversion#*.} minor=${rest%%.*} patch=${rest#*.}
[ "${FAULT-}" = wrong-version ] && { major=1 minor=0 patch=0; }
code=$((major * 10000 + minor * 100 + patch))

pkg=$(package libcudnn9-cuda-$CUDA_MAJOR $VERSION "" libc6 "cuDNN runtime")
mkdir -p $pkg$lib
for part in cudnn cudnn_graph cudnn_ops cudnn_cnn cudnn_adv; do
	gcc -O2 -shared -fPIC -DPART=$part -DCODE=$code -Wl,-soname,lib$part.so.9 /mnt/in/debs/cudnn.c \
		-o $pkg$lib/lib$part.so.$soversion $(fault_libs)
	ln -s lib$part.so.$soversion $pkg$lib/lib$part.so.9
done
close_package $pkg

pkg=$(package libcudnn9-headers-cuda-$CUDA_MAJOR $VERSION "" "" "cuDNN headers")
mkdir -p $pkg$inc $pkg/usr/include
printf '/* Stand-in for cuDNN'"'"'s version header. */\n#define CUDNN_MAJOR %s\n#define CUDNN_MINOR %s\n#define CUDNN_PATCHLEVEL %s\n' \
	$major $minor $patch > $pkg$inc/cudnn_version_v9.h
printf '/* Stand-in for cuDNN'"'"'s header. */\n#include "cudnn_version_v9.h"\n#include <stddef.h>\nsize_t cudnnGetVersion(void);\n' > $pkg$inc/cudnn_v9.h
ln -s $MULTIARCH/cudnn_v9.h $pkg/usr/include/cudnn.h
ln -s $MULTIARCH/cudnn_version_v9.h $pkg/usr/include/cudnn_version.h
close_package $pkg

pkg=$(package libcudnn9-dev-cuda-$CUDA_MAJOR $VERSION "" \
	"libcudnn9-cuda-$CUDA_MAJOR (= $VERSION), libcudnn9-headers-cuda-$CUDA_MAJOR (= $VERSION)" "cuDNN development files")
mkdir -p $pkg$lib
for part in cudnn cudnn_graph cudnn_ops cudnn_cnn cudnn_adv; do ln -s lib$part.so.9 $pkg$lib/lib$part.so; done
close_package $pkg
