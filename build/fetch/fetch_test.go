package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
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
	"syscall"
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
	w.Header().Set("ETag", `"1"`)
	http.ServeContent(w, r, "tool", time.Time{}, strings.NewReader(string(data)))
}

// cut sends the first n bytes of the file and cuts the connection.
func cut(w http.ResponseWriter, n int, header ...string) {
	for i := 0; i < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	w.Write(data[:n])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// cache is an empty one that does not wait between attempts.
func cache(t *testing.T) *Cache {
	c := &Cache{Dir: filepath.Join(t.TempDir(), "downloads")}
	c.sleep = func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }
	return c
}

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
	sum, at, err := c.Sum(t.Context(), url)
	if err != nil || sum != sumOf(data) || at != filepath.Join(c.Dir, sum) {
		t.Fatalf("Sum = %q, %q, %v; want %q", sum, at, err, sumOf(data))
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
		cut(w, first, "ETag", `"1"`)
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
		if n == 1 {
			cut(w, 1000, "ETag", `"1"`)
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
			w.Header().Set("ETag", `"1"`)
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

// TestResumeChanged: what was there before and what is there now are never
// put together, whatever a server says and leaves out.
func TestResumeChanged(t *testing.T) {
	t.Parallel()
	old := []byte(strings.Repeat("Some measurements are right.\n", len(data)/20))
	const first = 5000
	for _, tt := range []struct {
		name   string
		header []string // of the answer that breaks off
		then   func(w http.ResponseWriter, r *http.Request)
	}{
		{"another ETag", []string{"ETag", `"0"`}, func(w http.ResponseWriter, r *http.Request) { whole(0, w, r) }},
		{"no validator", nil, func(w http.ResponseWriter, r *http.Request) { whole(0, w, r) }},
		{"a weak ETag", []string{"ETag", `W/"1"`}, func(w http.ResponseWriter, r *http.Request) { whole(0, w, r) }},
		{"a date", []string{"Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT"}, func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "tool", time.Date(2006, 1, 2, 15, 4, 5, 0, time.UTC), strings.NewReader(string(data)))
		}},
		{"If-Range is ignored", []string{"ETag", `"0"`}, func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("If-Range")
			whole(0, w, r)
		}},
		{"another part than asked for", []string{"ETag", `"1"`}, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				r.Header.Set("Range", "bytes=100-")
			}
			whole(0, w, r)
		}},
		{"shorter now", []string{"ETag", `"0"`}, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", "bytes */20")
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return
			}
			whole(0, w, r)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url, _ := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
				if n > 1 {
					tt.then(w, r)
					return
				}
				for i := 0; i < len(tt.header); i += 2 {
					w.Header().Set(tt.header[i], tt.header[i+1])
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(old)))
				w.Write(old[:first])
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			})
			sum, _, err := cache(t).Sum(t.Context(), url)
			if err != nil || sum != sumOf(data) {
				t.Errorf("Sum = %s, %v; want %s, of the file as it is now", sum, err, sumOf(data))
			}
		})
	}
}

// TestStall: a server that stops sending is left, and asked again.
func TestStall(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]func(w http.ResponseWriter, r *http.Request){
		"before the answer": func(http.ResponseWriter, *http.Request) {},
		"before the body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			w.(http.Flusher).Flush()
		},
		"in the body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			w.Write(data[:70_000])
			w.(http.Flusher).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			once, _ := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
				if n > 1 {
					whole(n, w, r)
					return
				}
				silent(w, r)
				<-r.Context().Done()
			})
			c := cache(t)
			c.Stall = 500 * time.Millisecond
			path, err := c.Get(t.Context(), once, sumOf(data))
			wantFile(t, path, err)

			always, requests := serve(t, func(_ int64, w http.ResponseWriter, r *http.Request) {
				silent(w, r)
				<-r.Context().Done()
			})
			c.Stall = 50 * time.Millisecond
			_, _, err = c.Sum(t.Context(), always)
			var limit *LimitError
			if !errors.As(err, &limit) || limit.Total || !strings.Contains(err.Error(), "--stall-timeout") {
				t.Errorf("Sum from a server that is always silent = %v; want a *LimitError that names the flag", err)
			}
			if n := requests.Load(); n > attempts {
				t.Errorf("%d requests; want %d at most", n, attempts)
			}
		})
	}
}

// TestSlow: a server that is slow, but not silent, is waited for.
func TestSlow(t *testing.T) {
	t.Parallel()
	url, requests := serve(t, func(_ int64, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		for part := range 20 {
			w.Write(data[part*len(data)/20 : (part+1)*len(data)/20])
			w.(http.Flusher).Flush()
			time.Sleep(250 * time.Millisecond)
		}
	})
	c := cache(t)
	c.Stall = 4 * time.Second // less than all parts take
	path, err := c.Get(t.Context(), url, sumOf(data))
	wantFile(t, path, err)
	if requests.Load() != 1 {
		t.Errorf("%d requests; want one", requests.Load())
	}
}

// TestTotal: all attempts together have a limit, if the user sets one.
func TestTotal(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, func(_ int64, w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil { // never silent, never done
			w.Write(data[:100])
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	})
	c := cache(t)
	c.Total = 300 * time.Millisecond
	_, err := c.Get(t.Context(), url, sumOf(data))
	var limit *LimitError
	if !errors.As(err, &limit) || !limit.Total || !strings.Contains(err.Error(), "--download-timeout") {
		t.Errorf("Get = %v; want a *LimitError that names the flag", err)
	}
	wantOnly(t, c)
}

