package infile

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// kinds makes one of each kind of file that is not read, and returns what errors call them.
func kinds(t *testing.T) map[string]string {
	dir := t.TempDir()
	fifo, socket := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	link := filepath.Join(dir, "link")
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	return map[string]string{fifo: "FIFO", link: "FIFO", socket: "socket", "/dev/zero": "character device", dir: "directory"}
}

// TestKinds: whatever is not a regular file is refused at once, with its kind.
func TestKinds(t *testing.T) {
	for name, kind := range kinds(t) {
		for what, read := range map[string]func(string, int64) ([]byte, error){"Read": Read, "ReadArgument": ReadArgument} {
			_, err := read(name, 100)
			var wrong *KindError
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), name+" is a "+kind) {
				t.Errorf("%s(%s) = %v; want that it is a %s", what, name, err, kind)
			}
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestLimit: a longer file is refused by its size, before it is read.
func TestLimit(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(name, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]bool{4: false, 5: true, 6: true} {
		b, err := Read(name, limit)
		var long *SizeError
		if want && (err != nil || string(b) != "12345") || !want && (!errors.As(err, &long) || long.Size != 5) {
			t.Errorf("limit %d: %q, %v", limit, b, err)
		}
	}
	if err := os.Truncate(name, 3<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(name, 1<<20); err == nil || !strings.Contains(err.Error(), "is 3221225472 bytes long; at most 1048576 are read") {
		t.Errorf("a sparse file of 3 GB: %v", err)
	}
	if b, err := Read("/dev/null", 1); err != nil || len(b) != 0 {
		t.Errorf("the null device: %q, %v", b, err)
	}
	if b, err := Read("/proc/self/stat", 1<<20); err != nil || len(b) == 0 { // whose size is told as 0
		t.Errorf("/proc: %q, %v", b, err)
	}
}

// TestDescriptors: pipes that this process has open are read, to the limit.
func TestDescriptors(t *testing.T) {
	for _, form := range []string{"/dev/fd/%d", "/proc/self/fd/%d", "/dev//fd/./%d"} {
		for limit, want := range map[int64]string{5: "12345", 4: ""} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			w.WriteString("12345")
			w.Close()
			name := fmt.Sprintf(form, r.Fd())
			b, err := ReadArgument(name, limit)
			if string(b) != want || (err == nil) != (want != "") {
				t.Errorf("%s, limit %d: %q, %v", name, limit, b, err)
			}
			if _, err := r.Stat(); err != nil {
				t.Errorf("%s: the caller's descriptor was closed: %v", name, err)
			}
			r.Close()
		}
	}
	for _, name := range []string{"/dev/fd/x", "/dev/fd/-1", "/dev/fd/1/x", "/dev/fd", "stdin", "/dev/fd/99999999999"} {
		if n, ok := Descriptor(name); ok {
			t.Errorf("Descriptor(%q) = %d", name, n)
		}
	}
}
