package oci

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

var bothReferrers = map[string]bool{"referrers API": true, "fallback tag": false}

func eachReferrers(t *testing.T, f func(t *testing.T, r *testRegistry)) {
	for name, api := range bothReferrers {
		t.Run(name, func(t *testing.T) { f(t, newRegistry(t, api)) })
	}
}

func TestPushTwiceUploadsNothing(t *testing.T) {
	eachReferrers(t, func(t *testing.T, r *testRegistry) {
		l := newTarget(t, "fabric")
		tags := []string{"1.0-abcdef0", "1.0", "latest"}
		first, err := push(t.Context(), l.Dir(), "fabric", r.repo(), tags, quick)
		if err != nil {
			t.Fatal(err)
		}
		// Two configurations, four layers, six statements, and {} once; two
		// images, the index, six referrers.
		if first.Blobs != 13 || first.Manifests != 9 || first.Tags != 3 || first.Present != 0 || first.Bytes == 0 {
			t.Errorf("first push = %+v; want 13 blobs, 9 manifests, 3 tags", first)
		}
		expectComplete(t, r, l, "fabric", tags...)
		_, set := r.seen()
		set = slices.DeleteFunc(set, func(s string) bool { return strings.HasPrefix(s, "sha256-") })
		if !slices.Equal(set, tags) {
			t.Errorf("tags were set in the order %q; want %q", set, tags)
		}

		r.reset()
		second, err := push(t.Context(), l.Dir(), "fabric", r.repo(), tags, quick)
		if err != nil {
			t.Fatal(err)
		}
		if want := (Result{Digest: first.Digest, Present: 25}); second != want {
			t.Errorf("second push = %+v; want %+v", second, want)
		}
		if changes, _ := r.seen(); len(changes) != 0 {
			t.Errorf("second push sent %q; want only reads", changes)
		}
	})
}

func TestPushMovesTagsAndSharesLayers(t *testing.T) {
	r := newRegistry(t, true)
	l := newTarget(t, "old")
	p, err := OpenRepository(r.repo(), quick)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pushWith(t.Context(), p, l, "old", []string{"a", "moving"}); err != nil {
		t.Fatal(err)
	}
	amd := writeImage(t, l, amd64, 101) // as in "old"
	if _, err := l.Assemble("new", []PlatformImage{{amd64, amd}}, nil); err != nil {
		t.Fatal(err)
	}
	res, err := pushWith(t.Context(), p, l, "new", []string{"b", "moving"})
	if err != nil {
		t.Fatal(err)
	}
	if res.Blobs != 0 || res.Manifests != 1 || res.Tags != 2 {
		t.Errorf("pushing an index over images that are there = %+v; want one manifest and two tags", res)
	}
	if r.tagged("moving") != r.tagged("b") || r.tagged("a") == r.tagged("b") {
		t.Error("the moving tag did not move, or another did")
	}
}

func TestPushSurvivesFaults(t *testing.T) {
	faults := map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "out of order", http.StatusInternalServerError)
		},
		"429": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"connection cut": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"lost upload": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN","message":"gone"}]}`)
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			eachReferrers(t, func(t *testing.T, r *testRegistry) {
				l := newTarget(t, "fabric")
				failed := 0
				r.intercept(func(n int, w http.ResponseWriter, req *http.Request) bool {
					if n%10 != 0 {
						return false
					}
					r.mu.Lock()
					failed++
					r.mu.Unlock()
					fault(w, req)
					return true
				})
				if _, err := push(t.Context(), l.Dir(), "fabric", r.repo(), []string{"x", "y"}, quick); err != nil {
					t.Fatal(err)
				}
				if failed < 5 {
					t.Errorf("only %d requests failed; the test shows nothing", failed)
				}
				expectComplete(t, r, l, "fabric", "x", "y")
			})
		})
	}
}

