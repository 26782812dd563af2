#!/bin/sh
# Prolog of slurm.conf: slurmd runs it as root on each node of a job before the
# job starts there. Where a check fails, the harness drains the node with the
# reason, and the status 1 keeps the job away: a batch job is requeued, and held
# unless SchedulerParameters has nohold_on_prolog_fail.
#
# The harness's status 1 is a failed check; 2, 3, and those of timeout (124,
# 137) say that checks could not be carried out, which alone is no reason to
# drain a node: assay.conf can say otherwise.
set -u
PATH=${PATH:-}:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

ASSAY_HARNESS=/opt/assay/bin/harness ASSAY_SECONDS=45 ASSAY_ON_ERROR=ignore
# shellcheck source=/dev/null
if [ -r "${0%/*}/assay.conf" ]; then . "${0%/*}/assay.conf"; fi

set -- --slurm=prolog
if [ "$ASSAY_ON_ERROR" = drain ]; then set -- "$@" --slurm-on-error; fi

status=0
timeout -k 5 "$ASSAY_SECONDS" "$ASSAY_HARNESS" certify --suite node --only health "$@" >/dev/null || status=$?
case $status:$ASSAY_ON_ERROR in
0:*) exit 0 ;;
1:* | *:drain) exit 1 ;;
esac
exit 0
