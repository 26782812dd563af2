package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func root(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it mounts and makes namespaces, which needs root")
	}
}

func write(t *testing.T, file string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("x"), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestLock: a second user waits, says so once, and stops waiting when it is
// told to.
func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	first, err := Lock(t.Context(), file, func() { t.Error("the first one waits") })
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("the user pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	told := 0
	if _, err := Lock(ctx, file, func() { told++; cancel(why) }); !errors.Is(err, why) || told != 1 {
		t.Errorf("Lock of a locked file = %v after %d remarks; want the cancellation after one", err, told)
	}
	waits := make(chan struct{})
	got := make(chan error)
	go func() {
		f, err := Lock(context.Background(), file, func() { close(waits) })
		if err == nil {
			f.Close()
		}
		got <- err
	}()
	<-waits
	first.Close()
	if err := <-got; err != nil {
		t.Errorf("Lock after the other has gone = %v", err)
	}
}

func TestMountsBelow(t *testing.T) {
	const info = `21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:5 / /state rw - tmpfs tmpfs rw
31 30 0:6 / /state/a rw - tmpfs tmpfs rw
32 31 0:7 / /state/a/b\040c\134d rw master:3 - overlay overlay rw,lowerdir=/x
33 31 0:8 / /state/a rw - tmpfs tmpfs rw
34 21 0:9 / /statement/a rw - tmpfs tmpfs rw
35 21 0:9 / /state/z//deleted rw - tmpfs tmpfs rw
`
	got, err := mountsBelow(strings.NewReader(info), "/state")
	want := []string{"/state/z//deleted", "/state/a", `/state/a/b c\d`, "/state/a"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("mountsBelow: %v (-want +got):\n%s", err, diff)
	}
	if _, err := mountsBelow(strings.NewReader("21 1 8:1\n"), "/state"); err == nil {
		t.Error("a line without a mount point is accepted")
	}
}

// TestRemove: what is mounted below a directory does not keep it from being
// removed, even if it is in use, and nothing outside of it is touched.
func TestRemove(t *testing.T) {
	root(t)
	dir, outside := filepath.Join(t.TempDir(), "a dir"), t.TempDir()
	t.Cleanup(func() { _ = Unmount(dir) })
	write(t, filepath.Join(outside, "precious"))
	file := filepath.Join(dir, "buildkit-mount1", "file")
	write(t, file)
	write(t, filepath.Join(dir, "busy", "x"))
	for _, m := range [][2]string{{outside, "buildkit-mount1"}, {"", "busy"}, {"", "busy"}} {
		if err := os.MkdirAll(filepath.Join(dir, m[1]), 0o755); err != nil {
			t.Fatal(err)
		}
		kind, flags := "tmpfs", uintptr(0)
		if m[0] != "" {
			kind, flags = "", unix.MS_BIND
		}
		if err := unix.Mount(m[0], filepath.Join(dir, m[1]), kind, flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "file"))
	if err := unix.Mount(filepath.Join(outside, "precious"), filepath.Join(dir, "file"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	open, err := os.Create(filepath.Join(dir, "busy", "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := os.RemoveAll(dir); err == nil {
		t.Fatal("RemoveAll removes what is mounted: the test shows nothing")
	}
	write(t, filepath.Join(outside, "precious"))
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", dir, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Errorf("what was mounted there was removed: %v", err)
	}
	if err := Remove(dir); err != nil {
		t.Errorf("Remove of nothing = %v", err)
	}
}

// TestUnmountKeeps: a directory that the user has mounted is the user's.
func TestUnmountKeeps(t *testing.T) {
	root(t)
	dir := t.TempDir()
	if err := unix.Mount("", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	write(t, filepath.Join(dir, "kept"))
	if err := Unmount(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept")); err != nil {
		t.Errorf("the directory itself was unmounted: %v", err)
	}
}

// TestClaim: what those who ended left is removed, what others use is not.
func TestClaim(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	alive, err := Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(alive.Dir, "half"))
	dead, err := Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dead.Dir, "half"))
	dead.lock.Close() // as the kernel does
	write(t, filepath.Join(dir, "older", "m", "file"))
	if os.Geteuid() == 0 {
		if err := unix.Mount("", filepath.Join(dir, "older", "m"), "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	next, err := Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{alive.Dir + "/half": true, dead.Dir: false, filepath.Join(dir, "older"): false, next.Dir: true} {
		if _, err := os.Stat(file); (err == nil) != want {
			t.Errorf("%s: %v; want it there: %v", file, err, want)
		}
	}
	if err := errors.Join(alive.Close(), next.Close()); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 { // the lock
		t.Errorf("%v is left", entries)
	}
}

// started runs when the test's program is the one that will be killed: it
// starts a program that mounts something and starts another one that would
// live long.
func started(dir string) {
	lock, err := Lock(context.Background(), filepath.Join(dir, "held"), nil)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command("/bin/sh", "-euc", "mkdir "+dir+"/m; mount -t tmpfs x "+dir+"/m; trap '' TERM INT; setsid sleep 3600 & echo > "+dir+"/ready; exec sleep 3600")
	cmd.ExtraFiles = []*os.File{lock}
	cmd.Stderr = os.Stderr
	wait, err := Start(cmd)
	if err != nil {
		panic(err)
	}
	lock.Close()
	panic(wait())
}

// TestStart: a program that is killed takes with it what it started, in
// whatever session and group, and its mounts.
func TestStart(t *testing.T) {
	if dir := os.Getenv("ASSAY_TEST_STARTED"); dir != "" {
		started(dir)
	}
	root(t)
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestStart$")
	cmd.Env = append(os.Environ(), "ASSAY_TEST_STARTED="+dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // for a test that hangs
	defer cancel()
	for _, err := os.Stat(filepath.Join(dir, "ready")); err != nil; _, err = os.Stat(filepath.Join(dir, "ready")) {
		if ctx.Err() != nil {
			t.Fatal("the program did not start")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// The lock is held by every process that inherited it.
	lock, err := Lock(ctx, filepath.Join(dir, "held"), nil)
	if err != nil {
		t.Fatalf("a process outlives the one that was killed: %v", err)
	}
	lock.Close()
	if err := os.Remove(filepath.Join(dir, "m")); err != nil {
		t.Errorf("a mount outlives the program that made it: %v", err)
	}
}

// TestStartEnds: the program's own status and output come back.
func TestStartEnds(t *testing.T) {
	root(t)
	cmd := exec.Command("/bin/sh", "-c", `echo "$1 $EMPTY $$ $(ls "$1")"; exit 3`, "sh", t.TempDir())
	var out strings.Builder
	cmd.Stdout = &out
	write(t, filepath.Join(cmd.Args[4], "x"))
	wait, err := Start(cmd, cmd.Args[len(cmd.Args)-1])
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("wait = %v; want status 3", err)
	}
	if f := strings.Fields(out.String()); len(f) != 2 || f[1] != "1" {
		t.Errorf("it printed %q; want its directory, empty, and that it is process 1", out.String())
	}
	if _, err := Start(exec.Command("no-such-program")); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("Start of nothing = %v; want ErrNotFound", err)
	}
}

// TestParts: sweeping removes what the dead left, and never what is in use,
// however the two coincide.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".part-dead"))
	write(t, filepath.Join(dir, "whole"))
	done := make(chan struct{})
	var sweeper, makers sync.WaitGroup
	sweeper.Go(func() {
		for {
			if err := SweepParts(dir); err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range 4 {
		makers.Go(func() {
			for n := range 500 {
				f, err := CreatePart(dir)
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.Rename(f.Name(), filepath.Join(dir, fmt.Sprint(i, "-", n))); err != nil {
					t.Errorf("a part in use is gone: %v", err)
				}
				f.Close()
			}
		})
	}
	makers.Wait()
	close(done)
	sweeper.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4*500+1 {
		t.Errorf("%d files (%v); want those with a name", len(entries), err)
	}
}
