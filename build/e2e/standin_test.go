package e2e

import (
	"io"
	"strings"
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
	if _, err := standin.Header(); err != nil {
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

// TestFaults: each fault is refused at its place, by name.
func TestFaults(t *testing.T) {
	long(t)
	addr := buildkit(t)
	const nccl = "https://github.com/NVIDIA/nccl/archive/refs/tags/v2.27.6-1.tar.gz"
	for _, c := range []struct {
		name   string
		opts   standin.Options
		damage string
		want   []string
	}{
		{"library that does not resolve", standin.Options{Faults: map[string]standin.Fault{"gdrcopy": standin.Unresolved}}, "", []string{"does not pass the gate", "libstandin-absent.so.1 is missing", "libgdrapi.so"}},
		{"wrong version", standin.Options{Faults: map[string]standin.Fault{"nccl": standin.WrongVersion}}, "", []string{"does not pass the gate", "component/nccl/version", "2.0.1"}},
		// Last: it empties the builder's cache.
		{"damaged download", standin.Options{}, nccl, []string{"v2.27.6-1.tar.gz", "checksum mismatch", "matrix.lock has sha256:", "the download is sha256:"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			u := upstreams(t, c.opts)
			w := workspace(t, "testdata/standin-one.yaml", u.Mirrors())
			lockAll(t, w, u, addr)
			if c.damage != "" {
				// The builder must not have the good one already.
				prune(t, addr)
				if err := u.Damage(c.damage, true); err != nil {
					t.Fatal(err)
				}
			}
			res, err := w.Build(t.Context(), driver.BuildOptions{OutDir: t.TempDir(), Builders: []string{addr}, Progress: progress()})
			if err != nil {
				t.Fatal(err)
			}
			if !res.Failed() {
				t.Fatal("the build passed")
			}
			got := res.Targets[0].Error
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("error has no %q:\n%s", want, got)
				}
			}
			if res.Targets[0].Tags != nil {
				t.Errorf("it got tags %v", res.Targets[0].Tags)
			}
		})
	}
}
