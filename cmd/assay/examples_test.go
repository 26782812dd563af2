package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/assay-hpc/assay/build/jobs"
	"github.com/assay-hpc/assay/internal/golden"
)

// example is what a file of examples/jobs is called, and the arguments that render it.
type example struct {
	file string
	args []string
}

// shown are the files of examples/jobs: each scheduler once, on different machines.
var shown = []example{
	{"docker.sh", []string{"generic", "--scheduler", "docker"}},
	{"hostfile.hosts", []string{"a100-8x", "--scheduler", "hostfile", "--hosts", "node[01-08]"}},
	{"jobset.yaml", []string{"b300-8x", "--scheduler", "jobset"}},
	{"kubernetes.yaml", []string{"h200-8x", "--scheduler", "kubernetes"}},
	{"kubernetes-daemonset.yaml", []string{"generic", "--scheduler", "kubernetes", "--daemonset", "--selector", "nvidia.com/gpu.present=true"}},
	{"mpi-operator.yaml", []string{"h100-8x", "--scheduler", "mpi-operator"}},
	{"slurm.slurm", []string{"aws-p5", "--scheduler", "slurm"}},
	{"slurm-enroot.slurm", []string{"gb300-nvl72", "--scheduler", "slurm-enroot"}},
}

// combinations are every profile under every scheduler that suits it, every variant
// on its own, those combinations that samples of others have, and, named
// "fixed", the rows of nccl-tests' with their variables as they are there.
func combinations(t *testing.T) []example {
	doc, err := jobs.Load()
	if err != nil {
		t.Fatal(err)
	}
	var out []example
	add := func(profile, scheduler, suffix string, args ...string) {
		ext := map[string]string{jobs.SlurmBare: ".slurm", jobs.SlurmEnroot: ".slurm", jobs.Docker: ".sh", jobs.Hostfile: ".hosts"}[scheduler]
		if ext == "" {
			ext = ".yaml"
		}
		if scheduler == jobs.Hostfile {
			args = append(args, "--hosts", "node[01-08]")
		}
		out = append(out, example{filepath.Join(profile, scheduler+suffix+ext), append([]string{profile, "--scheduler", scheduler}, args...)})
	}
	fixed := []string{"--no-exec", "--run", "nccl-tests"}
	roce := []string{"--roce", "--site", "coreweave"}
	for _, p := range doc.Profiles {
		for _, s := range jobs.Schedulers {
			add(p.ID, s, "")
		}
		if p.ID != "generic" {
			add(p.ID, jobs.SlurmEnroot, "-fixed", fixed...)
			add(p.ID, jobs.MPIOperator, "-fixed", fixed...)
		}
		for _, v := range jobs.VariantNames {
			if _, ok := p.Variants[v]; !ok {
				continue
			}
			args := []string{"--" + v}
			if v == "roce" {
				args = append(args, "--site", "coreweave")
			}
			if v == "spectrum-x" && p.ID != "generic" {
				args = append(args, roce...)
			}
			add(p.ID, jobs.MPIOperator, "-"+v, args...)
			if p.ID != "generic" {
				add(p.ID, jobs.MPIOperator, "-"+v+"-fixed", slices.Concat(args, fixed)...)
			}
			if v != "dra" {
				add(p.ID, jobs.SlurmEnroot, "-"+v, args...)
			}
		}
	}
	add("gb300-nvl72", jobs.MPIOperator, "-roce-multirack", append(roce, "--multirack")...)
	add("gb300-nvl72", jobs.MPIOperator, "-roce-dra", append(roce, "--dra")...)
	add("gb300-nvl72", jobs.MPIOperator, "-roce-multirack-dra", append(roce, "--multirack", "--dra")...)
	add("generic", jobs.Kubernetes, "-daemonset", "--daemonset", "--selector", "nvidia.com/gpu.present=true")
	add("gb300-nvl72", jobs.JobSet, "-roce-spectrum-x", append(roce, "--spectrum-x")...)
	add("gb300-nvl72", jobs.JobSet, "-dra", "--dra", "--name", "assay-gb300-nvl72-dra-set")
	add("generic", jobs.MPIOperator, "-coll", "--run", "coll", "--min", "8", "--max", "16G")
	for _, p := range []string{"generic", "h100-8x", "b300-8x"} {
		add(p, jobs.JobSet, "-coll", "--run", "coll", "--min", "8", "--max", "16G")
	}
	return out
}

