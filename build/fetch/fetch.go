// Package fetch downloads files into a cache keyed by their SHA-256. An interrupted download
// resumes where it stopped if the server confirms that the file is unchanged. A caller never sees
// a file with a wrong checksum.
package fetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/build/state"
	"github.com/assay-hpc/assay/internal/infile"
)

// DefaultStall is how long a server may send nothing before a download is retried.
const DefaultStall = time.Minute

// Limits say when a download is abandoned.
type Limits struct {
	Stall time.Duration // without a byte received, for one attempt; 0 means [DefaultStall]
	Total time.Duration // for one file, all attempts together; 0 means no limit
}

// A Cache is a directory of verified downloads.
type Cache struct {
	Dir string
	Limits
	Client *http.Client // nil means one of this package's own
	// Authorization returns the Authorization header for a URL, "" for none; nil means that no
	// URL needs one.
	Authorization func(url string) string

	sleep func(context.Context, time.Duration) error // tests replace it
}

// A ChecksumError says that a download does not have the locked checksum.
type ChecksumError struct{ URL, Want, Got string }

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s: checksum mismatch: matrix.lock has sha256:%s, the download is sha256:%s; if the publisher changed the file on purpose, run \"assay lock --update\" and review the difference", e.URL, e.Want, e.Got)
}

// A StatusError is an HTTP response other than success.
type StatusError struct {
	URL   string
	Code  int
	After time.Duration // how long the server asks to wait before the next attempt
}

func (e *StatusError) Error() string {
	if filepath.IsAbs(e.URL) {
		return fmt.Sprintf("the mirror has no file %s; \"assay lock --keep DIR TARGET\" puts all that a target needs into a directory", e.URL)
	}
	return fmt.Sprintf("%s: %d %s", e.URL, e.Code, http.StatusText(e.Code))
}

// A LimitError says that a download took longer than it may.
type LimitError struct {
	URL   string
	Limit time.Duration
	Total bool // the limit is for all attempts together; otherwise the server sent nothing for that long
}

func (e *LimitError) Error() string {
	if e.Total {
		return fmt.Sprintf("%s: not complete after %v, the limit that --download-timeout sets", e.URL, e.Limit)
	}
	return fmt.Sprintf("%s: the server sent nothing for %v; --stall-timeout sets how long to wait", e.URL, e.Limit)
}

const (
	attempts = 5
	maxWait  = time.Minute // upper bound on the wait that a server asks for
)

// Sweep removes the partial files of killed downloads.
func (c *Cache) Sweep() error { return state.SweepParts(c.Dir) }

// Get returns the path of the file with the given SHA-256 (hex), fetching it from url if the cache
// lacks it: a URL, or the absolute path of a file in a mirror that is a directory.
func (c *Cache) Get(ctx context.Context, url, sum string) (string, error) {
	if err := check(url); err != nil {
		return "", err
	}
	if !checksum.MatchString(sum) { // it becomes a file name
		return "", fmt.Errorf("%s: %q is not a SHA-256 in hex", url, sum)
	}
	path := filepath.Join(c.Dir, sum)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	part, got, err := c.download(ctx, url)
	if err != nil {
		return "", err
	}
	if got != sum {
		os.Remove(part)
		return "", &ChecksumError{URL: url, Want: sum, Got: got}
	}
	return path, os.Rename(part, path)
}

var checksum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// plainSchemes are the schemes of what is fetched, from locks and in redirects.
var plainSchemes = map[string]bool{"http": true, "https": true}

// checkRedirect keeps a download to servers, and one that began by https to https: a server must
// not be able to name a file of this machine, nor to give up what TLS ensures.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0].URL.Scheme
	switch to := req.URL.Scheme; {
	case !plainSchemes[to]:
		return errRedirect{fmt.Sprintf("the server redirects to a %q URL, which is not followed; http and https are", to+":")}
	case first == "https" && to != "https":
		return errRedirect{"the server redirects from https to http, which is not followed"}
	case len(via) >= 10:
		return errRedirect{"the server redirects for the tenth time"}
	}
	return nil
}

