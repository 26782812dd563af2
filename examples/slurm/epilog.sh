#!/bin/sh
# Epilog of slurm.conf: slurmd runs it as root on each node of a job when the
# job has ended there. Where a check fails, the harness drains the node with the
# reason; any status but 0 of an epilog drains it, too, so that a failed check is
# one even where the controller did not hear the reason. Statuses are those of
# prolog.sh.
set -u
PATH=${PATH:-}:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

ASSAY_HARNESS=/opt/assay/bin/harness ASSAY_SECONDS=45 ASSAY_ON_ERROR=ignore
# shellcheck source=/dev/null
if [ -r "${0%/*}/assay.conf" ]; then . "${0%/*}/assay.conf"; fi

set -- --slurm=epilog
if [ "$ASSAY_ON_ERROR" = drain ]; then set -- "$@" --slurm-on-error; fi

status=0
timeout -k 5 "$ASSAY_SECONDS" "$ASSAY_HARNESS" certify --suite node --only health "$@" >/dev/null || status=$?
case $status:$ASSAY_ON_ERROR in
0:*) exit 0 ;;
1:* | *:drain) exit 1 ;;
esac
exit 0
