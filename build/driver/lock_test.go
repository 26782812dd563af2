package driver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/solve"
)

// TestLockIsKept: a run that is cut off has written what it had resolved, and the
// next one asks for the rest alone.
func TestLockIsKept(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	var served atomic.Int32
	cutOff := errors.New("interrupted")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2/") {
			http.NotFound(w, r)
			return
		}
		if served.Add(1) == 4 {
			interrupt(cutOff)
		}
		_, _ = w.Write([]byte("content of " + r.URL.Path))
	}))
	t.Cleanup(srv.Close)
	at := strings.TrimPrefix(srv.URL, "http://")
	options := Options{Matrix: own(t), Mirrors: []string{
		"docker.io=" + at, "goproxy:=" + srv.URL, "debian:=" + srv.URL, "https://github.com=" + srv.URL,
		"https://linux.mellanox.com=" + srv.URL, "https://content.mellanox.com=" + srv.URL,
	}}
	w := open(t, options)
	w.Log = t.Logf
	targets, err := w.Select([]string{"cuda12.9.1-ubuntu24.04"})
	if err != nil {
		t.Fatal(err)
	}
	p := &solve.Provider{Mirror: w.Mirror, Lock: w.Lock, StateDir: t.TempDir(), Log: t.Logf}
	if err := p.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s := &solve.Solver{Provider: p, Builders: []*daemon.Builder{{Native: amd64}}}
	if _, err := w.Resolve(ctx, s, targets, nil, w.WriteLock); !errors.Is(err, cutOff) {
		t.Fatalf("Resolve: %v; want %v", err, cutOff)
	}
	again := open(t, options)
	resolved := 0
	for _, e := range again.Lock.Downloads {
		if e.Digest != "" {
			resolved++
		}
	}
	if n := int(served.Load()) - 1; resolved == 0 || resolved > n {
		t.Errorf("the lock has %d downloads; %d were served before the end", resolved, n)
	}
	before, err := w.Unlocked(targets, nil)
	if err != nil {
		t.Fatal(err)
	}
	left, err := again.Unlocked(targets, nil)
	if err != nil || len(left["cuda12.9.1-ubuntu24.04"]) != len(before["cuda12.9.1-ubuntu24.04"]) {
		t.Errorf("after the end %d entries are missing, %v; in memory %d", len(left["cuda12.9.1-ubuntu24.04"]), err, len(before["cuda12.9.1-ubuntu24.04"]))
	}
}
