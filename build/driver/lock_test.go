package driver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay"
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

// TestUpdateKeeps: what cannot be resolved anew, or not before the end, stays
// pinned as it was, with the lock's date if nothing is new.
func TestUpdateKeeps(t *testing.T) {
	for _, gone := range []string{"", "golang.org/x/sys/", "/"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if gone != "" && strings.Contains(r.URL.Path, gone) || strings.HasPrefix(r.URL.Path, "/v2/") {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte("content of " + r.URL.Path))
		}))
		t.Cleanup(srv.Close)
		at := strings.TrimPrefix(srv.URL, "http://")
		file := own(t)
		if err := os.WriteFile(strings.TrimSuffix(file, "yaml")+"lock", assay.Lock, 0o644); err != nil {
			t.Fatal(err)
		}
		options := Options{Matrix: file, Mirrors: []string{"docker.io=" + at, "goproxy:=" + srv.URL, "debian:=" + srv.URL, "https://github.com=" + srv.URL}}
		w := open(t, options)
		w.Log = t.Logf
		targets, err := w.Select([]string{"cuda12.4-debian13"})
		if err != nil {
			t.Fatal(err)
		}
		before := w.Lock.Clone()
		if err := w.Forget(targets); err != nil {
			t.Fatal(err)
		}
		if err := w.Prune(); err != nil {
			t.Fatal(err)
		}
		p := &solve.Provider{Mirror: w.Mirror, Lock: w.Lock, StateDir: t.TempDir(), Log: t.Logf}
		if err := p.Open(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		rep, err := w.lockWith(t.Context(), &solve.Solver{Provider: p, Builders: []*daemon.Builder{{Native: amd64}}}, targets)
		if err != nil {
			t.Fatal(err)
		}
		after := open(t, options).Lock
		for key, was := range before.Debs {
			if d := cmp.Diff(was, after.Debs[key]); d != "" {
				t.Errorf("without %q: the packages of %s (-want +got):\n%s", gone, key, d)
			}
		}
		for url := range before.Downloads {
			if !strings.HasPrefix(url, "goproxy:golang.org/x/") {
				continue // somebody has published its checksum, or it is not of this target
			}
			kept := gone != "" && strings.Contains(url, gone)
			if (after.Downloads[url].Digest == before.Downloads[url].Digest) != kept || after.Downloads[url].Digest == "" {
				t.Errorf("without %q: %s is %+v, was %+v", gone, url, after.Downloads[url], before.Downloads[url])
			}
			if why := rep.Unresolved[url]; kept != strings.HasSuffix(why, "; what was locked stays") {
				t.Errorf("without %q: %s is unresolved: %q", gone, url, why)
			}
		}
		if (after.Epoch == before.Epoch) != (gone == "/") {
			t.Errorf("without %q: the date was %d and is %d; %d were resolved", gone, before.Epoch, after.Epoch, len(rep.Resolved))
		}
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
	rep, err := w.lockWith(t.Context(), s, targets)
	if err != nil {
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
