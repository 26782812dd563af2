package solve

import (
	"cmp"
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/moby/buildkit/client"
	"github.com/moby/buildkit/util/progress/progressui"
	digest "github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/llb"
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

	limit   time.Duration // for one download
	giveUp  context.CancelCauseFunc
	running map[digest.Digest]*time.Timer // of downloads

	failed []*client.Vertex
	logs   map[digest.Digest]*strings.Builder
}

// builderLimit is how long a download of BuildKit's may take unless the user
// says: it has no limit of its own for a server that is silent, and does not
// tell how far it is.
const builderLimit = 2 * time.Hour

// watch follows a solve, for which the context is that ends when one of its
// downloads takes longer than the limit.
func (p *Progress) watch(ctx context.Context, name string, limit time.Duration) (context.Context, *watcher) {
	w := &watcher{
		ch: make(chan *client.SolveStatus, 16), done: make(chan struct{}), name: name, logs: map[digest.Digest]*strings.Builder{},
		limit: cmp.Or(limit, builderLimit), running: map[digest.Digest]*time.Timer{},
	}
	ctx, w.giveUp = context.WithCancelCause(ctx)
	go func() {
		defer close(w.done)
		defer func() {
			for _, t := range w.running {
				t.Stop()
			}
		}()
		for st := range w.ch {
			w.note(st)
			for _, v := range st.Vertexes {
				p.count(v)
			}
			p.display <- st
		}
	}()
	return ctx, w
}

func (w *watcher) wait() {
	<-w.done
	w.giveUp(nil)
}

// clock gives up the solve when a download runs too long.
func (w *watcher) clock(v *client.Vertex) {
	if !strings.HasPrefix(v.Name, llb.DownloadPrefix) {
		return
	}
	if t := w.running[v.Digest]; v.Completed != nil {
		if t != nil {
			t.Stop()
		}
		delete(w.running, v.Digest)
	} else if v.Started != nil && t == nil {
		w.running[v.Digest] = time.AfterFunc(w.limit, func() {
			w.giveUp(&fetch.LimitError{URL: v.Name, Limit: w.limit, Total: true})
		})
	}
}

func (w *watcher) note(st *client.SolveStatus) {
	for _, v := range st.Vertexes {
		w.clock(v)
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
