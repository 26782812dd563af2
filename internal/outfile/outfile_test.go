package outfile

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// holds returns the files of a directory with their texts.
func holds(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		b, _ := os.ReadFile(filepath.Join(dir, e.Name())) // "" for a directory
		out[e.Name()] = string(b)
	}
	return out
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x")
	for _, text := range []string{"first", "second, longer", ""} {
		if err := Write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := holds(t, dir); len(got) != 1 || got["x"] != text {
			t.Errorf("%v; want %q alone", got, text)
		}
	}
	if st, err := os.Stat(name); err != nil || st.Mode() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "d"), nil); err == nil || len(holds(t, dir)) != 2 {
		t.Errorf("over a directory: %v, %v", err, holds(t, dir))
	}
	if err := Write(filepath.Join(dir, "none", "x"), nil); err == nil {
		t.Error("into a directory that is not there")
	}
}

// TestDir: all files or none, and no directory that was made for nothing.
func TestDir(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a", "b")
	d, err := OpenDir(name)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("an empty directory was left: %v", err)
	}
	if d, err = OpenDir(name); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Write(map[string][]byte{"x": []byte("1"), "y": []byte("2")}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if got := holds(t, name); len(got) != 2 || got["x"] != "1" || got["y"] != "2" {
		t.Errorf("%v", got)
	}
	if err := os.Mkdir(filepath.Join(name, "z"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(map[string][]byte{"z": []byte("3"), "zz": []byte("4")}); err == nil || len(holds(t, name)) != 3 {
		t.Errorf("over a directory: %v, %v", err, holds(t, name))
	}
	if _, err := OpenDir(filepath.Join(name, "x")); err == nil {
		t.Error("a file is not a directory")
	}
}

// TestWriteKeeps: what exists stays what it is, with its mode; only its content changes.
func TestWriteKeeps(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	secret := at("secret")
	if err := os.WriteFile(secret, []byte("long old content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "secret", "chain": "link", "absolute": secret, "dangling": "later", "sub": "."} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"secret", "link", "chain", "absolute", "sub/secret", "sub/sub/chain"} {
		text := strings.Repeat("x", i)
		if err := Write(at(name), []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b, err := os.ReadFile(secret)
		st, err2 := os.Lstat(secret)
		if err != nil || err2 != nil || string(b) != text || st.Mode() != 0o600 {
			t.Errorf("%s: the file has %q, mode %v (%v, %v)", name, b, st.Mode(), err, err2)
		}
	}
	if err := Write(at("dangling"), []byte("new")); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(at("later")); err != nil || string(b) != "new" {
		t.Errorf("a link to a file that was not there: %q, %v", b, err)
	}
	for _, link := range []string{"link", "chain", "absolute", "dangling", "sub"} {
		if st, err := os.Lstat(at(link)); err != nil || st.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more: %v, %v", link, st.Mode(), err)
		}
	}
	if err := os.Symlink("loop", at("loop")); err != nil {
		t.Fatal(err)
	}
	if err := Write(at("loop"), nil); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link to itself: %v", err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(secret, 12, 34); err != nil {
			t.Fatal(err)
		}
		if err := Write(at("link"), []byte("x")); err != nil {
			t.Error(err)
		}
		st, err := os.Stat(secret)
		if err != nil {
			t.Fatal(err)
		}
		if own := st.Sys().(*syscall.Stat_t); own.Uid != 12 || own.Gid != 34 || st.Mode() != 0o600 {
			t.Errorf("owner %d:%d, mode %v; want 12:34 and 0600", own.Uid, own.Gid, st.Mode())
		}
	}
}

// TestWriteDevice: a device is written to. A link stands before the machine's own, in case it is not.
func TestWriteDevice(t *testing.T) {
	dir := t.TempDir()
	null := filepath.Join(dir, "null")
	if os.Getuid() == 0 && syscall.Mknod(null, syscall.S_IFCHR|0o666, 1<<8|3) == nil {
		if err := Write(null, []byte("x")); err != nil {
			t.Error(err)
		}
		if st, err := os.Lstat(null); err != nil || st.Mode()&os.ModeCharDevice == 0 {
			t.Errorf("the device became %v (%v)", st.Mode(), err)
		}
	}
	link := filepath.Join(dir, "full")
	if err := os.Symlink("/dev/full", link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("x")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full device: %v", err)
	}
	if st, err := os.Lstat(link); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link became %v (%v)", st.Mode(), err)
	}
	socket := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Write(socket, nil); err == nil || !strings.Contains(err.Error(), "is a socket") {
		t.Errorf("a socket: %v", err)
	}
}

// TestWriteFIFO: a FIFO's reader gets the content; without one the wait ends.
func TestWriteFIFO(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("more than a pipe holds\n", 10000)
	got := make(chan string)
	go func() {
		b, _ := os.ReadFile(fifo)
		got <- string(b)
	}()
	if err := Write(fifo, []byte(long)); err != nil {
		t.Error(err)
	}
	if text := <-got; text != long {
		t.Errorf("the reader got %d bytes of %d", len(text), len(long))
	}
	if st, err := os.Lstat(fifo); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the FIFO became %v (%v)", st.Mode(), err)
	}
	defer func(d time.Duration) { readerWait = d }(readerWait)
	readerWait = 0
	if err := Write(fifo, []byte("x")); err == nil || !strings.Contains(err.Error(), "nobody has read") {
		t.Errorf("without a reader: %v", err)
	}
}

// TestWriteDescriptor: what this process has open is written to where it stands.
func TestWriteDescriptor(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("before ")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(fmt.Sprintf("/dev/fd/%d", f.Fd()), link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("during ")); err != nil {
		t.Error(err)
	}
	f.WriteString("after")
	if b, err := os.ReadFile(f.Name()); err != nil || string(b) != "before during after" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestWriteUmask: a new file has the mode that the user's umask leaves.
func TestWriteUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	name := filepath.Join(t.TempDir(), "x")
	if err := Write(name, nil); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(name); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// TestDirKeeps: a directory's files are what they were, too.
func TestDirKeeps(t *testing.T) {
	d, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(d.Name, "x")); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(map[string][]byte{"x": []byte("1"), "y": []byte("2")}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(target)
	st, err2 := os.Stat(target)
	if err != nil || err2 != nil || string(b) != "1" || st.Mode() != 0o640 || holds(t, d.Name)["y"] != "2" {
		t.Errorf("%q, %v, %v, %v", b, st.Mode(), err, holds(t, d.Name))
	}
}

// TestCheck: it fails where Write would, and leaves no trace.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	fifo, old := filepath.Join(dir, "fifo"), filepath.Join(dir, "old")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		fifo: true, old: true, filepath.Join(dir, "new"): true, "/dev/null": true, "/dev/stdout": true,
		dir: false, filepath.Join(dir, "none", "x"): false, filepath.Join(old, "x"): false,
	} {
		if err := Check(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	entries, err := os.ReadDir(dir)
	b, err2 := os.ReadFile(old)
	if err != nil || err2 != nil || len(entries) != 2 || string(b) != "old" {
		t.Errorf("%v, %q, %v, %v", entries, b, err, err2)
	}
}
