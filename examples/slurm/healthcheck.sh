#!/bin/sh
# HealthCheckProgram of slurm.conf: slurmd runs it as root on each node, every
# HealthCheckInterval, and kills it after 60 seconds, so it makes the passive
# checks alone and ends before. Its status means nothing to Slurm: the harness
# drains the node itself, and takes it back when all is well, but only a node
# that it drained.
#
# slurmd gives it no environment but SLURMD_NODENAME: whatever else it needs,
# SLURM_CONF where that is not the usual file, goes into assay.conf.
set -u
PATH=${PATH:-}:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

ASSAY_HARNESS=/opt/assay/bin/harness ASSAY_SECONDS=45 ASSAY_ON_ERROR=ignore ASSAY_RESUME=yes
# shellcheck source=/dev/null
if [ -r "${0%/*}/assay.conf" ]; then . "${0%/*}/assay.conf"; fi

set -- --slurm=health
if [ "$ASSAY_RESUME" = yes ]; then set -- "$@" --slurm-resume; fi
if [ "$ASSAY_ON_ERROR" = drain ]; then set -- "$@" --slurm-on-error; fi

exec timeout -k 5 "$ASSAY_SECONDS" "$ASSAY_HARNESS" certify --suite node --only health "$@" >/dev/null
