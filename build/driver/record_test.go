package driver

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// TestRecordIsNotBelieved: a record that is read back must pass as the gate does,
// whatever it says of itself.
func TestRecordIsNotBelieved(t *testing.T) {
	w := open(t, Options{Matrix: own(t)})
	w.Lock.Epoch = 1
	pin(t, w, w.Targets[:1])
	target := w.Targets[0]
	b := &build{Workspace: w}
	mk, err := w.Recipe(target, amd64, amd64)
	if err != nil {
		t.Fatal(err)
	}
	image, certifier, other := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64), "sha256:"+strings.Repeat("3", 64)
	made := func(change func(*certificate.Predicate)) []byte {
		p := certificate.Predicate{
			Suite: "image", Started: w.Epoch(), Finished: w.Epoch(), Harness: certificate.Harness{Version: "1", Origin: certificate.OriginAssay},
			Environment: certificate.Environment{Platform: "linux/amd64", Target: target.Name, Recipe: mk.Recipe.Declared()},
			Results:     []result.Result{{ID: "image/files", Title: "files", Verdict: result.Pass}},
		}
		change(&p)
		st := certificate.New(p)
		if err := st.SetSubject("image", image); err != nil {
			t.Fatal(err)
		}
		if err := st.AddSubject("image-certify", certifier); err != nil {
			t.Fatal(err)
		}
		doc, err := st.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	good := record{Digest: image, Certifier: certifier, Certificate: made(func(*certificate.Predicate) {})}
	if err := b.verify(target, amd64, good); err != nil {
		t.Fatalf("as it was made: %v", err)
	}
	for what, change := range map[string]func(*record){
		"no certificate":    func(r *record) { r.Certificate = nil },
		"no document":       func(r *record) { r.Certificate = []byte("{}") },
		"no image":          func(r *record) { r.Digest = "" },
		"another image":     func(r *record) { r.Digest = other },
		"another certifier": func(r *record) { r.Certifier = other },
		"another target's": func(r *record) {
			r.Certificate = made(func(p *certificate.Predicate) { p.Environment.Target = "cuda" })
		},
		"of no target": func(r *record) { r.Certificate = made(func(p *certificate.Predicate) { p.Environment.Target = "" }) },
		"another platform's": func(r *record) {
			r.Certificate = made(func(p *certificate.Predicate) { p.Environment.Platform = "linux/arm64" })
		},
		"another recipe's": func(r *record) {
			r.Certificate = made(func(p *certificate.Predicate) { p.Environment.Recipe = strings.Repeat("0", 64) })
		},
		"one that failed": func(r *record) {
			r.Certificate = made(func(p *certificate.Predicate) { p.Results[0].Verdict, p.Results[0].Reason = result.Fail, "x" })
		},
		"one with only skips": func(r *record) {
			r.Certificate = made(func(p *certificate.Predicate) { p.Results[0].Verdict, p.Results[0].Reason = result.Skip, "x" })
		},
		"a verdict of its own": func(r *record) {
			r.Certificate = []byte(strings.Replace(string(made(func(p *certificate.Predicate) { p.Results[0].Verdict, p.Results[0].Reason = result.Fail, "x" })), `"verdict":"fail"`, `"verdict":"pass"`, 1))
		},
	} {
		r := good
		change(&r)
		if err := b.verify(target, amd64, r); err == nil {
			t.Errorf("%s: believed", what)
		}
	}
}

// TestRecordFiles: a layout may come from anywhere. What stands in a record's place is read only if
// it is a regular file of a size that can be read, and replaced, not followed, when one is written.
func TestRecordFiles(t *testing.T) {
	w := open(t, Options{Matrix: own(t)})
	b := &build{Workspace: w, o: BuildOptions{OutDir: t.TempDir()}}
	file := b.recordFile("x")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for what, tt := range map[string]struct {
		put  func() error
		want string
	}{
		"a FIFO":        {func() error { return syscall.Mkfifo(file, 0o644) }, "is a FIFO"},
		"a socket":      {func() error { return syscall.Mknod(file, syscall.S_IFSOCK|0o644, 0) }, "is a socket"},
		"a link":        {func() error { return os.Symlink(elsewhere, file) }, "no such file"},
		"a sparse file": {func() error { return sparse(file, 3<<30) }, "is 3221225472 bytes long"},
	} {
		os.Remove(file)
		if err := tt.put(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.readRecord("x"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", what, err, tt.want)
		}
		if err := b.writeRecord(record{Hash: "x", Digest: "sha256:12"}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if r, err := b.readRecord("x"); err != nil || r.Digest != "sha256:12" {
			t.Errorf("%s, written: %v, %v", what, r, err)
		}
		if _, err := os.Lstat(elsewhere); err == nil {
			t.Fatalf("%s: the record is elsewhere", what)
		}
	}
}

func sparse(file string, size int64) error {
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return err
	}
	return os.Truncate(file, size)
}
