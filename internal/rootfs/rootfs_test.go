package rootfs

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestResolve(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"usr/lib", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"lib": "usr/lib", "abs": "/usr/lib", "up": "../../../etc", "loop": "loop", "usr/lib/self": "/lib/./../lib",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		"/": "/", "/lib": "/usr/lib", "/abs": "/usr/lib", "/up": "/etc", "/../../etc": "/etc", "/lib/self/self": "/usr/lib",
	} {
		if got, err := f.Resolve(in); got != want || err != nil {
			t.Errorf("Resolve(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	if _, err := f.Resolve("/loop"); err == nil {
		t.Error("Resolve of a link to itself succeeded")
	}
	if _, err := f.Resolve("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Resolve(/none) = %v; want ErrNotExist", err)
	}
	if f.Native() {
		t.Error("a temporary directory is the native root")
	}
}

func TestLookPathAndGlob(t *testing.T) {
	root := t.TempDir()
	os.MkdirAll(filepath.Join(root, "bin"), 0o755)
	os.WriteFile(filepath.Join(root, "bin/tool"), nil, 0o755)
	os.WriteFile(filepath.Join(root, "bin/text"), nil, 0o644)
	f, _ := Open(root)
	if got, err := f.LookPath("tool", "/none:rel:/bin"); got != "/bin/tool" || err != nil {
		t.Errorf("LookPath(tool) = %q, %v; want /bin/tool", got, err)
	}
	if _, err := f.LookPath("text", "/bin"); err == nil {
		t.Error("LookPath found a file that is not executable")
	}
	if got, _ := f.Glob("/bin/t*"); len(got) != 2 {
		t.Errorf("Glob = %q; want two names", got)
	}
	if _, err := f.ReadFile("/bin", 10); err == nil {
		t.Error("ReadFile read a directory")
	}
}

// TestOpenKinds: a FIFO, a device or a socket of an image is refused with its kind, also behind a
// link, and by the path in the image.
func TestOpenKinds(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/fifo", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	root, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"/fifo": "/fifo is a FIFO", "/link": "/link is a FIFO", "/socket": "/socket is a socket", "/": "/ is a directory"} {
		if _, err := root.ReadFile(name, 100); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("ReadFile(%s) = %v; want %q", name, err, want)
		}
		if f, err := root.OpenResolved(name); name != "/link" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("OpenResolved(%s) = %v, %v; want %q", name, f, err, want)
		}
	}
}
