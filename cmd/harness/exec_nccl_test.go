package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/gputest"
	"github.com/assay-hpc/assay/internal/host/libnccl"
)

// An ncclTree is the harness as it is installed, NVIDIA's library, and programs
// that print the version of the one that they got.
type ncclTree struct {
	t               *testing.T
	harness         string
	ours, theirs    string // directories
	plain, wheel    string // the latter finds NVIDIA's by RPATH, as PyTorch does
	gpus, processor string // roots of machines with a driver and without
}

func newNCCLTree(t *testing.T) *ncclTree {
	t.Helper()
	dir := t.TempDir()
	n := &ncclTree{t, dir + "/opt/bin/harness", dir + "/opt/lib", dir + "/theirs", dir + "/plain", dir + "/wheel", dir + "/gpus", dir + "/processor"}
	n.write(n.gpus+"/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n")
	for _, root := range []string{n.gpus, n.processor} {
		n.write(root+"/sys/devices/system/cpu/online", "0-3\n")
	}
	gputest.Tool(t, "../libnccl/build", n.ours)
	n.write(filepath.Join(n.ours, libnccl.Engine), "") // ncclGetVersion does without
	n.write(dir+"/theirs.c", `const char *text(void) { return "NCCL version 2.28.9+cuda13.0"; }
int ncclGetVersion(int *v) { *v = 22809; return 0; }`)
	n.write(dir+"/program.c", `#include <stdio.h>
int ncclGetVersion(int *);
int main(void) { int v = 0; ncclGetVersion(&v); printf("%d\n", v); }`)
	n.write(n.theirs+"/x", "")
	lib := filepath.Join(n.theirs, libnccl.Name)
	gputest.Tool(t, "cc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", lib, dir+"/theirs.c")
	gputest.Tool(t, "cc", "-o", n.plain, dir+"/program.c", lib)
	gputest.Tool(t, "cc", "-o", n.wheel, dir+"/program.c", lib, "-Wl,--disable-new-dtags,-rpath,"+n.theirs)
	n.install()
	return n
}

