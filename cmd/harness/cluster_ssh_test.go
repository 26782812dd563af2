package main

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay"
	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/clustertest"
)

// imageSSH is OpenSSH as the recipe of our image sets it up.
func imageSSH(t *testing.T) *clustertest.SSH {
	t.Helper()
	ssh, found := &clustertest.SSH{Files: map[string]clustertest.File{}}, 0
	for _, step := range imageSteps(t, "fabric-debian12") {
		switch s := step.(type) {
		case recipe.Run:
			if strings.Contains(s.Script, "/usr/sbin/sshd") {
				ssh.Script += s.Script
				found++
			}
		case recipe.File:
			if strings.HasPrefix(s.Path, "/etc/ssh/") || s.Path == "/usr/sbin/sshd" {
				ssh.Files[s.Path] = clustertest.File{Content: s.Content, Mode: os.FileMode(s.Mode)}
				found++
			}
		}
	}
	if ssh.Script == "" || found < 4 {
		t.Fatalf("the image's recipe has %d steps for OpenSSH; want its wrapper, and the settings of server and client: did build/component/ssh.go change?", found)
	}
	return ssh
}

// imageSteps returns the steps that build the image of a target in the matrix.
func imageSteps(t *testing.T, target string) []recipe.Step {
	t.Helper()
	_, all, err := component.Read("matrix.yaml", bytes.NewReader(assay.Matrix), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := lock.Read("matrix.lock", bytes.NewReader(assay.Lock))
	if err != nil {
		t.Fatal(err)
	}
	here := recipe.Platform{OS: "linux", Arch: runtime.GOARCH}
	for _, one := range all {
		if one.Name != target {
			continue
		}
		res, err := component.Make(component.Input{Target: one, All: all, Platform: here, Native: here, Lock: l, Source: component.Source{Version: assay.Version, Go: assay.GoVersion}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Recipe.Stages[len(res.Recipe.Stages)-1].Steps
	}
	t.Fatalf("matrix.yaml has no target %s", target)
	return nil
}

// onHost runs a program on a host, and returns what it printed.
func onHost(t *testing.T, h *clustertest.Host, name string, args ...string) string {
	t.Helper()
	out, err := h.Command(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s %q: %v: %s", h.Name, name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestClusterSSH: hosts log into one another, as the image's configuration has it, with
// keys that each made itself.
func TestClusterSSH(t *testing.T) {
	c := clustertest.Start(t, clustertest.Options{Hosts: 2, SSH: imageSSH(t)})
	a, b := c.Hosts[0], c.Hosts[1]
	if got := onHost(t, a, "ssh", b.Name, "hostname; readlink /proc/1/exe; ls -ld /root/.ssh"); !strings.HasPrefix(got, b.Name+"\n/usr/sbin/sshd.openssh\ndrwxrwxrwt") {
		t.Errorf("%s: %q", b.Name, got)
	}
	for _, setting := range []string{"strictmodes no", "usepam yes"} {
		if out := onHost(t, b, "/usr/sbin/sshd", "-T"); !strings.Contains("\n"+out+"\n", "\n"+setting+"\n") {
			t.Errorf("sshd has not %q", setting)
		}
	}
	key := func(h *clustertest.Host) string { return onHost(t, h, "cat", "/etc/ssh/ssh_host_ed25519_key.pub") }
	if key(a) == key(b) {
		t.Error("two hosts have one key")
	}
	if _, err := os.Stat("/etc/ssh/ssh_host_ed25519_key.pub"); err == nil {
		theirs, err := os.ReadFile("/etc/ssh/ssh_host_ed25519_key.pub")
		if err == nil && key(a) == strings.TrimSpace(string(theirs)) {
			t.Error("it is this machine's own")
		}
	}
	// Without the image's settings neither end accepts the other.
	onHost(t, b, "sh", "-c", "rm /etc/ssh/sshd_config.d/assay.conf && kill -HUP 1")
	denied := false
	for range 100 {
		out, err := a.Command(t.Context(), "ssh", "-o", "BatchMode=yes", b.Name, "true").CombinedOutput()
		if denied = err != nil && strings.Contains(string(out), "Permission denied"); denied {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if !denied {
		t.Error("a directory that all may write is accepted without StrictModes no")
	}
	onHost(t, a, "rm", "/etc/ssh/ssh_config.d/assay.conf")
	if out, err := a.Command(t.Context(), "ssh", "-o", "BatchMode=yes", b.Name, "true").CombinedOutput(); err == nil || !strings.Contains(string(out), "Host key verification failed") {
		t.Errorf("an unknown host: %v: %s", err, out)
	}
}
