#!/bin/bash
# Stand-in for AWS's EFA installer @VERSION@. Options as there; what a container
# must leave out (-k, -l, -n) is refused where it is not left out, because there
# is no kernel to build for and no device to verify on.
set -eu
usage() { echo "usage: efa_installer.sh [-y] [-k|--skip-kmod] [-l|--skip-limit-conf] [-n|--no-verify] [-m|--minimal] [-g|--enable-gdr] [--mpi=openmpi4|openmpi5] [-s|--skip-plugin]"; }
yes= kmod=1 limits=1 verify=1 minimal= plugin=1
for arg; do
	case $arg in
	-y | --yes) yes=1 ;;
	-k | --skip-kmod) kmod= ;;
	-l | --skip-limit-conf) limits= ;;
	-n | --no-verify) verify= ;;
	-m | --minimal) minimal=1 ;;
	-s | --skip-plugin) plugin= ;;
	-g | --enable-gdr | --mpi=openmpi4 | --mpi=openmpi5 | --check-signatures | --disable-build-ngc | --enable-ngc) ;;
	-h | --help) usage; exit ;;
	*) echo "Unknown option: $arg" >&2; usage >&2; exit 1 ;;
	esac
done
[ -n "$yes" ] || { echo "Error: the stand-in does not ask; give -y" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "Error: run as root" >&2; exit 1; }
[ -z "$kmod" ] || { echo "Error: kernel headers not found; --skip-kmod leaves the EFA driver out" >&2; exit 1; }
cd "$(dirname "$0")"
. /etc/os-release
case $ID$VERSION_ID in
ubuntu22.04 | ubuntu24.04) ;;
*) echo "Error: $ID $VERSION_ID is not supported by installer @VERSION@" >&2; exit 1 ;;
esac
debs=DEBS/UBUNTU${VERSION_ID//./}/$(uname -m)
[ -d "$debs" ] || { echo "Error: this stand-in has no packages for $(uname -m)" >&2; exit 1; }

echo "= Starting Amazon Elastic Fabric Adapter installation (stand-in @VERSION@) ="
packages=("$debs"/rdma-core/*.deb)
if [ -z "$minimal" ]; then
	packages+=("$debs"/libfabric/*.deb "$debs"/openmpi/*.deb)
	[ -z "$plugin" ] || packages+=("$debs"/aws-ofi-nccl/*.deb)
fi
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends --allow-downgrades --allow-change-held-packages "${packages[@]/#/./}"
[ -z "$limits" ] || printf '* soft memlock unlimited\n* hard memlock unlimited\n' > /etc/security/limits.d/01_efa.conf
mkdir -p /opt/amazon /etc/profile.d
{
	echo "# EFA installer version: @VERSION@"
	echo "# Packages installed (stand-ins):"
	for p in "${packages[@]}"; do basename "$p" .deb; done
} > /opt/amazon/efa_installed_packages
printf 'PATH="/opt/amazon/efa/bin:/opt/amazon/openmpi/bin/:$PATH"\n' > /etc/profile.d/zippy_efa.sh
[ -z "$verify" ] || { echo "Error: no EFA device; --no-verify skips the test" >&2; exit 1; }
echo "EFA installation complete (stand-in)."
