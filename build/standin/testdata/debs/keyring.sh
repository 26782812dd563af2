#!/bin/sh
# Makes the cuda-keyring package, as the CUDA repository has it.
# Needs: SOURCE_LINE, SOURCE_FILE (the sources.list line and its file's name).
set -eu
. /mnt/in/debs/lib.sh
pkg=$(package cuda-keyring 1.1-1 all "" "Key and source of the stand-in CUDA repository")
mkdir -p $pkg/usr/share/keyrings $pkg/etc/apt/sources.list.d
cp /mnt/key.gpg $pkg/usr/share/keyrings/cuda-archive-keyring.gpg
echo "$SOURCE_LINE" > $pkg/etc/apt/sources.list.d/$SOURCE_FILE
close_package $pkg
