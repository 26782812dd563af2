package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// data is a file that is larger than what a socket's buffers hold.
var data = []byte(strings.Repeat("All measurements are wrong; some are reproducible.\n", 100_000))

func sumOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// serve starts a server; its handler is told the number of the request.
func serve(t *testing.T, handle func(n int64, w http.ResponseWriter, r *http.Request)) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(requests.Add(1), w, r) }))
	t.Cleanup(s.Close)
	return s.URL + "/tool.tar.gz", requests
}

// whole serves the file, ranges included.
func whole(_ int64, w http.ResponseWriter, r *http.Request) {
	http.ServeContent(w, r, "tool", time.Time{}, strings.NewReader(string(data)))
}

func cache(t *testing.T) *Cache { return &Cache{Dir: filepath.Join(t.TempDir(), "downloads")} }

// wantOnly fails unless the cache holds exactly the files of these names.
func wantOnly(t *testing.T, c *Cache, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the cache holds %q; want %q", got, names)
	}
}

func wantFile(t *testing.T, path string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(data) {
		t.Errorf("%s holds %d bytes (%v); want the file's %d", path, len(got), err, len(data))
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	url, requests := serve(t, whole)
	c := cache(t)
	path, err := c.Get(t.Context(), url, sumOf(data))
	wantFile(t, path, err)
	again, err := c.Get(t.Context(), url, sumOf(data))
	if err != nil || again != path || requests.Load() != 1 {
		t.Errorf("a second Get = %q, %v, after %d requests; want %q after one", again, err, requests.Load(), path)
	}
	wantOnly(t, c, sumOf(data))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file's mode is %v (%v); want that all may read it", info.Mode(), err)
	}
}

func TestSum(t *testing.T) {
	t.Parallel()
	url, requests := serve(t, whole)
	c := cache(t)
	sum, err := c.Sum(t.Context(), url)
	if err != nil || sum != sumOf(data) {
		t.Fatalf("Sum = %q, %v; want %q", sum, err, sumOf(data))
	}
	path, err := c.Get(t.Context(), url, sum)
	wantFile(t, path, err)
	if requests.Load() != 1 {
		t.Errorf("%d requests for one file; what Sum fetched should stay", requests.Load())
	}
	wantOnly(t, c, sum)
}

func TestChecksumMismatch(t *testing.T) {
	t.Parallel()
	url, requests := serve(t, whole)
	c := cache(t)
	want := sumOf([]byte("what the publisher once had"))
	_, err := c.Get(t.Context(), url, want)
	var mismatch *ChecksumError
	if !errors.As(err, &mismatch) || mismatch.Want != want || mismatch.Got != sumOf(data) || mismatch.URL != url {
		t.Fatalf("Get = %#v; want a *ChecksumError with both values", err)
	}
	for _, part := range []string{url, want, sumOf(data), "assay lock --update"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if requests.Load() != 1 {
		t.Errorf("%d requests; another try gives the same bytes", requests.Load())
	}
	wantOnly(t, c)
}

func TestResume(t *testing.T) {
	t.Parallel()
	const first = 70_000
	var mu sync.Mutex
	var ranges []string
	url, _ := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		ranges = append(ranges, r.Header.Get("Range"))
		mu.Unlock()
		if n > 1 {
			whole(n, w, r)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:first])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler) // the connection is cut
	})
	c := cache(t)
	path, err := c.Get(t.Context(), url, sumOf(data))
	wantFile(t, path, err)
	if want := []string{"", fmt.Sprintf("bytes=%d-", first)}; strings.Join(ranges, ",") != strings.Join(want, ",") {
		t.Errorf("the requests asked for %q; want %q", ranges, want)
	}
	wantOnly(t, c, sumOf(data))
}

// TestResumeWithoutRanges: a server that knows no ranges sends the whole file
// again, which must not be put behind what is there.
func TestResumeWithoutRanges(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		if n == 1 {
			w.Write(data[:1000])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		w.Write(data)
	})
	c := cache(t)
	path, err := c.Get(t.Context(), url, sumOf(data))
	wantFile(t, path, err)
}

