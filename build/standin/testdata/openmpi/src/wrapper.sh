#!/bin/sh
# Stand-in for Open MPI's compiler wrapper. OPAL_PREFIX moves the installation.
prefix=${OPAL_PREFIX:-@PREFIX@}
flags="-I$prefix/include" libs="-L$prefix/lib -Wl,-rpath,$prefix/lib -lmpi"
case ${1-} in
-showme:compile | --showme:compile) echo "$flags"; exit ;;
-showme:link | --showme:link) echo "$libs"; exit ;;
-showme | --showme | -show) echo "${@OVERRIDE@:-@DEFAULT@} $flags $libs"; exit ;;
esac
for arg; do
	case $arg in
	-c | -E | -S | -M | -MM) exec ${@OVERRIDE@:-@DEFAULT@} $flags "$@" ;;
	esac
done
exec ${@OVERRIDE@:-@DEFAULT@} $flags "$@" $libs
