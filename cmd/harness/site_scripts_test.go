package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A slurmNode is a directory with the scripts of examples/slurm, and a scontrol that knows one
// node, which assay drained. What changes it is in the file changes.
type slurmNode struct {
	t            *testing.T
	dir, harness string
}

func newSlurmNode(t *testing.T) *slurmNode {
	t.Helper()
	self, err := exec.LookPath("harness") // this program, which TestMain puts there
	if err != nil {
		t.Fatal(err)
	}
	n := &slurmNode{t, t.TempDir(), self}
	files, err := filepath.Glob("../../examples/slurm/*")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		n.write(filepath.Base(f), string(text))
	}
	n.write("scontrol", fmt.Sprintf("#!/bin/sh\ncase \"$*\" in\n\"show config\") echo \"SlurmUser = x($(id -u))\" ;;\n"+
		"\"show node n1\") printf 'NodeName=n1 NodeHostName=n1\\n   State=IDLE+DRAIN\\n   Reason=assay: gpus: 7 GPUs, not 8 [root@2026-11-01T00:00:00]\\n' ;;\n"+
		"update*) echo \"$*\" >>%s/changes ;;\n*) exit 1 ;;\nesac\n", n.dir))
	return n
}

func (n *slurmNode) write(name, text string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// script runs a script as slurmd does, with more lines in assay.conf, and returns its status, what
// it says and how the node was changed.
func (n *slurmNode) script(name string, conf ...string) (status int, said, changes string) {
	n.t.Helper()
	old, err := os.ReadFile("../../examples/slurm/assay.conf")
	if err != nil {
		n.t.Fatal(err)
	}
	n.write("assay.conf", string(old)+"ASSAY_HARNESS="+n.harness+"\n"+strings.Join(conf, "\n")+"\n")
	os.Remove(filepath.Join(n.dir, "changes"))
	cmd := exec.Command(filepath.Join(n.dir, name))
	cmd.Env = []string{"SLURMD_NODENAME=n1", "PATH=" + n.dir + ":/usr/bin:/bin"}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	var exited *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exited) {
		n.t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(n.dir, "changes"))
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), errOut.String(), string(b)
}

var slurmScripts = []string{"prolog.sh", "epilog.sh", "healthcheck.sh"}

// TestSlurmScriptsUnsaid: a gate that does not know how many GPUs a node should have lets no job
// pass and takes no node back, and says how to find out.
func TestSlurmScriptsUnsaid(t *testing.T) {
	n := newSlurmNode(t)
	for _, conf := range []string{"", "ASSAY_GPUS=", "ASSAY_GPUS=eight", "ASSAY_GPUS=-1", "unset ASSAY_GPUS; ASSAY_GPUS="} {
		for _, name := range slurmScripts {
			status, said, changes := n.script(name, conf)
			if status != 1 || !strings.Contains(said, "ASSAY_GPUS must say") || !strings.Contains(said, "nvidia-smi -L | wc -l") || changes != "" {
				t.Errorf("%s with %q: status %d, %q, changes %q", name, conf, status, said, changes)
			}
		}
	}
}

// TestSlurmScriptsWrong: so does one of which assay.conf says what nobody can have meant.
func TestSlurmScriptsWrong(t *testing.T) {
	n := newSlurmNode(t)
	for conf, want := range map[string]string{
		"ASSAY_THRESHOLD=/etc/limits.yaml": "assay.conf: there is no setting ASSAY_THRESHOLD\n",
		"ASSAY_ON_ERROR=DRAIN":             "ASSAY_ON_ERROR is ignore or drain, not 'DRAIN'",
		"ASSAY_RESUME=true":                "ASSAY_RESUME is yes or no, not 'true'",
		"ASSAY_PORTS=all":                  "ASSAY_PORTS is a number of ports",
		"ASSAY_SECONDS=0":                  "ASSAY_SECONDS is a number of seconds from 1 on",
		"ASSAY_SECONDS=":                   "ASSAY_SECONDS is a number of seconds from 1 on",
		"ASSAY_SUITE=":                     "ASSAY_SUITE must name a suite",
		"ASSAY_ON_ERROR=drain\r":           "CR LF",
		"ASSAY_HARDWARE=hgx-h200\r":        "CR LF",
	} {
		for _, name := range slurmScripts {
			status, said, changes := n.script(name, "ASSAY_GPUS=4096", conf)
			if status != 1 || !strings.Contains(said, want) || changes != "" {
				t.Errorf("%s with %q: status %d, %q, changes %q; want %q", name, conf, status, said, changes, want)
			}
		}
	}
}

