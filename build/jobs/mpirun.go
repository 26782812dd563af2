package jobs

import (
	"slices"
	"strconv"
)

// placed returns mpirun's options for the number of processes and their placement.
func (j *job) placed() []string {
	words := []string{"-np", strconv.Itoa(j.ranks), "--map-by", "slot", "--bind-to", "none"}
	if j.certifies() {
		// A dead process or host is a result of the run and must not end it.
		words[3] = "ppr:1:node"
		words = append(words, "--enable-recovery")
	}
	return words
}

// With --enable-recovery mpirun loses the exit status of its ranks, and waits forever
// for a dead host. So each rank prints its exit status (tell), and the launcher reads these
// lines (follow): after those of the first N ranks, where N is the number of ranks that
// write a certificate, it gives mpirun ten seconds to exit and returns the highest status.
// If rank 0 alone was to write and was killed, the rank that took over ends with 1 or 3,
// which counts instead. The launcher's script gets N as its first argument. The node's name
// comes from the images' sshd, which passes NODE_NAME on. NO_COLOR is set because mpirun
// gives ranks a terminal, although the output goes to a log.
const (
	told = "assay: ended with status "

	tell = `export NO_COLOR=1
status=0
"$@" || status=$?
echo "` + told + `$status of $OMPI_COMM_WORLD_RANK"
exit "$status"`

	follow = `left=$1 status=0 killed=
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
    one=${line##*'` + told + `'} rank=${line##* }
    one=${one% of *}
    if [ "$rank" -lt "$1" ]; then
      [ "$one" -le "$status" ] || status=$one
      if [ "$1" -eq 1 ] && [ "$one" -gt 3 ]; then killed=yes; else ((left--)); fi
    elif [ "$killed" ] && [ "$one" -ge 1 ] && [ "$one" -le 3 ]; then
      left=0 status=$one
    fi ;;
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

// tellers is the number of ranks that write a certificate: all of them where nodes run
// apart, otherwise only rank 0.
func (j *job) tellers() int {
	if j.apart() {
		return j.ranks
	}
	return 1
}

// mpirun returns mpirun's arguments on Kubernetes. Variables for the ranks are passed on
// by name: sshd gives them nothing of the pod's environment.
func (j *job) mpirun() []string {
	args := append([]string{"--hostfile", "/etc/mpi/hostfile"}, j.placed()...)
	if !j.restricted() {
		args = append([]string{"--allow-run-as-root"}, args...)
	}
	if j.Run == RunNCCL && j.profile.Image == "" { // the image sets it for NCCL's plugins and HPC-X
		args = append(args, "-x", "LD_LIBRARY_PATH")
	}
	for _, v := range j.vars {
		args = append(args, "-x", v.Name)
	}
	if !j.certifies() {
		return append(args, j.command...)
	}
	args = append(args, "bash", "-c", tell, "-")
	return append(args, j.onNode(j.output())...)
}

// onNode returns the command that mpirun starts, with the directory for certificates if
// there is one. Where nodes run apart, each writes to its own subdirectory.
func (j *job) onNode(dir string) []string {
	if j.apart() && dir != "" {
		return append([]string{"sh", "-c", `dir=$1; shift; exec "$@" --out "$dir/${NODE_NAME:-$(hostname)}/"`, "-", dir}, j.command...)
	}
	if j.certifies() && dir != "" {
		return append(slices.Clone(j.command), "--out", dir+"/")
	}
	return j.command
}