// An errRedirect is a redirect that is not followed: another attempt would not end otherwise.
type errRedirect struct{ text string }

func (e errRedirect) Error() string { return e.text }

// check rejects what is not a URL to download from. Credentials come from Authorization and are
// not allowed in a URL, because URLs are printed and written to files.
func check(url string) error {
	if filepath.IsAbs(url) {
		return nil // a file, which a rule of --mirror named
	}
	u, err := neturl.Parse(url)
	switch {
	case err != nil || u.Host == "" && plainSchemes[u.Scheme]:
		return errors.New("a download's address is not a URL") // it may contain anything, so it is not repeated
	case !plainSchemes[u.Scheme]:
		return errors.New("a download's address is of no scheme to download by; http and https are")
	case u.User != nil:
		u.User = nil
		return fmt.Errorf("%s: the URL of a download holds a user; write user and password into the TO of --mirror FROM=TO", u)
	}
	return nil
}

// Sum downloads url and returns its SHA-256 in hex and its path in the cache. It is for locking
// downloads that are not pinned yet.
func (c *Cache) Sum(ctx context.Context, url string) (sum, path string, err error) {
	if err := check(url); err != nil {
		return "", "", err
	}
	part, sum, err := c.download(ctx, url)
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(c.Dir, sum)
	return sum, path, os.Rename(part, path)
}

// maxText is the largest document, in bytes, that Text returns.
const maxText = 16 << 20

// Text downloads url and returns its content, which is not cached.
func (c *Cache) Text(ctx context.Context, url string) ([]byte, error) {
	if err := check(url); err != nil {
		return nil, err
	}
	part, _, err := c.download(ctx, url)
	if err != nil {
		return nil, err
	}
	defer os.Remove(part)
	b, err := infile.Read(part, maxText)
	var long *infile.SizeError
	if errors.As(err, &long) {
		long.Name = url
	}
	return b, err
}

// download fetches url, with retries, into a file of its own, and returns the
// file's path and SHA-256.
func (c *Cache) download(ctx context.Context, url string) (path, sum string, err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return "", "", err
	}
	f, err := state.CreatePart(c.Dir)
	if err != nil {
		return "", "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(f.Name())
		}
	}()
	fill := c.fill
	if filepath.IsAbs(url) {
		fill = copyFile
	}
	if err := fill(ctx, url, f); err != nil {
		return "", "", err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", "", err
	}
	if sum, err = hashOf(f); err != nil {
		return "", "", err
	}
	// A file named after its checksum is not read again to check whether it is complete, so it
	// must be on disk before it gets that name.
	return f.Name(), sum, errors.Join(f.Chmod(0o644), f.Sync())
}

// SumFile returns a file's SHA-256 in hex.
func SumFile(name string) (string, error) {
	f, err := infile.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return hashOf(f)
}

func hashOf(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}

// copyFile copies a file of this machine into f. A mirror that lacks it says what a server would.
func copyFile(_ context.Context, name string, f *os.File) error {
	from, err := infile.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &StatusError{URL: name, Code: http.StatusNotFound}
	}
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(f, from)
	return err
}

// fill downloads url into f, resuming where an earlier attempt stopped.
func (c *Cache) fill(ctx context.Context, url string, f *os.File) error {
	if c.Total > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Total, &LimitError{URL: url, Limit: c.Total, Total: true})
		defer cancel()
	}
	t := transfer{cache: c, url: url, file: f}
	for n := 1; ; n++ {
		err := t.attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		wait := time.Duration(n*n) * 200 * time.Millisecond
		if errors.As(err, new(errRedirect)) {
			return err
		}
		var status *StatusError
		if errors.As(err, &status) {
			if status.Code < 500 && status.Code != http.StatusTooManyRequests {
				return err
			}
			wait = max(wait, min(status.After, maxWait))
		}
		if n == attempts {
			return err
		}
		if err := c.wait(ctx, wait); err != nil {
			return err
		}
	}
}

