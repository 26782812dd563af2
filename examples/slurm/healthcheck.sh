#!/bin/sh
# HealthCheckProgram of slurm.conf: slurmd runs it as root on each node, every
# HealthCheckInterval, and kills it after 60 seconds, so it makes the passive
# checks alone and ends before. Its status means nothing to Slurm: the harness
# drains the node itself, and takes it back when all is well, but only a node
# that it drained for one of these checks: what failed under load is measured
# again by hand (harness certify --after).
#
# slurmd gives it no environment but SLURMD_NODENAME: whatever else it needs,
# SLURM_CONF where that is not the usual file, goes into assay.conf.
set -u
# shellcheck source=/dev/null
. "${0%/*}/checks.sh"

set -- --slurm=health
if [ "$ASSAY_RESUME" = yes ]; then set -- "$@" --slurm-resume; fi
certify "$@"
