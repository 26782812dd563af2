# shellcheck shell=sh disable=SC2034
# Read by prolog.sh, epilog.sh and healthcheck.sh: what assay.conf says, and the
# checks that it asks for.
PATH=${PATH:-}:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

ASSAY_HARNESS=/opt/assay/bin/harness ASSAY_GPUS='' ASSAY_PORTS='' ASSAY_HARDWARE='' ASSAY_SUITE=node ASSAY_ONLY=health
ASSAY_THRESHOLDS='' ASSAY_SECONDS=45 ASSAY_ON_ERROR=ignore ASSAY_RESUME=yes
# shellcheck source=/dev/null
if [ -r "${0%/*}/assay.conf" ]; then . "${0%/*}/assay.conf"; fi

# tell writes a line to slurmd and to the system's log.
tell() {
  echo "assay: $*" >&2
  logger -t assay "$*" 2>/dev/null || :
}

# configured reports whether assay.conf can be meant as it is, and says what is wrong.
configured() {
  wrong=''
  case $ASSAY_GPUS in
  '' | *[!0-9]*) wrong="ASSAY_GPUS must say how many GPUs each node should have, 0 for none: on a node that is well, nvidia-smi -L | wc -l counts them (it says '$ASSAY_GPUS')" ;;
  esac
  case $ASSAY_PORTS in *[!0-9]*) wrong="ASSAY_PORTS is a number of ports, or empty, not '$ASSAY_PORTS'" ;; esac
  case ${ASSAY_SECONDS%s} in '' | 0* | *[!0-9]*) wrong="ASSAY_SECONDS is a number of seconds from 1 on, not '$ASSAY_SECONDS'" ;; esac
  case $ASSAY_ON_ERROR in ignore | drain) ;; *) wrong="ASSAY_ON_ERROR is ignore or drain, not '$ASSAY_ON_ERROR'" ;; esac
  case $ASSAY_RESUME in yes | no) ;; *) wrong="ASSAY_RESUME is yes or no, not '$ASSAY_RESUME'" ;; esac
  [ -n "$ASSAY_SUITE" ] || wrong="ASSAY_SUITE must name a suite, such as node"
  for name in $(set | sed -n 's/^\(ASSAY_[A-Za-z0-9_]*\)=.*/\1/p'); do
    case ${name#ASSAY_} in
    GPUS | HARDWARE | PORTS | THRESHOLDS | SUITE | ONLY | HARNESS | SECONDS | ON_ERROR | RESUME) ;;
    *) wrong="there is no setting $name" ;;
    esac
  done
  case $ASSAY_HARNESS$ASSAY_GPUS$ASSAY_PORTS$ASSAY_HARDWARE$ASSAY_SUITE$ASSAY_ONLY$ASSAY_THRESHOLDS$ASSAY_SECONDS$ASSAY_ON_ERROR$ASSAY_RESUME in
  *"$(printf '\r')"*) wrong="its lines end as those of Windows, with CR LF: let them end with LF" ;;
  esac
  [ -z "$wrong" ] || tell "${0%/*}/assay.conf: $wrong"
  [ -z "$wrong" ]
}

# certify runs the harness with its flags after those that assay.conf asks for. Its
# status is the harness's: 1 is a failed check; 2, 3, and those of timeout (124,
# 137) say that checks could not run. A gate of which assay.conf does not
# say what it should be, above all how many GPUs a node should have, lets no job
# pass, and takes no node back.
certify() {
  configured || return 1
  [ -z "$ASSAY_THRESHOLDS" ] || set -- --thresholds "$ASSAY_THRESHOLDS" "$@"
  [ -z "$ASSAY_HARDWARE" ] || set -- --hardware "$ASSAY_HARDWARE" "$@"
  [ -z "$ASSAY_PORTS" ] || set -- --ports "$ASSAY_PORTS" "$@"
  [ -z "$ASSAY_ONLY" ] || set -- --only "$ASSAY_ONLY" "$@"
  [ "$ASSAY_ON_ERROR" != drain ] || set -- "$@" --slurm-on-error
  set -- certify --suite "$ASSAY_SUITE" --gpus "$ASSAY_GPUS" "$@"
  if timeout -k 5 "$ASSAY_SECONDS" "$ASSAY_HARNESS" "$@" >/dev/null; then return 0; else code=$?; fi
  [ "$code" = 1 ] || tell "checks could not run, status $code: $ASSAY_HARNESS $*"
  return "$code"
}
