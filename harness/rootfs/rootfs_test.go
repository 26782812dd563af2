package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
