package oci

import (
	"errors"
	"io"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Progress is the progress of a push. Done grows to Total, but decreases when an upload has to
// restart.
type Progress struct {
	Target      string // digest of the target's index
	Done, Total int64  // bytes of blobs, including those that were there already
	Event       string // what has just finished: "blob sha256:…", "tag 12.9.1-…"; "" between events
}

// A meter counts the work of a push and reports it to the caller.
type meter struct {
	mu     sync.Mutex
	result Result
	at     Progress
	report func(Progress)
}

func newMeter(p *plan, report func(Progress)) *meter {
	m := &meter{report: report, at: Progress{Target: p.root.desc.Digest.String()}}
	for _, b := range p.blobs {
		m.at.Total += b.Size
	}
	return m
}

func (m *meter) total() Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.result
}

func (m *meter) moved(n int64, event string) {
	m.at.Done += n
	if m.report != nil {
		p := m.at
		p.Event = event
		m.report(p)
	}
}

func (m *meter) sent(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.result.Bytes += max(n, 0)
	m.moved(n, "")
}

func (m *meter) blobDone(u *upload, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		return
	}
	if u.opened() {
		m.result.Blobs++
	} else {
		m.result.Present++
	}
	m.moved(u.desc.Size-u.progress(), "blob "+u.desc.Digest.String())
}

func (m *meter) manifestDone(name string, isTag, written bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	event := "manifest "
	switch {
	case isTag:
		event = "tag "
		m.result.Tags += count(written)
	default:
		m.result.Manifests += count(written)
	}
	m.result.Present += count(!written)
	m.moved(0, event+name)
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// An upload is a blob that is being uploaded. It is a v1.Layer that implements only what an upload
// needs, and records whether it was read: if the registry does not need the blob, it is never
// opened.
type upload struct {
	storedBlob
	meter *meter

	mu    sync.Mutex // the HTTP client may still read after a failed attempt
	reads int
	done  int64 // bytes of the current attempt
	err   error // damage found in the layout
}

var errNotNeeded = errors.New("oci: an upload sends blobs as they are stored")

func (u *upload) DiffID() (v1.Hash, error)             { return v1.Hash{}, errNotNeeded }
func (u *upload) Uncompressed() (io.ReadCloser, error) { return nil, errNotNeeded }

func (u *upload) Compressed() (io.ReadCloser, error) {
	u.restart()
	rc, err := u.storedBlob.Compressed()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reads++
	if err != nil {
		u.err = err
		return nil, err
	}
	return &uploadReader{ReadCloser: rc, upload: u, attempt: u.reads}, nil
}

// restart resets the progress of a failed attempt.
func (u *upload) restart() {
	u.mu.Lock()
	back := -u.done
	u.done = 0
	u.mu.Unlock()
	if back != 0 {
		u.meter.sent(back)
	}
}

func (u *upload) opened() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reads > 0
}

func (u *upload) progress() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.done
}

func (u *upload) fault() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

type uploadReader struct {
	io.ReadCloser
	upload  *upload
	attempt int
}

func (r *uploadReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.upload.read(r.attempt, int64(n), err)
	return n, err
}

// read counts only the current attempt: the previous one may still drain.
func (u *upload) read(attempt int, n int64, err error) {
	var damage *BlobError
	u.mu.Lock()
	current := attempt == u.reads
	if errors.As(err, &damage) {
		u.err = damage
	}
	if current {
		u.done += n
	}
	u.mu.Unlock()
	if current {
		u.meter.sent(n)
	}
}