// TestExamples holds examples/jobs, and in testdata/jobs what other combinations change of
// them, against what the program renders; -update writes both. Each passes a check, on its
// own and together with the others.
func TestExamples(t *testing.T) {
	wanted := map[string]string{filepath.Join("..", "..", "examples", "jobs", "README.md"): exampleIndex()}
	var files []jobs.File
	render := func(e example) string {
		var out, errOut bytes.Buffer
		args := append([]string{"assay", "jobs", "render", "--matrix", filepath.Join("..", "..", "matrix.yaml")}, e.args...)
		if status := run(context.Background(), args, &out, &errOut); status != 0 {
			t.Fatalf("%s: status %d, %s", strings.Join(e.args, " "), status, errOut.String())
		}
		files = append(files, jobs.File{Name: e.file, Text: out.Bytes()})
		return out.String()
	}
	base := map[string]string{} // by scheduler, the first one that is shown
	for _, e := range shown {
		text := render(e)
		wanted[filepath.Join("..", "..", "examples", "jobs", e.file)] = text
		if s := e.args[2]; base[s] == "" {
			base[s] = text
		}
	}
	files = nil                   // the combinations have them all
	first := map[string]example{} // of each profile, scheduler and what it runs
	text := map[string]string{}
	for _, e := range combinations(t) {
		s, now := e.args[2], render(e)
		text[e.file] = now
		runs := s
		if slices.Contains(e.args, "nccl-tests") {
			runs += " nccl-tests"
		}
		from, with := base[s], "what is shown"
		for _, key := range []string{runs, e.args[0] + " " + runs} { // the nearer one
			if of, ok := first[key]; ok {
				from, with = text[of.file], strings.Join(of.args, " ")
			} else {
				first[key] = e
			}
		}
		wanted[filepath.Join("testdata", "jobs", s+".diff")] += fmt.Sprintf("# %s, of %s\n", strings.Join(e.args, " "), with) + changes(from, now)
	}
	for _, f := range jobs.Check(files, ncclVariable) {
		if asked := strings.Contains(f.Message, "NCCL uses sockets"); f.Level != jobs.LevelSkipped && !asked { // by --no-ib
			t.Error(f)
		}
	}
	for name, want := range wanted {
		golden.File(t, name, want)
	}
	for _, dir := range []string{filepath.Join("..", "..", "examples", "jobs"), filepath.Join("testdata", "jobs")} {
		found, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if _, ok := wanted[filepath.Join(dir, f.Name())]; !ok {
				t.Errorf("%s in %s is of no combination", f.Name(), dir)
			}
		}
	}
}

// changes is what one text has other than another one, line by line, without context.
func changes(from, to string) string {
	var b strings.Builder
	n := 0
	for line := range strings.Lines(string(diff.Diff("a", []byte(from), "b", []byte(to)))) {
		if n++; n > 3 && (line[0] == '-' || line[0] == '+') { // behind the names
			b.WriteString(line)
		}
	}
	return b.String()
}

func exampleIndex() string {
	var b strings.Builder
	b.WriteString("# Jobs as assay renders them\n\n<!-- Written by \"go test ./cmd/assay -args -update\". -->\n\n" +
		"One for each scheduler. `assay jobs list` has the platforms and schedulers, `assay jobs render` writes a job for any of\nthem, and [docs/jobs.md](../../docs/jobs.md) says what can be asked for.\n\n| file | `assay jobs render` |\n|---|---|\n")
	for _, e := range shown {
		fmt.Fprintf(&b, "| [%s](%s) | `%s` |\n", e.file, e.file, strings.Join(e.args, " "))
	}
	return b.String()
}

// BenchmarkJobsRender is the whole command, from arguments to text.
func BenchmarkJobsRender(b *testing.B) {
	for _, scheduler := range []string{jobs.SlurmEnroot, jobs.MPIOperator} {
		b.Run(scheduler, func(b *testing.B) {
			for b.Loop() {
				if run(context.Background(), []string{"assay", "jobs", "render", "gb300-nvl72", "--scheduler", scheduler, "--no-exec"}, io.Discard, io.Discard) != 0 {
					b.Fatal("it does not render")
				}
			}
		})
	}
}
