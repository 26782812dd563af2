package jobs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// needSbatch skips where no Slurm of .ci/jobs answers.
func needSbatch(t *testing.T) {
	if os.Getenv("ASSAY_TEST_SBATCH") == "" {
		t.Skip("make test ONLY=jobs starts a Slurm controller for this")
	}
	if out, err := exec.Command("scontrol", "ping").CombinedOutput(); err != nil {
		t.Fatalf("scontrol ping: %v\n%s", err, out)
	}
}

// TestSbatchTakesAll gives every Slurm script to a real sbatch --test-only, and
// to bash and shellcheck. A topology in blocks is for newer versions than
// Debian's, so those scripts go without segments.
func TestSbatchTakesAll(t *testing.T) {
	needSbatch(t)
	doc, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range doc.Profiles {
		for _, s := range []string{SlurmBare, SlurmEnroot} {
			for _, variants := range append([][]string{nil}, singles(p)...) {
				for _, o := range []Options{{}, {Suite: "node"}, {Run: RunNCCL, NoExec: true}, {Run: RunColl}} {
					if o.NoExec && p.ID == "generic" {
						continue
					}
					o.Profile, o.Scheduler, o.Image, o.Variants, o.Segment, o.Partition = p.ID, s, image, variants, -1, "all"
					text, err := Render(o)
					if err != nil {
						t.Errorf("%s %s %v: %v", p.ID, s, variants, err)
						continue
					}
					n++
					for _, f := range slurmRefuses(text) {
						t.Errorf("%s %s %v %s: %s", p.ID, s, variants, o.Run, f)
					}
				}
			}
		}
	}
	t.Logf("%d scripts", n)
	if n < 100 {
		t.Errorf("%d scripts are too few", n)
	}
}

// singles are the variants that a profile has under Slurm, one by one where they
// stand alone.
func singles(p Profile) [][]string {
	var out [][]string
	for _, v := range VariantNames {
		switch _, ok := p.Variants[v]; {
		case !ok, v == "dra":
		case v == "spectrum-x" && p.Fabric == "infiniband": // it wants the other fabric
			out = append(out, []string{"roce", v})
		default:
			out = append(out, []string{v})
		}
	}
	return out
}

// TestSbatchRefuses: the Slurm of these tests does refuse.
func TestSbatchRefuses(t *testing.T) {
	needSbatch(t)
	text, err := Render(Options{Profile: "h100-8x", Scheduler: SlurmBare})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"--nodes=8", "--nodes=800", ""},
		{"--gpus-per-node=8", "--gpus-per-node=9", ""},
		{"--exclusive", "--partition=moon", "invalid partition"},
		{"--exclusive", "--colour=red", "unrecognized option"},
	} {
		changed := strings.Replace(string(text), tt.old, tt.new, 1)
		if found := slurmRefuses([]byte(changed)); !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, "sbatch") && strings.Contains(f, tt.want) }) {
			t.Errorf("%s: %q; want %q", tt.new, found, tt.want)
		}
	}
}

// TestSbatchDirectives: sbatch and the check refuse the same directives.
func TestSbatchDirectives(t *testing.T) {
	needSbatch(t)
	for _, d := range strings.Fields(`--time=20 --time=1-00 --time=1-00:00 --time=1-00:00:00 --time=00:20 --time=1:2:3 --time=infinite
		--time=UNLIMITED --time=1- --time=5min --time=1:00:00:00 --time=5m --time=1h --time=1-0:0:0:0 --time=2d --time=3:
		--time=1.5 --time=:30 --ntask-per-node=1 --nnodes=1 --tasks-per-node=1 --ntasks-per-n=1 --ntasks=1 -n1 -N1
		--cpu-per-task=1 --mem-per-gpus=1 -ntasks-per-node=8 -time=5 --job-names=a --exclusiv --exclusives`) {
		script := []byte("#!/bin/bash\n#SBATCH --partition=all\n#SBATCH " + d + "\ntrue\n")
		refused := len(slurmRefuses(script)) > 0
		found := Check([]File{{"a.sh", script}}, nil)
		if wrong := slices.ContainsFunc(found, func(f Finding) bool { return f.Level == LevelError }); wrong != refused {
			t.Errorf("%s: sbatch refuses it: %v; found: %v", d, refused, found)
		}
	}
}

// slurmRefuses is what bash, shellcheck and Slurm say against a script.
func slurmRefuses(text []byte) (all []string) {
	for _, tool := range [][]string{{"bash", "-n"}, {"shellcheck", "--shell=bash", "-"}, {"sbatch", "--test-only"}} {
		cmd := exec.Command(tool[0], tool[1:]...)
		cmd.Stdin = bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			all = append(all, fmt.Sprintf("%s: %v: %s", strings.Join(tool, " "), err, out))
		}
	}
	return all
}