func TestPushGivesUp(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r := newRegistry(t, true)
			l := newTarget(t, "fabric")
			uploads := 0
			r.intercept(func(_ int, w http.ResponseWriter, req *http.Request) bool {
				if req.Method != http.MethodPost {
					return false
				}
				r.mu.Lock()
				uploads++
				r.mu.Unlock()
				w.WriteHeader(status)
				return true
			})
			opts := quick
			opts.Jobs, opts.Retry.Attempts = 1, 2
			_, err := push(t.Context(), l.Dir(), "fabric", r.repo(), []string{"x"}, opts)
			var re *remoteError
			if !errors.As(err, &re) {
				t.Fatalf("Push = %v; want a RemoteError", err)
			}
			if re.Status != status || re.Registry != r.host || re.Repository != "owner/assay" {
				t.Errorf("error is %+v; want status %d of %s", re, status, r.repo())
			}
			login := strings.Contains(err.Error(), "docker login "+r.host)
			if want := status < 405 && status > 400; login != want {
				t.Errorf("error %q names the login: %v; want %v", err, login, want)
			}
			want := 1
			if status == http.StatusServiceUnavailable {
				want = opts.Retry.Attempts * RequestAttempts
			}
			if uploads != want {
				t.Errorf("%d attempts to upload; want %d", uploads, want)
			}
			if _, tags := r.seen(); len(tags) != 0 {
				t.Errorf("tags %q were set", tags)
			}
		})
	}
}

func TestPushToNobody(t *testing.T) {
	l := newTarget(t, "fabric")
	opts := quick
	opts.Retry.Attempts = 2
	_, err := push(t.Context(), l.Dir(), "fabric", "127.0.0.1:1/owner/assay", nil, opts)
	var re *remoteError
	if !errors.As(err, &re) || re.Status != 0 || re.Attempts != 2 {
		t.Errorf("Push = %#v; want a RemoteError without status after 2 attempts", err)
	}
}

func TestPushRefusesBadNames(t *testing.T) {
	r := newRegistry(t, true)
	l := newTarget(t, "fabric")
	for what, push := range map[string]func() error{
		"tag": func() error {
			_, err := push(t.Context(), l.Dir(), "fabric", r.repo(), []string{"ok", "not ok"}, quick)
			return err
		},
		"repo":   func() error { _, err := push(t.Context(), l.Dir(), "fabric", r.host+"/Owner", nil, quick); return err },
		"target": func() error { _, err := push(t.Context(), l.Dir(), "fabrik", r.repo(), nil, quick); return err },
		"layout": func() error { _, err := push(t.Context(), t.TempDir(), "fabric", r.repo(), nil, quick); return err },
	} {
		if push() == nil {
			t.Errorf("a bad %s was accepted", what)
		}
	}
	if n := r.requests(); n != 0 {
		t.Errorf("%d requests were made; want none", n)
	}
}

func TestPushRefusesDamagedBlobs(t *testing.T) {
	damages := map[string]func(path string) error{
		"missing":   os.Remove,
		"truncated": func(p string) error { return os.Truncate(p, 10) },
		"flipped": func(p string) error {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			b[len(b)/2] ^= 1
			return os.WriteFile(p, b, 0o644)
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t, true)
			l := newTarget(t, "fabric")
			victim := aLayer(t, l)
			if err := damage(l.blobPath(victim)); err != nil {
				t.Fatal(err)
			}
			_, err := push(t.Context(), l.Dir(), "fabric", r.repo(), []string{"x"}, quick)
			if !blames(err, victim) {
				t.Errorf("Push = %v; want a BlobError of %s", err, victim)
			}
			if r.tagged("x") != "" {
				t.Error("the tag was set")
			}
		})
	}
}

