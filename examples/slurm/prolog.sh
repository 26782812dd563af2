#!/bin/sh
# Prolog of slurm.conf: slurmd runs it as root on each node of a job before the
# job starts there. Where a check fails, the harness drains the node with the
# reason, and the status 1 keeps the job away: a batch job is requeued, and held
# unless SchedulerParameters has nohold_on_prolog_fail.
#
# That checks could not run is alone no reason to drain a node:
# assay.conf can say otherwise.
set -u
# shellcheck source=/dev/null
. "${0%/*}/checks.sh"

status=0
certify --slurm=prolog || status=$?
case $status:$ASSAY_ON_ERROR in
0:*) exit 0 ;;
1:* | *:drain) exit 1 ;;
esac
exit 0
