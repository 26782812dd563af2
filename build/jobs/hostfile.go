package jobs

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// hostfile returns a hostfile for mpirun, with the mpirun command in a comment.
// DeepSpeed, for which slots are GPUs, can read it, too: both accept "host slots=N"
// lines and skip comments.
func (j *job) hostfile() []byte {
	var s script
	for _, r := range j.remarks() {
		s.comment(r)
	}
	s.comment("")
	s.comment("As FILE, Open MPI starts it so; -x hands a variable on to the ranks:")
	for _, v := range j.vars {
		s.comment("  " + v.Name + ": " + v.reason())
	}
	words := append([]string{"mpirun", "--hostfile", "FILE"}, j.placed()...)
	for _, v := range j.vars {
		words = append(words, "-x", quote(v.Name+"="+v.Value))
	}
	for _, w := range j.onNode(j.resultsDir()) {
		words = append(words, quote(w))
	}
	s.comment("  " + strings.Join(words, " "))
	if j.certifies() {
		s.comment(j.results("the directory " + j.resultsDir() + " on the first host"))
		s.comment("With --enable-recovery mpirun's own status says nothing, and it waits for a host that died: the report has the verdict.")
	} else {
		s.comment("DeepSpeed reads the same file: deepspeed --hostfile FILE SCRIPT")
	}
	for _, h := range j.Hosts {
		s.line(fmt.Sprintf("%s slots=%d", h, j.slots))
	}
	return s.bytes()
}

// resultsDir is the directory for certificates. Unless the options set it, it is
// relative to the directory in which mpirun is called.
func (j *job) resultsDir() string { return cmp.Or(j.OutputDir, j.Name) }

// rankCommand returns the command's words, quoted for a shell.
func (j *job) rankCommand() []string {
	var out []string
	for _, w := range j.command {
		out = append(out, quote(w))
	}
	return out
}

var hostRange = regexp.MustCompile(`^([^\[\]]*)\[([0-9]+)-([0-9]+)\]([^\[\]]*)$`)

// Hosts parses a list of hosts as Slurm writes it: "a,b" or "node[01-08]". Numbers
// keep their leading zeros.
func Hosts(list string) ([]string, error) {
	var out []string
	for _, part := range strings.Split(list, ",") {
		if !strings.ContainsAny(part, "[]") {
			out = append(out, strings.TrimSpace(part))
			continue
		}
		m := hostRange.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return nil, fmt.Errorf("%q is not a list of hosts: write node01,node02 or node[01-08]", part)
		}
		from, err1 := strconv.Atoi(m[2])
		to, err2 := strconv.Atoi(m[3])
		if err1 != nil || err2 != nil || to < from || to-from >= 100000 {
			return nil, fmt.Errorf("%q: the range ends before it begins, or is too long", part)
		}
		for n := from; n <= to; n++ {
			out = append(out, fmt.Sprintf("%s%0*d%s", m[1], len(m[2]), n, m[4]))
		}
	}
	return out, nil
}
