#!/bin/sh
# Fetches Debian's RDMA packages from the archive that the root is set up for.
# Needs: network.
set -eu
cp /mnt/resolv.conf /etc/resolv.conf
apt-get -q update
cd /mnt/out
apt-get -q -o APT::Sandbox::User=root download libibverbs1 libibverbs-dev ibverbs-utils ibverbs-providers \
	librdmacm1 librdmacm-dev rdmacm-utils libibumad3 libibumad-dev libibmad5 libibmad-dev \
	libibnetdisc5 infiniband-diags
