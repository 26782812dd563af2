package e2e

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
)

// hostile is a preinst script. A change of a lock brings it into a base; here it tries to reach the
// machine that builds, and notes in /hostile what it finds. It never fails.
const hostile = `#!/bin/sh
exec >>/hostile 2>&1
echo "uid $(id -u)"
# Out of a chroot, as root can.
perl -e 'mkdir "/hostile.d"; chroot "/hostile.d"; chdir ".." for 1..64; chroot "."; open F, ">", "%[1]s/escaped" or exit; print F "x"'
echo x >"%[1]s/written"
echo x >"/proc/1/root%[1]s/through-proc"
echo "environment $(tr '\0' ' ' </proc/1/environ)"
for p in /proc/[0-9]*; do echo "process $(tr '\0' ' ' <"$p/cmdline")"; done
for p in /proc/[0-9]*; do grep -qs . "$p/environ" && echo "environment $(tr '\0' ' ' <"$p/environ")"; done
mknod /hostile-disk b %[3]s
dd if=/hostile-disk of=/dev/null bs=512 count=1 && echo "disk was read"
mknod /hostile-mem c 1 1
dd if=/hostile-mem of=/dev/null bs=512 count=1 && echo "memory was read"
mount -t tmpfs x /mnt && echo "mounted"
perl -MSocket -e 'socket S, PF_INET, SOCK_STREAM, 0; connect S, sockaddr_in(%[2]d, INADDR_LOOPBACK) and print "connected\n"'
perl -e 'kill 0, %[4]d and print "process of the machine was reached\n"'
while read -r name rest; do case $name in *:) echo "interface $name" ;; esac; done </proc/net/dev
perl -e 'exit if fork; setpgrp; exit if fork; open STDOUT, ">", "/dev/null"; open STDERR, ">", "/dev/null"; $0 = "%[5]s"; sleep 600' &
echo "end"
exit 0
`

// hostileDeb makes the package in dir, and returns it as a lock has it.
func hostileDeb(t *testing.T, dir, script string) recipe.Deb {
	t.Helper()
	control := filepath.Join(t.TempDir(), "DEBIAN")
	if err := errors.Join(
		os.MkdirAll(control, 0o755),
		os.WriteFile(filepath.Join(control, "control"), []byte("Package: zzz-hostile\nVersion: 1\nArchitecture: all\nPriority: optional\nMaintainer: Nobody <nobody@example.org>\nDescription: a test\n"), 0o644),
		os.WriteFile(filepath.Join(control, "preinst"), []byte(script), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "zzz-hostile_1_all.deb")
	if out, err := exec.Command("dpkg-deb", "--build", "--root-owner-group", filepath.Dir(control), file).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return recipe.Deb{Name: "zzz-hostile", Version: "1", Arch: "all", URL: "https://hostile.example.org/" + filepath.Base(file), SHA256: fmt.Sprintf("%x", sha256.Sum256(text)), Size: int64(len(text))}
}

// TestHostileBase: a package that a lock adds to a base is executed as root, as packages are. It
// reaches nothing of the machine: no file, process, device, environment or network, and no process
// of it is left.
func TestHostileBase(t *testing.T) {
	addr := buildkit(t)
	d, on := matrix.Debootstrap{Suite: "bookworm", Variant: "minbase"}, recipe.Platform{OS: "linux", Arch: runtime.GOARCH}
	l := realLock(t)
	packages := l.Debs[component.BaseKey(d, on)].Packages
	if len(packages) == 0 {
		t.Fatalf("matrix.lock has no %s", component.BaseKey(d, on))
	}
	victim := temporary(t)
	if err := os.Chmod(victim, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ASSAY_TEST_SECRET", "the-secret-of-this-machine")
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	connected := make(chan struct{}, 1)
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			c.Close()
			select {
			case connected <- struct{}{}:
			default:
			}
		}
	}()
	var disk unix.Stat_t
	if err := unix.Stat(victim, &disk); err != nil {
		t.Fatal(err)
	}
	name, archive := fmt.Sprintf("assay-hostile-%d", os.Getpid()), t.TempDir()
	deb := hostileDeb(t, archive, fmt.Sprintf(hostile, victim, server.Addr().(*net.TCPAddr).Port,
		fmt.Sprint(unix.Major(disk.Dev), unix.Minor(disk.Dev)), os.Getpid(), name))
	packages = append(slices.Clone(packages), deb)
	slices.SortFunc(packages, func(a, b recipe.Deb) int { return cmp.Compare(a.Name, b.Name) })
	l.Debs[component.BaseKey(d, on)] = lock.PackageSet{Packages: packages}

	w := workspace(t, "../../matrix.yaml", map[string]string{"https://hostile.example.org": archive})
	w.Lock = l
	s, stop, err := w.NewSolver(t.Context(), driver.BuildOptions{OutDir: t.TempDir(), Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	src := recipe.Source{Kind: recipe.FromLayout, Ref: "base-bookworm-minbase", Digest: "sha256:" + deb.SHA256}
	r := &recipe.Recipe{Target: "hostile", Platform: on, Stages: []recipe.Stage{{Name: "base", From: src}}}
	if err := s.Provider.Prepare(t.Context(), r, on); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(victim); err != nil || len(left) > 0 {
		t.Errorf("it has written to this machine: %v (%v)", left, err)
	}
	select {
	case <-connected:
		t.Error("it has connected to a server on this machine")
	default:
	}
	if out, err := exec.Command("pgrep", "-x", "-f", name).CombinedOutput(); err == nil {
		t.Errorf("a process of it is left: %s", out)
	}
	manifest, err := s.Provider.Layout(src, on)
	if err != nil {
		t.Fatal(err)
	}
	report := ""
	for _, h := range baseMembers(t, filepath.Join(w.StateDir, "content"), manifest.String()) {
		if h.name == "hostile" {
			report = h.text
		}
		if h.kind == tar.TypeBlock || h.kind == tar.TypeChar {
			t.Errorf("the base has the device %s", h.name)
		}
	}
	if !strings.HasPrefix(report, "uid 0\n") || !strings.HasSuffix(report, "end\n") {
		t.Fatalf("the script was not executed to its end:\n%s", report)
	}
	for _, bad := range []string{"the-secret-of-this-machine", "disk was read", "memory was read", "mounted", "connected", "was reached", "e2e.test", "buildkitd", "interface eth", "interface en"} {
		if strings.Contains(report, bad) {
			t.Errorf("the script reports %q:\n%s", bad, report)
		}
	}
}

type member struct {
	name, text string
	kind       byte
}

// baseMembers returns the members of a base's only layer, with the content of the report.
func baseMembers(t *testing.T, dir, manifest string) []member {
	t.Helper()
	layers, err := layoutImage(t, dir, manifest).Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	rc, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	var out []member
	for tr := tar.NewReader(rc); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		m := member{name: h.Name, kind: h.Typeflag}
		if h.Name == "hostile" {
			var text bytes.Buffer
			if _, err := io.Copy(&text, tr); err != nil {
				t.Fatal(err)
			}
			m.text = text.String()
		}
		out = append(out, m)
	}
}

func realLock(t *testing.T) *lock.Lock {
	t.Helper()
	f, err := os.Open("../../matrix.lock")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := lock.Read("matrix.lock", f)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