func aLayer(t *testing.T, l *Layout) v1.Hash {
	t.Helper()
	p, err := l.plan(root(t, l, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range p.blobs {
		if b.MediaType.IsLayer() {
			return b.Digest
		}
	}
	t.Fatal("no layers")
	return v1.Hash{}
}

func blames(err error, h v1.Hash) bool {
	var be *BlobError
	return errors.As(err, &be) && be.Digest == h
}

func TestPushStopsWhenCancelled(t *testing.T) {
	r := newRegistry(t, true)
	l := newTarget(t, "fabric")
	ctx, cancel := context.WithCancel(t.Context())
	r.intercept(func(_ int, _ http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodPatch {
			return false
		}
		io.Copy(io.Discard, req.Body) // only then does the server watch the connection
		cancel()
		<-req.Context().Done() // until the client hangs up
		return true
	})
	_, err := push(ctx, l.Dir(), "fabric", r.repo(), []string{"x"}, Options{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Push = %v; want context.Canceled", err)
	}
	r.reset()
	if _, err := push(t.Context(), l.Dir(), "fabric", r.repo(), []string{"x"}, quick); err != nil {
		t.Errorf("Push after a cancelled one: %v", err)
	}
}

func TestPushReportsProgress(t *testing.T) {
	r := newRegistry(t, true)
	broken := 3
	r.intercept(func(_ int, w http.ResponseWriter, req *http.Request) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if req.Method != http.MethodPatch || broken == 0 {
			return false
		}
		broken--
		w.WriteHeader(http.StatusBadGateway)
		return true
	})
	l := newTarget(t, "fabric")
	var last Progress
	events := map[string]bool{}
	opts := quick
	opts.Progress = func(p Progress) {
		if p.Done > p.Total || p.Done < 0 {
			t.Errorf("progress %d of %d", p.Done, p.Total)
		}
		if p.Total > 0 { // a tag moves no bytes
			last = p
		}
		events[p.Event] = true
	}
	res, err := push(t.Context(), l.Dir(), "fabric", r.repo(), []string{"x"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if last.Done != last.Total || last.Total == 0 || !events["tag x"] || !events["manifest "+res.Digest.String()] {
		t.Errorf("last progress is %+v, events %v", last, events)
	}
}

// basicAuth lets one user in and, like a registry in a debugging mode, repeats
// to everybody else what they sent.
func basicAuth(user, password string) func(int, http.ResponseWriter, *http.Request) bool {
	return func(_ int, w http.ResponseWriter, req *http.Request) bool {
		u, p, ok := req.BasicAuth()
		if ok && u == user && p == password {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"errors":[{"code":"UNAUTHORIZED","message":"no: %s %s %s"}]}`, req.Header.Get("Authorization"), u, p)
		return true
	}
}

func dockerConfig(t *testing.T, host, user, password string) {
	t.Helper()
	dir := t.TempDir()
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	cfg := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, auth)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(cfg), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
}

func readBack(ctx context.Context, ref string) error {
	src, err := OpenSource(ref, quick)
	if err != nil {
		return err
	}
	_, err = src.Resolve(ctx)
	return err
}

func TestPushUsesDockerCredentials(t *testing.T) {
	r := newRegistry(t, true)
	r.intercept(basicAuth("ada", "right-S3cret"))
	l := newTarget(t, "fabric")
	dockerConfig(t, r.host, "ada", "right-S3cret")
	if _, err := push(t.Context(), l.Dir(), "fabric", r.repo(), []string{"x"}, quick); err != nil {
		t.Fatal(err)
	}
	expectComplete(t, r, l, "fabric", "x")
	if err := readBack(t.Context(), r.repo()+":x"); err != nil {
		t.Errorf("reading it back: %v", err)
	}
}

func TestErrorsHoldNoCredentials(t *testing.T) {
	r := newRegistry(t, true)
	refuse := basicAuth("ada", "right-S3cret")
	r.intercept(func(n int, w http.ResponseWriter, req *http.Request) bool {
		// Answers to HEAD have no text; so let those pass.
		return req.Method != http.MethodHead && refuse(n, w, req)
	})
	l := newTarget(t, "fabric")
	const password = "wr0ng-pass"
	dockerConfig(t, r.host, "ada", password)
	_, pushErr := push(t.Context(), l.Dir(), "fabric", r.repo(), []string{"x"}, quick)
	inspectErr := readBack(t.Context(), r.repo()+":x")
	for _, err := range []error{pushErr, inspectErr} {
		var re *remoteError
		if !errors.As(err, &re) || re.Status != http.StatusUnauthorized {
			t.Fatalf("got %v; want a RemoteError with status 401", err)
		}
		text := fmt.Sprintf("%v %+v %#v", err, err, *re)
		for _, secret := range []string{password, base64.StdEncoding.EncodeToString([]byte("ada:" + password))} {
			if strings.Contains(text, secret) {
				t.Errorf("error shows the credentials: %s", text)
			}
		}
		for _, want := range []string{"[hidden]", "docker login " + r.host, "owner/assay"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q lacks %q", err, want)
			}
		}
	}
}
