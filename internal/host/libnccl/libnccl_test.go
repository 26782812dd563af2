package libnccl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/gputest"
)

// compile makes a library of C.
func compile(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	c := filepath.Join(dir, "a.c")
	if err := os.WriteFile(c, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	so := filepath.Join(dir, Name)
	gputest.Tool(t, "cc", "-shared", "-fPIC", "-o", so, c)
	return so
}

func TestReadFile(t *testing.T) {
	front := t.TempDir()
	gputest.Tool(t, "../../../cmd/libnccl/build", front, "1.2.3-rc.1")
	for _, tt := range []struct{ name, file, want, api string }{
		{"ours", filepath.Join(front, Name), "assay's 1.2.3-rc.1, API of NCCL 2.30.7", "2.30.7"},
		{"NVIDIA's", compile(t, `const char *version(void) { return "NCCL version 2.28.9+cuda13.0"; }`), "NVIDIA's NCCL 2.28.9+cuda13.0", "2.28.9"},
		{"far in", compile(t, `const char fill[3000000] = "x", version[] = "NCCL version 2.18.5+cuda12.2";`), "NVIDIA's NCCL 2.18.5+cuda12.2", "2.18.5"},
		{"another's", compile(t, `const char *version(void) { return "RCCL version 2.27.7+hip7.0"; }`), "a library that does not say which project built it", ""},
	} {
		id, err := ReadFile(tt.file)
		if err != nil || id.String() != tt.want || id.API != tt.api {
			t.Errorf("%s: %v (API %q), %v; want %s", tt.name, id, id.API, err, tt.want)
		}
	}
	if _, err := ReadFile(filepath.Join(front, "none")); err == nil {
		t.Error("a file that is not there")
	}
	if _, err := ReadFile("libnccl.go"); err == nil || !strings.Contains(err.Error(), "libnccl.go: ") {
		t.Errorf("a file of another kind: %v", err)
	}
}

func TestInstalled(t *testing.T) {
	dir := t.TempDir()
	gputest.Tool(t, "../../../cmd/libnccl/build", dir)
	so := filepath.Join(dir, Name)
	if err := installed(so); err == nil || !strings.Contains(err.Error(), "its engine is not next to it: stat "+filepath.Join(dir, Engine)) {
		t.Errorf("without an engine: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, Engine), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := installed(so); err != nil {
		t.Error(err)
	}
	theirs := compile(t, `const char *version(void) { return "NCCL version 2.28.9+cuda13.0"; }`)
	if err := installed(theirs); err == nil || !strings.Contains(err.Error(), "it is NVIDIA's NCCL 2.28.9+cuda13.0") {
		t.Errorf("NVIDIA's: %v", err)
	}
}

// TestPieces: a text that lies over the end of a piece is found.
func TestPieces(t *testing.T) {
	for _, at := range []int{0, 1<<20 - 40, 1<<20 - 1, 1 << 20, 1<<20 + 5, 2<<20 - 128} {
		text := append(make([]byte, at), "NCCL version 2.28.9+cuda13.0"...)
		id, err := search(bytes.NewReader(append(text, 0)))
		if err != nil || id.Version != "2.28.9+cuda13.0" {
			t.Errorf("at %d: %v, %v", at, id, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Skip(err)
	}
	f.Add(self[:min(len(self), 4096)])
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = Read(bytes.NewReader(b)) })
}
