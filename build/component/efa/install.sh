mkdir /tmp/efa
tar -xzf /run/assay/efa.tar.gz -C /tmp/efa --strip-components=1 --no-same-owner
cd /tmp/efa
export DEBIAN_FRONTEND=noninteractive
./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify
cd /
rm -rf /tmp/efa /opt/amazon/openmpi /opt/amazon/openmpi5 /etc/ld.so.conf.d/000_efa.conf /etc/ld.so.conf.d/100_ofinccl.conf
set -- $(find /opt -name libnccl-net-ofi.so)
if [ $# != 1 ]; then echo "the EFA installer left $# files libnccl-net-ofi.so, not one: $*" >&2; exit 1; fi
ln -s "${1%/*}" /opt/amazon/nccl-plugin
# The plugin keeps its own name only: NCCL loads the generic one unasked.
rm -f /opt/amazon/nccl-plugin/libnccl-net.so*
