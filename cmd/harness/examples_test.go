package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/result"
)

// TestExamples: the certificates in docs/examples are what machines said and what
// was signed; the reports beside them are what this program makes of them.
func TestExamples(t *testing.T) {
	dirs, err := filepath.Glob("../../docs/examples/*/certificate.json")
	if err != nil || len(dirs) < 4 {
		t.Fatalf("%d examples, %v", len(dirs), err)
	}
	read := func(t *testing.T, dir, name string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, file := range dirs {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			keyFile := "../../docs/examples/key.pub"
			if own := filepath.Join(dir, "key.pub"); exists(own) {
				keyFile = own
			}
			key, err := attest.LoadPublicKey(keyFile)
			if err != nil {
				t.Fatal(err)
			}
			doc := read(t, dir, "certificate.json")
			st, err := certificate.Parse(doc)
			if err != nil {
				t.Fatal(err)
			}
			if err := certificatetest.Validate(doc); err != nil {
				t.Error(err)
			}
			signed, _, err := certificate.Open(read(t, dir, "certificate.dsse.json"), key)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(st, signed); d != "" {
				t.Errorf("what was signed is another certificate (-file +signed):\n%s", d)
			}
			for _, r := range st.Predicate.Results {
				if r.Verdict == result.Error || r.Verdict == result.Fail {
					t.Errorf("%s: %s: %s", r.ID, r.Verdict, r.Reason)
				}
			}
			const name = "report.txt"
			page := filepath.Join(t.TempDir(), name)
			code, _, errOut := tell("report", filepath.Join(dir, "certificate.dsse.json"), "--key", keyFile, "--format", "text", "--out", page)
			if code != exit.Pass {
				t.Fatal(errOut)
			}
			got := read(t, filepath.Dir(page), name)
			if golden.Update() {
				if err := os.WriteFile(filepath.Join(dir, name), got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if string(got) != string(read(t, dir, name)) {
				t.Errorf("%s is not what this program makes of the certificate; go test ./cmd/harness -run TestExamples -args -update writes it", name)
			}
		})
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