func (n *ncclTree) write(name, text string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// install makes this test's binary the harness: by its name it is.
func (n *ncclTree) install() {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(n.harness), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if os.Link(self, n.harness) == nil {
		return
	}
	gputest.Tool(n.t, "cp", self, n.harness)
}

// run runs the harness in an environment, and returns all that was printed, with its
// exit status where that is not 0.
func (n *ncclTree) run(environ []string, args ...string) string {
	cmd := exec.Command(n.harness, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LD_LIBRARY_PATH=" + n.theirs}, environ...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		out = fmt.Appendf(out, "%v\n", err)
	}
	return strings.ReplaceAll(string(out), filepath.Dir(n.theirs), "DIR")
}

// TestExecNCCL: a command has the NCCL that was asked for, whichever it would find.
func TestExecNCCL(t *testing.T) {
	n := newNCCLTree(t)
	const ours, theirs = "23007\n", "22809\n"
	preload := "LD_PRELOAD=" + filepath.Join(n.ours, libnccl.Name)
	for _, tt := range []struct {
		name    string
		environ []string
		args    []string // behind exec -q --root
		want    string
	}{
		{"nothing is asked for, and there is no driver", nil, []string{n.processor, "--", n.plain}, theirs},
		{"nothing is asked for, and there is a driver", nil, []string{n.gpus, "--", n.plain}, theirs},
		{"auto, and there is no driver", nil, []string{n.processor, "--engine", "auto", "--", n.plain}, theirs},
		{"auto, and there is a driver", nil, []string{n.gpus, "--engine", "auto", "--", n.plain}, ours},
		{"auto for a wheel", []string{"ASSAY_NCCL=auto"}, []string{n.gpus, "--", n.wheel}, ours},
		{"auto, and somebody has chosen", []string{"LD_PRELOAD=" + filepath.Join(n.theirs, libnccl.Name)}, []string{n.gpus, "--engine", "auto", "--", n.plain}, theirs},
		{"ours", nil, []string{n.processor, "--engine", "ours", "--", n.plain}, ours},
		{"ours for a wheel", nil, []string{n.processor, "--engine", "ours", "--", n.wheel}, ours},
		{"ours beside another preloaded library", []string{"LD_PRELOAD=libm.so.6"}, []string{n.processor, "--engine", "ours", "--", n.wheel}, ours},
		{"NVIDIA's", nil, []string{n.gpus, "--engine", "nvidia", "--", n.plain}, theirs},
		{"NVIDIA's for a wheel", nil, []string{n.gpus, "--engine", "nvidia", "--", n.wheel}, theirs},
		{"NVIDIA's where ours is preloaded", []string{preload}, []string{n.gpus, "--engine", "nvidia", "--", n.plain}, theirs},
		{"NVIDIA's where ours comes first", []string{"LD_LIBRARY_PATH=" + n.ours + ":" + n.theirs}, []string{n.gpus, "--engine", "nvidia", "--", n.plain}, theirs},
		{"the environment asks for ours", []string{"ASSAY_NCCL=ours"}, []string{n.processor, "--", n.plain}, ours},
		{"the environment asks for NVIDIA's", []string{"ASSAY_NCCL=nvidia"}, []string{n.gpus, "--", n.plain}, theirs},
		{"the flag counts", []string{"ASSAY_NCCL=ours"}, []string{n.gpus, "--engine", "auto", "--", n.plain}, ours},
		{"the outer of two says", nil, []string{n.gpus, "--engine", "nvidia", "--", n.harness, "exec", "-q", "--root", n.gpus, "--", n.plain}, theirs},
		{"a wrong word in the environment", []string{"ASSAY_NCCL=both"}, []string{n.gpus, "--", n.plain},
			"harness: exec: ASSAY_NCCL is ours, nvidia or auto, not \"both\"\nexit status 2\n"},
	} {
		if got := n.run(tt.environ, append([]string{"exec", "-q", "--root"}, tt.args...)...); got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

// TestExecSaysWhoseNCCL: a line names the library.
func TestExecSaysWhoseNCCL(t *testing.T) {
	n := newNCCLTree(t)
	say := func(engine string) string {
		return n.run(nil, "exec", "--root", n.processor, "--engine", engine, "--", "true")
	}
	for engine, want := range map[string]string{
		"ours":   "\nharness: NCCL is assay's: DIR/opt/lib/libnccl.so.2\n",
		"nvidia": "\nharness: NCCL is NVIDIA's: DIR/theirs/libnccl.so.2, unless the program brings its own\n",
	} {
		if got := say(engine); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q; want %q at the end", engine, got, want)
		}
	}
	if got := say("auto"); strings.Contains(got, "NCCL is") {
		t.Errorf("auto: %q", got)
	}
	if got := n.run([]string{"LD_LIBRARY_PATH=" + n.ours}, "exec", "--root", n.processor, "--engine", "nvidia", "--", "env"); strings.Contains(got, "\nLD_LIBRARY_PATH") {
		t.Errorf("an empty list was left behind: %s", got)
	}
	if err := os.Remove(filepath.Join(n.ours, libnccl.Engine)); err != nil {
		t.Fatal(err)
	}
	want := "harness: exec: assay's libnccl.so.2 was not found: DIR/opt/lib/libnccl.so.2: its engine is not next to it: stat DIR/opt/lib/libassay-coll.so: no such file or directory; " +
		"open DIR/opt/bin/libnccl.so.2: no such file or directory; remedy: make libnccl makes it and libassay-coll.so: copy both into one of these directories, or take --engine nvidia\nexit status 3\n"
	if got := say("ours"); got != want {
		t.Errorf("without an engine: %q\nwant %q", got, want)
	}
}