func (c *Cache) wait(ctx context.Context, d time.Duration) error {
	if c.sleep != nil {
		return c.sleep(ctx, d)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// own is the client for downloads. It requests files uncompressed: a server that compresses a
// file in transit would change its bytes.
var own = func() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true
	return &http.Client{Transport: t, CheckRedirect: checkRedirect}
}()

// A transfer is the download of one file, in one attempt or several.
type transfer struct {
	cache *Cache
	url   string
	file  *os.File
	etag  string // a strong validator of the file of which the beginning is here, or ""
}

// attempt requests the part that follows what the file already contains, or all of it if the
// server gave no strong validator.
func (t *transfer) attempt(ctx context.Context) error {
	stall := cmp.Or(t.cache.Stall, DefaultStall)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(stall, func() { cancel(&LimitError{URL: t.url, Limit: stall}) })
	defer timer.Stop()
	have, err := t.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if t.etag == "" {
		have = 0
	}
	resp, err := t.request(ctx, have)
	if err != nil {
		return t.reason(ctx, err)
	}
	defer resp.Body.Close()
	timer.Reset(stall)
	switch code := resp.StatusCode; {
	case code == http.StatusOK: // the whole file, even if we asked for a part
		return t.whole(ctx, resp, timer, stall)
	case have > 0 && code == http.StatusPartialContent && t.same(resp) && strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)):
		return t.copy(ctx, resp.Body, timer, stall)
	case have > 0 && code == http.StatusRequestedRangeNotSatisfiable && t.same(resp) && resp.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", have):
		return nil // we have all of it
	case code == http.StatusPartialContent, have > 0 && code == http.StatusRequestedRangeNotSatisfiable:
		t.etag = "" // a different file, or a part that we did not ask for: the next attempt starts over
		return fmt.Errorf("%s: the file changed during the download", t.url)
	default:
		return &StatusError{URL: t.url, Code: code, After: retryAfter(resp.Header.Get("Retry-After"))}
	}
}

func (t *transfer) request(ctx context.Context, have int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return nil, err
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		req.Header.Set("If-Range", t.etag)
	}
	if t.cache.Authorization != nil {
		if v := t.cache.Authorization(t.url); v != "" {
			req.Header.Set("Authorization", v)
		}
	}
	return cmp.Or(t.cache.Client, own).Do(req)
}

// same reports whether a response's ETag, if any, is that of the partial file.
func (t *transfer) same(resp *http.Response) bool {
	etag := resp.Header.Get("ETag")
	return etag == "" || etag == t.etag
}

// whole starts the file over.
func (t *transfer) whole(ctx context.Context, resp *http.Response, timer *time.Timer, stall time.Duration) error {
	if err := t.file.Truncate(0); err != nil {
		return err
	}
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	t.etag = resp.Header.Get("ETag")
	if strings.HasPrefix(t.etag, "W/") { // weak: it does not guarantee equal bytes
		t.etag = ""
	}
	return t.copy(ctx, resp.Body, timer, stall)
}

func (t *transfer) copy(ctx context.Context, body io.Reader, timer *time.Timer, stall time.Duration) error {
	_, err := io.Copy(t.file, readerFunc(func(p []byte) (int, error) {
		n, err := body.Read(p)
		if n > 0 {
			timer.Reset(stall)
		}
		return n, err
	}))
	return t.reason(ctx, err)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// reason returns why a request failed. The client's own error contains the address of a redirect,
// which may include a signature that grants access to the file.
func (t *transfer) reason(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var of *neturl.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("%s: %w", t.url, err)
}

// retryAfter parses a Retry-After header: seconds, or a date.
func retryAfter(v string) time.Duration {
	if s, err := strconv.Atoi(v); err == nil && s >= 0 {
		return time.Duration(min(s, 3600)) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
