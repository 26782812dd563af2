package standin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// hosts are the upstream hosts that have stand-ins.
var hosts = []string{"github.com", "content.mellanox.com", "developer.download.nvidia.com", "linux.mellanox.com", "efa-installer.amazonaws.com"}

// A Count is what was served for one path.
type Count struct {
	Requests int   // GET requests only, not HEAD
	Bytes    int64 // of bodies
}

// server is the listening half of Upstreams.
type server struct {
	addr     string
	http     http.Server
	registry http.Handler
	done     chan struct{}
}

// Start serves the stand-ins on a free port of 127.0.0.1 until Close.
func (u *Upstreams) Start() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("standin: %w", err)
	}
	s := &server{addr: l.Addr().String(), done: make(chan struct{})}
	s.registry = registry.New(registry.WithBlobHandler(pool(u.pool)), registry.Logger(log.New(io.Discard, "", 0)))
	if err := s.load(u.images); err != nil {
		l.Close()
		return fmt.Errorf("standin: %w", err)
	}
	s.http.Handler = http.HandlerFunc(u.serve)
	u.server = s
	go func() {
		defer close(s.done)
		s.http.Serve(l) // returns when Close closes it
	}()
	return nil
}

// Close stops serving and waits for requests in progress.
func (u *Upstreams) Close() error {
	err := u.server.http.Shutdown(context.Background())
	<-u.server.done
	return err
}

// Addr returns the host and port that Start listens on.
func (u *Upstreams) Addr() string { return u.server.addr }

// Mirrors returns the arguments for assay's --mirror FROM=TO: every upstream URL prefix, and the
// prefix of image references, with its location on the server.
func (u *Upstreams) Mirrors() map[string]string {
	mirrors := map[string]string{"docker.io": u.server.addr}
	for _, h := range hosts {
		mirrors["https://"+h] = "http://" + u.server.addr + "/" + h
	}
	return mirrors
}

// Stats returns what was served since the start or ResetStats, by path: "/github.com/…" for
// files, "/v2/…" for the registry.
func (u *Upstreams) Stats() map[string]Count {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.stats)
}

// Total returns the sum of Stats.
func (u *Upstreams) Total() Count {
	var total Count
	for _, c := range u.Stats() {
		total.Requests += c.Requests
		total.Bytes += c.Bytes
	}
	return total
}

// ResetStats sets all counts to zero.
func (u *Upstreams) ResetStats() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.stats)
}

// Damage makes the server change one byte of the download at an upstream URL, or, with false,
// serve it unchanged.
func (u *Upstreams) Damage(url string, damaged bool) error {
	if _, ok := u.files[upstreamPath(url)]; !ok {
		return fmt.Errorf("standin: nothing is served for %s", url)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.damaged[upstreamPath(url)] = damaged
	return nil
}

// upstreamPath returns host and path of an upstream URL.
func upstreamPath(url string) string { return strings.TrimPrefix(url, "https://") }

// serve responds with a file or as the registry, and counts. It is read-only: tests must push
// elsewhere.
func (u *Upstreams) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "the stand-in upstreams are read-only", http.StatusMethodNotAllowed)
		return
	}
	r.URL.Path = path.Clean(r.URL.Path) + slash(r.URL.Path) // apt requests "…/./Packages"
	cw := &countingWriter{ResponseWriter: w}
	if strings.HasPrefix(r.URL.Path, "/v2/") {
		u.server.registry.ServeHTTP(cw, r)
	} else {
		u.serveFile(cw, r)
	}
	if r.Method == http.MethodGet {
		u.mu.Lock()
		c := u.stats[r.URL.Path]
		u.stats[r.URL.Path] = Count{c.Requests + 1, c.Bytes + cw.bytes}
		u.mu.Unlock()
	}
}

// slash returns the final slash that path.Clean drops and "/v2/" needs.
func slash(path string) string {
	if len(path) > 1 && strings.HasSuffix(path, "/") {
		return "/"
	}
	return ""
}

func (u *Upstreams) serveFile(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	file, ok := u.files[name]
	if !ok {
		http.Error(w, "no stand-in for "+name, http.StatusNotFound)
		return
	}
	f, err := os.Open(file)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	u.mu.Lock()
	damaged := u.damaged[name]
	u.mu.Unlock()
	var content io.ReadSeeker = f
	if damaged {
		whole, err := io.ReadAll(f)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		whole[len(whole)/2] ^= 0xff
		content = bytes.NewReader(whole)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", epoch, content)
}

// A countingWriter counts the bytes of a body.
type countingWriter struct {
	http.ResponseWriter
	bytes int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// load puts the manifests into the registry; their blobs are already in the pool.
func (s *server) load(images []image) error {
	for _, img := range images {
		for _, one := range img.images {
			raw, err := one.RawManifest()
			if err != nil {
				return err
			}
			digest, err := one.Digest()
			if err != nil {
				return err
			}
			if err := s.put(digest.String(), types.OCIManifestSchema1, raw); err != nil {
				return err
			}
		}
		raw, err := img.index.RawManifest()
		if err != nil {
			return err
		}
		for _, ref := range []string{img.digest, img.base.tag()} {
			if err := s.put(ref, types.OCIImageIndex, raw); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *server) put(ref string, kind types.MediaType, manifest []byte) error {
	r, err := http.NewRequest(http.MethodPut, "/v2/nvidia/cuda/manifests/"+ref, bytes.NewReader(manifest))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", string(kind))
	a := answer{header: http.Header{}}
	s.registry.ServeHTTP(&a, r)
	if a.code != http.StatusCreated {
		return fmt.Errorf("registry refuses %s: %d %s", ref, a.code, &a.body)
	}
	return nil
}

// An answer records a handler's response.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// pool is the directory of the images' blobs, as a registry.BlobHandler that does not read a blob
// to check that it exists.
type pool string

func (p pool) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	f, err := os.Open(filepath.Join(string(p), h.Hex))
	if errors.Is(err, os.ErrNotExist) {
		return nil, registry.ErrNotFound
	}
	return f, err
}

func (p pool) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	info, err := os.Stat(filepath.Join(string(p), h.Hex))
	if errors.Is(err, os.ErrNotExist) {
		return 0, registry.ErrNotFound
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