// TestResumeComplete: the connection broke behind the last byte, and there is
// no more to ask for.
func TestResumeComplete(t *testing.T) {
	t.Parallel()
	url, requests := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
		if n == 1 { // chunked, without the last chunk
			w.Write(data)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		whole(n, w, r)
	})
	c := cache(t)
	path, err := c.Get(t.Context(), url, sumOf(data))
	wantFile(t, path, err)
	if requests.Load() != 2 {
		t.Errorf("%d requests; want 2", requests.Load())
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		codes    []int // of the first requests; then the file comes
		requests int64
		want     string // error, "" for success
	}{
		{[]int{500, 500}, 3, ""},
		{[]int{503}, 2, ""},
		{[]int{429}, 2, ""},
		{[]int{404}, 1, "404 Not Found"},
		{[]int{403}, 1, "403 Forbidden"},
		{[]int{401}, 1, "401 Unauthorized"},
	} {
		t.Run(fmt.Sprint(tt.codes), func(t *testing.T) {
			t.Parallel()
			url, requests := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
				if n <= int64(len(tt.codes)) {
					http.Error(w, "no", tt.codes[n-1])
					return
				}
				whole(n, w, r)
			})
			c := cache(t)
			path, err := c.Get(t.Context(), url, sumOf(data))
			if tt.want == "" {
				wantFile(t, path, err)
			} else {
				var status *StatusError
				if !errors.As(err, &status) || err.Error() != url+": "+tt.want {
					t.Errorf("Get = %v; want %s: %s", err, url, tt.want)
				}
				wantOnly(t, c)
			}
			if requests.Load() != tt.requests {
				t.Errorf("%d requests; want %d", requests.Load(), tt.requests)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	why := errors.New("the user pressed Ctrl-C")
	for name, handle := range map[string]func(cancel func()) func(int64, http.ResponseWriter, *http.Request){
		"in the middle of the body": func(cancel func()) func(int64, http.ResponseWriter, *http.Request) {
			return func(_ int64, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				w.Write(data[:1000])
				w.(http.Flusher).Flush()
				cancel()
				<-r.Context().Done()
			}
		},
		"between two tries": func(cancel func()) func(int64, http.ResponseWriter, *http.Request) {
			return func(_ int64, w http.ResponseWriter, r *http.Request) {
				http.Error(w, "no", 500)
				cancel()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			url, requests := serve(t, handle(func() { cancel(why) }))
			c := cache(t)
			_, err := c.Get(ctx, url, sumOf(data))
			if !errors.Is(err, context.Canceled) && !errors.Is(err, why) {
				t.Errorf("Get = %v; want the cancellation", err)
			}
			if requests.Load() != 1 {
				t.Errorf("%d requests after the cancellation; want none", requests.Load()-1)
			}
			wantOnly(t, c)
		})
	}
}

// TestConcurrent: two goroutines that fetch the same file do not write into
// each other's. The first one's bytes are held back until the second one has
// begun.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	second := make(chan struct{})
	url, _ := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		if n == 1 {
			w.Write(data[:len(data)/2])
			w.(http.Flusher).Flush()
			<-second
			w.Write(data[len(data)/2:])
			return
		}
		w.Write(data[:100])
		w.(http.Flusher).Flush()
		if n == 2 {
			close(second)
		}
		w.Write(data[100:])
	})
	c := cache(t)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			path, err := c.Get(t.Context(), url, sumOf(data))
			if err != nil {
				t.Errorf("Get: %v", err)
				return
			}
			if got, err := os.ReadFile(path); err != nil || sumOf(got) != sumOf(data) {
				t.Errorf("%s is damaged (%v)", path, err)
			}
		})
	}
	wg.Wait()
	wantOnly(t, c, sumOf(data))
}

// TestBadSum: what the lock has for a checksum becomes a file name.
func TestBadSum(t *testing.T) {
	t.Parallel()
	url, requests := serve(t, whole)
	c := cache(t)
	for _, sum := range []string{"", "abcd", "../../etc/passwd", strings.ToUpper(sumOf(data)), sumOf(data) + "0", "sha256:" + sumOf(data)} {
		if path, err := c.Get(t.Context(), url, sum); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", sum)) {
			t.Errorf("Get(%q) = %q, %v; want an error that names it", sum, path, err)
		}
	}
	if requests.Load() != 0 {
		t.Errorf("%d requests for files that nothing vouches for", requests.Load())
	}
}

// TestNoCredentials: a mirror's password is in the URL, and errors go into
// public logs.
func TestNoCredentials(t *testing.T) {
	t.Parallel()
	plain, _ := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); user != "robot" || pass != "hunter2" {
			t.Errorf("the server is told %q and %q; want the URL's user and password", user, pass)
		}
		if strings.HasSuffix(r.URL.Path, "gone") {
			http.NotFound(w, r)
			return
		}
		whole(n, w, r)
	})
	url := strings.Replace(plain, "http://", "http://robot:hunter2@", 1)
	c := cache(t)
	_, status := c.Get(t.Context(), url+"/gone", sumOf(data))
	_, mismatch := c.Get(t.Context(), url, sumOf(nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, transport := c.Get(ctx, url, sumOf(nil))
	_, scheme := c.Get(ctx, "://robot:hunter2@host/x", sumOf(nil))
	for what, err := range map[string]error{"status": status, "checksum": mismatch, "transport": transport, "scheme": scheme} {
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error is %v; want one without the password", what, err)
		}
	}
}
