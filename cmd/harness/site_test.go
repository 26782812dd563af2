package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/harness/site/slurm"
	"github.com/assay-hpc/assay/internal/exit"
)

// TestSiteCheck: before any check runs, what is missing is said, all of it.
func TestSiteCheck(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"KUBECONFIG", "HOME"} {
		t.Setenv(name, filepath.Join(dir, "none"))
	}
	for _, name := range []string{"SLURM_SCRIPT_CONTEXT", "KUBERNETES_SERVICE_HOST", "NODE_NAME"} {
		t.Setenv(name, "")
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	scontrol := func(script string) {
		if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const answers = "echo \"SlurmUser = x(" + "$(id -u))\""
	for _, tt := range []struct {
		name, scontrol string
		o              siteOptions
		status         int
		want           []string
	}{
		{"nobody", "exit 1", siteOptions{}, 0, nil},
		{"slurm", answers, siteOptions{slurm: "auto"}, 0, nil},
		{"no controller", "echo no controller >&2; exit 1", siteOptions{slurm: "health"}, exit.NotDone, []string{"--slurm: scontrol show: no controller", "harness apply acts later"}},
		{"both", "echo no controller >&2; exit 1", func() (o siteOptions) {
			o.slurm, o.kubernetes, o.k.Node = "auto", true, "n1"
			return o
		}(), exit.NotDone, []string{"--slurm: scontrol show: no controller", "--kubernetes: no cluster to talk to"}},
		{"no node", answers, siteOptions{kubernetes: true}, exit.Usage, []string{"NODE_NAME"}},
		{"resume alone", answers, siteOptions{s: slurm.Options{Resume: true}}, exit.Usage, []string{"go with --slurm"}},
	} {
		scontrol(tt.scontrol)
		err := tt.o.check(t.Context())
		if exit.Of(err) != tt.status {
			t.Errorf("%s: status %d, %v; want %d", tt.name, exit.Of(err), err, tt.status)
		}
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", tt.name, err, want)
			}
		}
	}
}

// TestExampleFlags: the flags of examples and documents are there.
func TestExampleFlags(t *testing.T) {
	var known []string
	for _, f := range slices.Concat(applyCommand(nil).Flags, certifyCommand(nil, nil).Flags, keepCommand(nil, nil).Flags) {
		for _, name := range f.Names() {
			known = append(known, "--"+name)
		}
	}
	lines := regexp.MustCompile(`(?m)^[^#\n]*\bharness[", ]+(?:certify|apply).*$|^.*--(?:slurm|kubernetes).*$`)
	flag := regexp.MustCompile(`(?:^|[\s",\[` + "`" + `])(--[a-z][a-z-]+)`)
	files := []string{filepath.Join("..", "..", "docs", "node.md")}
	for _, dir := range []string{"slurm/*", "kubernetes/*.yaml", "systemd/*"} {
		more, err := filepath.Glob(filepath.Join("..", "..", "examples", dir))
		if err != nil || len(more) == 0 {
			t.Fatalf("%s: %v, %v", dir, more, err)
		}
		files = append(files, more...)
	}
	count := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines.FindAllString(string(text), -1) {
			if strings.Contains(line, "docker run") || strings.Contains(line, "srun") {
				_, line, _ = strings.Cut(line, "certify") // what stands before is theirs
			}
			for _, m := range flag.FindAllStringSubmatch(line, -1) {
				if count++; !slices.Contains(known, m[1]) {
					t.Errorf("%s: there is no %s: %s", file, m[1], line)
				}
			}
		}
	}
	if count < 20 {
		t.Errorf("the examples have %d flags", count)
	}
}

// TestDocumentedReasons: the ids of checks in documented reasons are those that certificates have.
func TestDocumentedReasons(t *testing.T) {
	var out, errOut strings.Builder
	if status := run([]string{"harness", "certify", "--suite", "node", "--list"}, &out, &errOut); status != exit.Pass {
		t.Fatal(errOut.String())
	}
	reason := regexp.MustCompile("`assay:\\s+([a-z0-9/-]+):")
	count := 0
	for _, file := range []string{"node.md", "tasks/gate-a-slurm-node.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range reason.FindAllStringSubmatch(string(text), -1) {
			if count++; !strings.Contains("\n"+out.String(), "\n"+m[1]+" ") {
				t.Errorf("%s: certificates have no check %q", file, m[1])
			}
		}
	}
	if count < 2 {
		t.Errorf("%d reasons are documented", count)
	}
}

// TestUnits: systemd takes the units as they are.
func TestUnits(t *testing.T) {
	needs(t, "systemd-analyze", "systemd")
	files, err := filepath.Glob(filepath.Join("..", "..", "examples", "systemd", "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		self, err := os.Executable() // a unit whose program is not there is refused
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.Base(f))
		if err := os.WriteFile(name, []byte(strings.ReplaceAll(string(text), "/opt/assay/bin/harness", self)), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	verify := func() (string, error) {
		cmd := exec.Command("systemd-analyze", args...)
		cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning")
		out, err := cmd.CombinedOutput()
		var ours []string // it looks at units that these name, too
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "assay-certify") {
				ours = append(ours, line)
			}
		}
		return strings.Join(ours, ""), err
	}
	if out, err := verify(); err != nil || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
	// It does look: a key that does not exist is told.
	if err := os.WriteFile(args[2], []byte(fmt.Sprintf("[Service]\nExecStart=%s\nNoSuchKey=1\n", "/bin/true")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _ := verify(); !strings.Contains(out, "NoSuchKey") {
		t.Errorf("an unknown key is accepted: %s", out)
	}
}
