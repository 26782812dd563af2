package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/build/jobs"
)

// example is a file under examples/jobs and the arguments that render it.
type example struct {
	file string
	args []string
}

// examples are every profile under every scheduler that suits it, every variant
// on its own, those combinations that samples of others have, and, named
// "fixed", the rows of nccl-tests' with their variables as they are there.
func examples(t *testing.T) []example {
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

// TestExamples holds examples/jobs against what the program renders; -update
// writes it. Each passes a check, on its own and together with the others.
func TestExamples(t *testing.T) {
	dir := filepath.Join("..", "..", "examples", "jobs")
	wanted := map[string]string{"README.md": exampleIndex(examples(t))}
	var files []jobs.File
	for _, e := range examples(t) {
		var out, errOut bytes.Buffer
		args := append([]string{"assay", "jobs", "render", "--matrix", filepath.Join("..", "..", "matrix.yaml")}, e.args...)
		if status := run(context.Background(), args, &out, &errOut); status != 0 {
			t.Fatalf("%s: status %d, %s", strings.Join(e.args, " "), status, errOut.String())
		}
		if _, twice := wanted[e.file]; twice {
			t.Fatalf("two examples are called %s", e.file)
		}
		wanted[e.file] = out.String()
		files = append(files, jobs.File{Name: e.file, Text: out.Bytes()})
	}
	for _, f := range jobs.Check(context.Background(), files, jobs.CheckOptions{}) {
		if f.Level != jobs.LevelSkipped {
			t.Error(f)
		}
	}
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		for name, text := range wanted {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, want := range wanted {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if d := cmp.Diff(string(got), want); err != nil || d != "" {
			t.Errorf("examples/jobs/%s is not what the program writes; go test ./cmd/assay -args -update writes it (%v, -file +program):\n%s", name, err, d)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if _, ok := wanted[rel]; err == nil && !d.IsDir() && !ok {
			t.Errorf("examples/jobs/%s is no example", rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func exampleIndex(list []example) string {
	var b strings.Builder
	b.WriteString("# Jobs as assay renders them\n\n<!-- Written by \"go test ./cmd/assay -args -update\". -->\n\n" +
		"Render your own rather than edit these: [docs/jobs.md](../../docs/jobs.md) says what can be asked for.\n\n| file | `assay jobs render` |\n|---|---|\n")
	for _, e := range list {
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
