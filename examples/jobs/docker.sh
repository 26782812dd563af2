#!/bin/bash
# any node; harness exec finds the settings; 1 node of 8 GPUs.
# Written by assay jobs render for profile generic; render it again rather than edit it.
# On each node harness exec sets the variables of NCCL, UCX and libfabric that suit it.
set -euo pipefail

# RDMA: memory is pinned, and its device files must be in the container.
rdma=(--ulimit memlock=-1 --cap-add IPC_LOCK)
if [ -d /dev/infiniband ]; then rdma+=(--device /dev/infiniband); fi

# Certificate and reports go to $out.
out=$PWD/assay-generic-1x8-$(date +%Y%m%d-%H%M%S)
mkdir -p "$out"

timeout 1800 docker run --rm --gpus all --network host --ipc host "${rdma[@]}" --volume "$out:$out" \
  ghcr.io/assay-hpc/assay:13.4.2-devel-ubuntu26.04-nccl2.32.3-1 /opt/assay/bin/harness exec -- \
  /opt/assay/bin/harness certify --suite node --out "$out/"
