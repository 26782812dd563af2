package jobs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// hostfile is what mpirun and DeepSpeed read, with the command that uses it:
// both take "host slots=N" lines and pass over comments.
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
	words := []string{"mpirun", "--hostfile", "FILE", "-np", strconv.Itoa(j.ranks), "--map-by", "slot", "--bind-to", "none"}
	for _, v := range j.vars {
		words = append(words, "-x", quote(v.Name+"="+v.Value))
	}
	words = append(words, j.rankCommand(j.OutputDir)...)
	s.comment("  " + strings.Join(words, " "))
	s.comment("DeepSpeed reads the same file: deepspeed --hostfile FILE SCRIPT")
	for _, h := range j.Hosts {
		s.line(fmt.Sprintf("%s slots=%d", h, j.GPUs))
	}
	return s.bytes()
}

// rankCommand is the command's words, quoted for a shell, with the certificates'
// directory, if there is one.
func (j *job) rankCommand(output string) []string {
	var out []string
	for _, w := range j.withOutput(output) {
		out = append(out, quote(w))
	}
	return out
}

// withOutput is the command with the certificates' directory, if there is one.
func (j *job) withOutput(dir string) []string {
	if j.Run != RunCertify || dir == "" {
		return j.command
	}
	return append(slices.Clone(j.command), "--output", dir)
}

var hostRange = regexp.MustCompile(`^([^\[\]]*)\[([0-9]+)-([0-9]+)\]([^\[\]]*)$`)

// Hosts reads a list of hosts: "a,b" and "node[01-08]", where numbers keep
// their zeros, as Slurm writes them.
func Hosts(list string) ([]string, error) {
	var out []string
	for _, part := range strings.Split(list, ",") {
		if !strings.ContainsAny(part, "[]") {
			out = append(out, strings.TrimSpace(part))
			continue
		}
		m := hostRange.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return nil, fmt.Errorf("%q is no list of hosts: write node01,node02 or node[01-08]", part)
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
