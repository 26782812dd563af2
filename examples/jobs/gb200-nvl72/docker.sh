#!/bin/bash
# GB200 NVL72, InfiniBand; 1 node of 4 GPUs.
# Written by assay jobs render for profile gb200-nvl72; render it again rather than edit it.
# On each node harness exec sets the variables of NCCL, UCX and libfabric that suit it.
set -euo pipefail

# RDMA: memory is pinned, and its device files must be in the container.
rdma=(--ulimit memlock=-1 --cap-add IPC_LOCK)
if [ -d /dev/infiniband ]; then rdma+=(--device /dev/infiniband); fi

# NVIDIA_IMEX_CHANNELS: IMEX channel 0, for NVLink memory of other nodes [cw-head]
# Certificate and reports go to $out.
out=$PWD/assay-gb200-nvl72-1x4-$(date +%Y%m%d-%H%M%S)
mkdir -p "$out"

timeout 1800 docker run --rm --gpus all --network host --ipc host "${rdma[@]}" --env \
  NVIDIA_IMEX_CHANNELS=0 --volume "$out:$out" \
  ghcr.io/assay-hpc/assay:13.4.2-devel-ubuntu26.04-nccl2.32.3-1 /opt/assay/bin/harness exec -- \
  /opt/assay/bin/harness certify --suite node --output "$out"
