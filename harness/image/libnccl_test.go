package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/elf/elftest"
	"github.com/assay-hpc/assay/internal/gputest"
	"github.com/assay-hpc/assay/internal/host/libnccl"
	"github.com/assay-hpc/assay/internal/result"
)

// compiled are libraries as files of an image: assay's libnccl.so.2, and one that says
// that it is NVIDIA's.
func compiled(t *testing.T) (ours, theirs string) {
	t.Helper()
	dir := t.TempDir()
	gputest.Tool(t, "../../cmd/libnccl/build", dir, "1.2.3")
	write(t, dir, files{"theirs.c": `const char *version(void) { return "NCCL version 2.28.9+cuda13.0"; }`})
	gputest.Tool(t, "cc", "-shared", "-fPIC", "-o", dir+"/theirs.so", dir+"/theirs.c")
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	return read(libnccl.Name), read("theirs.so")
}

// TestLibnccl: an image with both libraries, whole and with faults.
func TestLibnccl(t *testing.T) {
	ours, theirs := compiled(t)
	const file, engine = "opt/assay/lib/libnccl.so.2", "opt/assay/lib/libassay-coll.so"
	rest := with(loaderFile, files{"usr/lib/libc.so.6": lib(), "usr/lib/ld-linux-x86-64.so.2": lib()})
	for _, tt := range []struct {
		name  string
		files files
		want  []want
	}{
		{"both, not looked at from inside", files{file: ours, engine: lib(), "usr/lib/libnccl.so.2": theirs},
			[]want{{"libnccl/assay", "skip", "only inside"}, {"libnccl/found", "pass", "NVIDIA's NCCL 2.28.9+cuda13.0: /usr/lib/libnccl.so.2"}}},
		{"no engine", files{file: ours}, []want{{"libnccl/assay", "fail", "/opt/assay/lib/libassay-coll.so is no shared library for EM_X86_64"}}},
		{"another machine's engine", files{file: ours, engine: string(elftest.File{Machine: 183}.Bytes())}, []want{{"libnccl/assay", "fail", "is no shared library for"}}},
		{"NVIDIA's in our place", files{file: theirs, engine: lib()}, []want{{"libnccl/assay", "fail", "/opt/assay/lib/libnccl.so.2 is NVIDIA's NCCL 2.28.9+cuda13.0"}}},
		{"ours in NVIDIA's place", files{"usr/lib/libnccl.so.2": ours}, []want{{"libnccl/found", "pass", "assay's 1.2.3, API of NCCL 2.30.7: /usr/lib/libnccl.so.2"}}},
	} {
		got := results(t, Config{}, fixture(t, with(rest, tt.files)))
		for _, w := range tt.want {
			r := got[w.id]
			expect(t, tt.name+": "+w.id, result.Result{Verdict: r.Verdict, Reason: r.Reason, Output: r.Output}, w.verdict, w.text)
		}
	}
}

// TestLibncclLoads: this machine's loader takes assay's library.
func TestLibncclLoads(t *testing.T) {
	dir := reachable(t)
	gputest.Tool(t, "../../cmd/libnccl/build", dir)
	s, env := machine()
	check := certificate.Check{Path: filepath.Join(dir, libnccl.Name)}
	expect(t, "our library", s.load(t.Context(), env, check), "pass", check.Path)
}