// TestSlurmScriptsCount: a node with fewer GPUs than stated fails, whatever is selected, and one
// that was drained for it is not taken back. One that has as many as stated is.
func TestSlurmScriptsCount(t *testing.T) {
	n := newSlurmNode(t)
	for _, more := range []string{"ASSAY_ONLY=health/node/hugepages", "ASSAY_SUITE=health ASSAY_ONLY="} {
		for _, name := range slurmScripts {
			status, said, changes := n.script(name, "ASSAY_GPUS=4096", more)
			if status != 1 || strings.Contains(changes, "undrain") || !strings.Contains(changes, "reason=assay: gpus: ") {
				t.Errorf("%s with %q: status %d, %q, changes %q", name, more, status, said, changes)
			}
		}
	}
	fs, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	if machine.PCIGPUs(fs) > 0 {
		t.Skip("this machine has GPUs, of which a harness without CUDA cannot ask")
	}
	if status, said, changes := n.script("healthcheck.sh", "ASSAY_GPUS=0", "ASSAY_ONLY=health/node/hugepages"); status != 0 || !strings.Contains(changes, "state=undrain") {
		t.Errorf("a node without GPUs, as stated: status %d, %q, changes %q", status, said, changes)
	}
}

// TestUnitUnsaid: the unit, too, wants the number of GPUs.
func TestUnitUnsaid(t *testing.T) {
	text, err := os.ReadFile("../../examples/systemd/assay-certify.service")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "\nExecStartPre=/bin/sh -c '")
	script, _, _ := strings.Cut(line, "'\n")
	script = strings.ReplaceAll(script, "$$", "$") // as systemd reads it
	for gpus, want := range map[string]bool{"": false, "eight": false, "8": true, "0": true} {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = []string{"GPUS=" + gpus}
		if out, err := cmd.CombinedOutput(); (err == nil) != want || want == strings.Contains(string(out), "nvidia-smi -L | wc -l") {
			t.Errorf("GPUS=%q: %v, %s", gpus, err, out)
		}
	}
}

// TestSlurmScriptsFlags: each line of assay.conf reaches the harness.
func TestSlurmScriptsFlags(t *testing.T) {
	n := newSlurmNode(t)
	n.harness = filepath.Join(n.dir, "harness")
	n.write("harness", "#!/bin/sh\nprintf '%s\\n' \"$@\" >&2\nexit 3\n")
	status, said, _ := n.script("prolog.sh", "ASSAY_GPUS=8", "ASSAY_PORTS=4", "ASSAY_HARDWARE=hgx-h200", "ASSAY_SUITE='/etc/our suite.yaml'", "ASSAY_ONLY='*'", "ASSAY_THRESHOLDS=/etc/limits.yaml")
	args, rest, _ := strings.Cut(said, "assay: checks could not run, status 3: ")
	want := []string{"certify", "--suite", "/etc/our suite.yaml", "--gpus", "8", "--only", "*", "--ports", "4", "--hardware", "hgx-h200", "--thresholds", "/etc/limits.yaml", "--slurm=prolog"}
	if got := strings.Split(strings.TrimSpace(args), "\n"); status != 0 || !slices.Equal(got, want) || !strings.Contains(rest, "--slurm=prolog") {
		t.Errorf("status %d, %q; want %q\n%s", status, got, want, rest)
	}
	if status, said, _ := n.script("prolog.sh", "ASSAY_GPUS=8", "ASSAY_ON_ERROR=drain"); status != 1 || !strings.Contains(said, "\n--slurm-on-error\n") {
		t.Errorf("ASSAY_ON_ERROR=drain: status %d, %q", status, said)
	}
}
