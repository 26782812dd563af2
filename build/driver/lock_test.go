package driver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/lock"
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

// TestLockGoesOn: what a row needs and its source does not have stays unresolved,
// with the reason, and keeps nothing else of that row or of others back.
func TestLockGoesOn(t *testing.T) {
	const index = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`
	// No key and no base of tools: package sets need a builder.
	gone := []string{"13.4.2-devel-ubuntu26.04", "nccl/archive/refs/tags/v2.32.3-1", "doca_keyring.gpg", "manifests/12.2.2-", "manifests/13.0.2-"}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case slices.ContainsFunc(gone, func(s string) bool { return strings.Contains(r.URL.Path, s) }):
			http.NotFound(w, r)
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			w.Header().Set("Docker-Content-Digest", digest.FromString(index).String())
			_, _ = w.Write([]byte(index))
		default:
			_, _ = w.Write([]byte("content of " + r.URL.Path))
		}
	}))
	t.Cleanup(srv.Close)
	at := strings.TrimPrefix(srv.URL, "http://")
	options := Options{Matrix: own(t), Mirrors: []string{
		"docker.io=" + at, "goproxy:=" + srv.URL, "debian:=" + srv.URL, "https://github.com=" + srv.URL,
		"https://linux.mellanox.com=" + srv.URL, "https://content.mellanox.com=" + srv.URL,
	}}
	w := open(t, options)
	w.Log = t.Logf
	targets, err := w.Select([]string{"cuda13.4.2-ubuntu26.04", "cuda12.9.1-ubuntu24.04"})
	if err != nil || len(targets) != 2 {
		t.Fatalf("Select = %d targets, %v", len(targets), err)
	}
	p := &solve.Provider{Mirror: w.Mirror, Lock: w.Lock, StateDir: t.TempDir(), Log: t.Logf}
	if err := p.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s := &solve.Solver{Provider: p, Builders: []*daemon.Builder{{Native: amd64}}}
	rep, err := w.Resolve(t.Context(), s, targets, nil, w.WriteLock)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Prune(), w.WriteLock()); err != nil {
		t.Fatal(err)
	}
	l := open(t, options).Lock
	const nccl, base = "https://github.com/NVIDIA/nccl/archive/refs/tags/v2.32.3-1.tar.gz", "docker.io/nvidia/cuda:13.4.2-devel-ubuntu26.04"
	for key, entry := range map[string]lock.Entry{nccl: l.Downloads[nccl], base: l.Images[base]} {
		if why := rep.Unresolved[key]; !strings.Contains(why, "404") || entry != (lock.Entry{From: "unresolved"}) {
			t.Errorf("%s is unresolved because of %q, in the lock %+v; want a 404, and unresolved", key, why, entry)
		}
	}
	const hpcx = "https://content.mellanox.com/hpc/hpc-x/v2.51_cuda13/hpcx-v2.51-gcc-doca_ofed-ubuntu26.04-cuda13-aarch64.tbz"
	const other = "docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04"
	for key, entry := range map[string]lock.Entry{hpcx: l.Downloads[hpcx], other: l.Images[other]} {
		if !slices.Contains(rep.Resolved, key) || entry.Digest == "" || entry.From != "resolved" {
			t.Errorf("%s is %+v; want it resolved", key, entry)
		}
	}
}
