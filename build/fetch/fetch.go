// Package fetch downloads files into a cache keyed by their SHA-256. A
// download that breaks off goes on where it stopped; a file whose checksum is
// wrong is never seen by a caller.
package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// A Cache is a directory of verified downloads.
type Cache struct {
	Dir    string
	Client *http.Client // nil means http.DefaultClient
}

// A ChecksumError says that a download is not what was locked.
type ChecksumError struct{ URL, Want, Got string }

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s: checksum mismatch: matrix.lock has sha256:%s, the download is sha256:%s; if the publisher changed the file on purpose, run \"assay lock --update\" and review the difference", redact(e.URL), e.Want, e.Got)
}

// A StatusError is an HTTP answer other than success.
type StatusError struct {
	URL  string
	Code int
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %d %s", redact(e.URL), e.Code, http.StatusText(e.Code))
}

const attempts = 5

// Get returns the path of the file with the given SHA-256 (hex), downloading
// it from url if the cache lacks it.
func (c *Cache) Get(ctx context.Context, url, sum string) (string, error) {
	if !checksum.MatchString(sum) { // it becomes a file name
		return "", fmt.Errorf("%s: %q is not a SHA-256 in hex", redact(url), sum)
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

// Sum downloads url and returns its SHA-256 in hex: for locking what nobody
// has pinned yet. The file stays in the cache.
func (c *Cache) Sum(ctx context.Context, url string) (string, error) {
	part, sum, err := c.download(ctx, url)
	if err != nil {
		return "", err
	}
	return sum, os.Rename(part, filepath.Join(c.Dir, sum))
}

// download fetches url, with retries, into a file of its own in the cache's
// directory, and returns the file's path and SHA-256.
func (c *Cache) download(ctx context.Context, url string) (path, sum string, err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return "", "", err
	}
	f, err := os.CreateTemp(c.Dir, "*.part")
	if err != nil {
		return "", "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := c.fill(ctx, url, f); err != nil {
		return "", "", err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", "", err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", "", err
	}
	return f.Name(), hex.EncodeToString(h.Sum(nil)), f.Chmod(0o644)
}

// fill downloads url into f, going on where an earlier try stopped.
func (c *Cache) fill(ctx context.Context, url string, f *os.File) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("%s: not a URL", redact(url))
	}
	for n := 1; ; n++ {
		err := c.resume(req, f)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var status *StatusError
		if final := errors.As(err, &status) && status.Code < 500 && status.Code != 429; final || n == attempts {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(n*n) * 200 * time.Millisecond):
		}
	}
}

var userinfo = regexp.MustCompile(`//[^/@]*@`)

// redact takes a mirror's user and password out of a URL: errors go into logs
// that others read.
func redact(url string) string { return userinfo.ReplaceAllString(url, "//***@") }

// resume asks for what is missing behind what f already holds.
func (c *Cache) resume(req *http.Request, f *os.File) error {
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	req.Header.Del("Range")
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	client := c.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusPartialContent:
	case http.StatusOK: // the whole file, whatever we asked for
		if err := f.Truncate(0); err != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
	case http.StatusRequestedRangeNotSatisfiable: // we have all of it
		return nil
	default:
		return &StatusError{URL: req.URL.String(), Code: resp.StatusCode}
	}
	_, err = io.Copy(f, resp.Body)
	return err
}
