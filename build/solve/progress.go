package solve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/moby/buildkit/client"
	"github.com/moby/buildkit/util/progress/progressui"
	digest "github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/recipe"
)

// Progress shows all solves of a run in one display: BuildKit's own on a
// terminal, plain lines otherwise.
type Progress struct {
	display chan *client.SolveStatus
	done    chan struct{}
	once    sync.Once

	mu    sync.Mutex
	steps map[digest.Digest]*Count
}

// Count tells what became of the run's vertices.
type Count struct{ Started, Cached bool }

// NewProgress starts a display on f. Mode is progressui's: auto, tty, plain,
// quiet.
func NewProgress(f *os.File, mode string) (*Progress, error) {
	p := &Progress{display: make(chan *client.SolveStatus, 64), done: make(chan struct{}), steps: map[digest.Digest]*Count{}}
	d, err := progressui.NewDisplay(f, progressui.DisplayMode(mode))
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		// The display outlives a cancelled build, to show how it ended.
		_, _ = d.UpdateFrom(context.Background(), p.display)
	}()
	return p, nil
}

// Close ends the display after what was sent to it is shown.
func (p *Progress) Close() {
	p.once.Do(func() { close(p.display) })
	<-p.done
}

// Steps returns how many distinct steps were executed and how many came from
// the cache.
func (p *Progress) Steps() (executed, cached int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.steps {
		switch {
		case c.Cached:
			cached++
		case c.Started:
			executed++
		}
	}
	return executed, cached
}

func (p *Progress) count(v *client.Vertex) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.steps[v.Digest]
	if c == nil {
		c = &Count{}
		p.steps[v.Digest] = c
	}
	c.Started = c.Started || v.Started != nil
	c.Cached = c.Cached || v.Cached
}

// A watcher follows one solve and remembers the step that failed.
type watcher struct {
	ch   chan *client.SolveStatus
	done chan struct{}
	name string

	failed []*client.Vertex
	logs   map[digest.Digest]*strings.Builder
}

func (p *Progress) watch(name string) *watcher {
	w := &watcher{ch: make(chan *client.SolveStatus, 16), done: make(chan struct{}), name: name, logs: map[digest.Digest]*strings.Builder{}}
	go func() {
		defer close(w.done)
		for st := range w.ch {
			w.note(st)
			for _, v := range st.Vertexes {
				p.count(v)
			}
			p.display <- st
		}
	}()
	return w
}

func (w *watcher) wait() { <-w.done }

func (w *watcher) note(st *client.SolveStatus) {
	for _, v := range st.Vertexes {
		if v.Error != "" {
			w.failed = append(w.failed, v)
		}
	}
	for _, l := range st.Logs {
		b := w.logs[l.Vertex]
		if b == nil {
			b = &strings.Builder{}
			w.logs[l.Vertex] = b
		}
		b.Write(l.Data)
	}
}

// A StepError says which step of which image failed, with the end of its log.
type StepError struct {
	Image string // "fabric-debian12 amd64"
	Step  string // the step's name in the display
	Log   string // its last lines
	Err   error
}

func (e *StepError) Error() string {
	if e.Step == "" {
		return fmt.Sprintf("%s: %v", e.Image, e.Err)
	}
	msg := fmt.Sprintf("%s: step %q failed: %s", e.Image, e.Step, why(e.Err))
	if e.Log != "" {
		msg += "\n    | " + strings.ReplaceAll(e.Log, "\n", "\n    | ")
	}
	return msg
}

// why is an error without the script that failed, which BuildKit quotes whole
// and which the step's name stands for.
func why(err error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, "did not complete successfully: "); ok {
		return rest
	}
	return strings.TrimPrefix(text, "failed to solve: ")
}

func (e *StepError) Unwrap() error { return e.Err }

// mismatch is BuildKit's way to say that a download is not what was locked.
var mismatch = regexp.MustCompile(`digest mismatch sha256:([0-9a-f]+): sha256:([0-9a-f]+)|digest mismatch for \S+: sha256:([0-9a-f]+) \(expected: sha256:([0-9a-f]+)\)`)

// explain names the download whose checksum is wrong.
func explain(r *recipe.Recipe, err error) error {
	var e *StepError
	m := mismatch.FindStringSubmatch(err.Error())
	if m == nil || !errors.As(err, &e) {
		return err
	}
	sum := &fetch.ChecksumError{URL: e.Step, Got: cmp.Or(m[1], m[3]), Want: cmp.Or(m[2], m[4])}
	if url := downloads(r)["sha256:"+sum.Want]; url != "" {
		sum.URL = url
	}
	e.Err = sum
	return e
}

// downloads maps the digests of all that a recipe downloads to their URLs.
func downloads(r *recipe.Recipe) map[string]string {
	urls := map[string]string{}
	for _, s := range r.Stages {
		for _, src := range sources(s) {
			if src.Kind == recipe.FromURL {
				urls[src.Digest] = src.Ref
			}
		}
		for _, st := range s.Steps {
			if a, ok := st.(recipe.Apt); ok {
				for _, d := range a.Debs {
					urls["sha256:"+d.SHA256] = d.URL
				}
			}
		}
	}
	return urls
}

// culprit returns the vertex that the solve's error is about: others failed
// because of it, or are cancelled.
func (w *watcher) culprit(err error) *client.Vertex {
	var best *client.Vertex
	for _, v := range w.failed {
		if strings.Contains(err.Error(), v.Error) {
			return v
		}
		if best == nil || strings.Contains(best.Error, "context canceled") {
			best = v
		}
	}
	return best
}

func (w *watcher) stepError(err error) error {
	e := &StepError{Image: w.name, Err: err}
	if v := w.culprit(err); v != nil {
		e.Step = v.Name
		if b := w.logs[v.Digest]; b != nil {
			e.Log = lastLines(b.String(), 15)
		}
	}
	return e
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