// TestRetryAfter: a server that asks for patience gets it, up to a limit.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		header   string
		min, max time.Duration // of the wait
	}{
		{"7", 7 * time.Second, 7 * time.Second},
		{"86400", maxWait, maxWait},
		{"99999999999999999999", 200 * time.Millisecond, 200 * time.Millisecond},
		{time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), maxWait, maxWait},
		{time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), 200 * time.Millisecond, 200 * time.Millisecond},
		{"soon", 200 * time.Millisecond, 200 * time.Millisecond},
		{"-5", 200 * time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(tt.header, func(t *testing.T) {
			t.Parallel()
			url, _ := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					w.Header().Set("Retry-After", tt.header)
					http.Error(w, "no", http.StatusTooManyRequests)
					return
				}
				whole(n, w, r)
			})
			c := cache(t)
			var waits []time.Duration
			c.sleep = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
			path, err := c.Get(t.Context(), url, sumOf(data))
			wantFile(t, path, err)
			if len(waits) != 1 || waits[0] < tt.min || waits[0] > tt.max {
				t.Errorf("Retry-After: %s: waits %v; want one of %v to %v", tt.header, waits, tt.min, tt.max)
			}
		})
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

// TestNoCredentials: a mirror's password goes to the mirror, and into no URL:
// those are printed and go into public logs.
func TestNoCredentials(t *testing.T) {
	t.Parallel()
	storage, _ := serve(t, func(_ int64, w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("another host is told %q", got)
		}
		panic(http.ErrAbortHandler)
	})
	url, _ := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); user != "robot" || pass != "hunter2" {
			t.Errorf("the server is told %q and %q; want the user and password", user, pass)
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "gone"):
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, "elsewhere"): // as module proxies do
			http.Redirect(w, r, strings.Replace(storage, "127.0.0.1", "localhost", 1)+"?signature=hunter2", http.StatusFound)
		default:
			whole(n, w, r)
		}
	})
	c := cache(t)
	c.Authorization = func(string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:hunter2")) }
	_, status := c.Get(t.Context(), url+"/gone", sumOf(data))
	_, mismatch := c.Get(t.Context(), url, sumOf(nil))
	_, redirect := c.Get(t.Context(), url+"/elsewhere", sumOf(nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, transport := c.Get(ctx, url, sumOf(nil))
	_, scheme := c.Get(ctx, "://robot:hunter2@host/x", sumOf(nil))
	_, user := c.Get(ctx, "https://robot:hunter2@host/x", sumOf(nil))
	_, token := c.Get(ctx, "https://hunter2@host/x", sumOf(nil))
	for what, err := range map[string]error{"status": status, "checksum": mismatch, "redirect": redirect, "transport": transport, "scheme": scheme, "user": user, "token": token} {
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error is %v; want one without the password", what, err)
		}
	}
}

// TestSchemes: only servers are asked, and a redirect leads to servers alone, from https to https.
func TestSchemes(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, data, 0o600); err != nil {
		t.Fatal(err)
	}
	plain, _ := serve(t, whole)
	for _, to := range []string{"file://" + secret, "file://localhost" + secret, "FILE://localhost" + secret, "ftp://a.example.org/x", "gopher://a.example.org/x"} {
		for from, want := range map[string]string{to: "is of no scheme to download by", redirect(t, to): "redirects to a"} {
			c := cache(t)
			_, err := c.Get(t.Context(), from, sumOf(data))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Get(%s), which leads to %s: %v; want %q", from, to, err, want)
			}
			if sum, _, err := c.Sum(t.Context(), from); err == nil {
				t.Errorf("Sum(%s), which leads to %s, told the checksum %s", from, to, sum)
			}
			if text, err := c.Text(t.Context(), from); err == nil {
				t.Errorf("Text(%s), which leads to %s, told %d bytes", from, to, len(text))
			}
		}
	}
	var asked atomic.Int64
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/whole" {
			whole(0, w, r)
			return
		}
		http.Redirect(w, r, plain, http.StatusFound)
	}))
	defer secure.Close()
	client := secure.Client()
	client.CheckRedirect = own.CheckRedirect
	for from, want := range map[string]string{
		secure.URL + "/down":                                        "from https to http",
		redirect(t, secure.URL+"/down"):                             "",
		redirect(t, redirect(t, secure.URL+"/whole")):               "",
		redirect(t, redirect(t, redirect(t, "file:///etc/passwd"))): "redirects to a",
	} {
		c := cache(t)
		c.Client = client
		_, err := c.Get(t.Context(), from, sumOf(data))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("Get(%s) = %v; want %q", from, err, want)
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("%d requests for three downloads: what is refused once is refused again", n)
	}
}

// redirect returns the URL of a server that redirects to another.
func redirect(t *testing.T, to string) string {
	url, _ := serve(t, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	return url
}

// TestDirectory: a mirror that is a directory gives regular files, and says what it lacks.
func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	c := cache(t)
	path, err := c.Get(t.Context(), file, sumOf(data))
	wantFile(t, path, err)
	var status *StatusError
	if _, err := c.Get(t.Context(), filepath.Join(dir, "none"), sumOf([]byte("x"))); !errors.As(err, &status) || status.Code != http.StatusNotFound {
		t.Errorf("a file that is not there: %v", err)
	}
	for name, want := range map[string]string{fifo: "FIFO", dir: "directory", "/dev/zero": "character device"} {
		if _, err := c.Get(t.Context(), name, sumOf([]byte("x"))); err == nil || !strings.Contains(err.Error(), name+" is a "+want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantOnly(t, c, sumOf(data))
}
