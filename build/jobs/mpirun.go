package jobs

import (
	"slices"
	"strconv"
)

// placed are mpirun's options for how many processes there are, and where.
func (j *job) placed() []string {
	words := []string{"-np", strconv.Itoa(j.ranks), "--map-by", "slot", "--bind-to", "none"}
	if j.certifies() {
		// A process or host that dies is a result of the run, not its end.
		words[3] = "ppr:1:node"
		words = append(words, "--enable-recovery")
	}
	return words
}

// With --enable-recovery mpirun forgets what its ranks ended with, and waits for
// ever for a host that died. So each of the first ranks, as many as make a
// certificate, says what it ended with (tell), and the launcher goes by that
// (follow): when all have, it ends with the highest, and gives mpirun some seconds
// to end by itself. Both get that number as their first argument. sshd hands
// nothing of the pod's environment on, but is process 1 and has the node's name;
// mpirun gives ranks a terminal, which the log is not.
const (
	told = "assay: ended with status "

	tell = `while IFS= read -r -d '' v; do
  case $v in NODE_NAME=*) export "$v" ;; esac
done </proc/1/environ
export NO_COLOR=1
status=0
"${@:2}" || status=$?
if [ "$OMPI_COMM_WORLD_RANK" -lt "$1" ]; then echo "` + told + `$status"; fi
exit "$status"`

	follow = `left=$1 status=0
exec 3< <(exec "${@:2}")
run=$!
while [ "$left" -gt 0 ]; do
  if ! IFS= read -r line <&3; then
    [ "$status" -gt 3 ] || status=3
    break
  fi
  case $line in
  *'` + told + `'*)
    printf '%s' "${line%'` + told + `'*}"
    one=${line##* }
    [ "$one" -le "$status" ] || status=$one
    ((left--)) ;;
  *) printf '%s\n' "$line" ;;
  esac
done
for _ in 1 2 3 4 5 6 7 8 9 10; do
  kill -0 "$run" 2>/dev/null || exit "$status"
  sleep 1
done
kill "$run"
exit "$status"
`
)

// tellers are the ranks that make a certificate: rank 0 of those that make one
// together.
func (j *job) tellers() int {
	if j.apart() {
		return j.ranks
	}
	return 1
}

// mpirun's arguments on Kubernetes. What ranks must have is handed on by name:
// sshd gives them nothing of the pod's environment.
func (j *job) mpirun() []string {
	args := append([]string{"--allow-run-as-root", "--hostfile", "/etc/mpi/hostfile"}, j.placed()...)
	if j.Run == RunNCCL && j.profile.Image == "" { // NCCL's plugins and HPC-X, as the image sets it
		args = append(args, "-x", "LD_LIBRARY_PATH")
	}
	for _, v := range j.vars {
		args = append(args, "-x", v.Name)
	}
	if !j.certifies() {
		return append(args, j.command...)
	}
	args = append(args, "bash", "-c", tell, "-", strconv.Itoa(j.tellers()))
	return append(args, j.onNode(j.output())...)
}

// onNode is the command of a process that mpirun starts, with the certificates'
// directory, if there is one: a node's own below it, where nodes run apart.
func (j *job) onNode(dir string) []string {
	if j.apart() && dir != "" {
		return append([]string{"sh", "-c", `dir=$1; shift; exec "$@" --out "$dir/${NODE_NAME:-$(hostname)}/"`, "-", dir}, j.command...)
	}
	if j.certifies() && dir != "" {
		return append(slices.Clone(j.command), "--out", dir+"/")
	}
	return j.command
}
