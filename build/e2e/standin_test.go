package e2e

import (
	"io"
	"os"
	"testing"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/standin"
)

// upstreams starts stand-in upstreams.
func upstreams(t *testing.T, opts standin.Options) *standin.Upstreams {
	t.Helper()
	if err := standin.Available(); err != nil {
		t.Skip(err)
	}
	dir, err := standin.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	opts.Log = io.Discard
	u, err := standin.New(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// TestStandinMatrix builds and certifies every row of the stand-in matrix.
func TestStandinMatrix(t *testing.T) {
	addr := buildkit(t)
	u := upstreams(t, standin.Options{})
	w := workspace(t, "testdata/standin.yaml", u.Mirrors())
	lockAll(t, w, addr)
	out := t.TempDir()
	if keep := os.Getenv("ASSAY_TEST_OUT"); keep != "" {
		out = keep
	}
	res, err := w.Build(t.Context(), driver.BuildOptions{Names: []string{"*"}, OutDir: out, Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	if res.Failed() {
		t.Fatal(report(res))
	}
}
