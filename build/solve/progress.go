package solve

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
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
	own   map[string][]time.Duration // of work done outside BuildKit
}

// Count is the outcome of one vertex of the run.
type Count struct {
	Started, Cached bool

	name string
	took map[int64]time.Duration // the duration of each run, by its start time
}

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
		// The display continues after a cancelled build, to show how it ended.
		_, _ = d.UpdateFrom(context.Background(), p.display)
	}()
	return p, nil
}

// Close ends the display after it has shown everything that was sent to it.
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

// Took records how long something outside BuildKit took.
func (p *Progress) Took(name string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		p.own = map[string][]time.Duration{}
	}
	p.own[name] = append(p.own[name], d)
}

// Times returns how long the steps took that ran to completion and did not come from the cache,
// by name. Several steps may have the same name.
func (p *Progress) Times() map[string][]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	times := map[string][]time.Duration{}
	for name, list := range p.own {
		times[name] = slices.Clone(list)
	}
	for _, c := range p.steps {
		var all time.Duration
		for _, d := range c.took {
			all += d
		}
		if len(c.took) > 0 {
			times[c.name] = append(times[c.name], all)
		}
	}
	return times
}

// add adds what one solve observed of a vertex. Solves that share it observe the same.
func (p *Progress) add(d digest.Digest, r *vertexRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.steps[d]
	if c.took == nil {
		c.took = map[int64]time.Duration{}
	}
	c.name = r.name
	maps.Copy(c.took, r.took)
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

// A watcher follows one solve and records the step that failed.
type watcher struct {
	ch   chan *client.SolveStatus
	done chan struct{}
	name string

	limit   time.Duration // for one download
	giveUp  context.CancelCauseFunc
	running map[digest.Digest]*time.Timer // of downloads
	runs    map[digest.Digest]*vertexRun

	failed []*client.Vertex
	logs   map[digest.Digest]*strings.Builder
}

// builderLimit is how long a download by BuildKit may take unless the user sets a limit: BuildKit
// itself has no limit for a server that sends nothing, and does not report its progress.
const builderLimit = 2 * time.Hour

// watch follows a solve. The solve must use the returned context, which ends when one of its
// downloads takes longer than the limit.
func (p *Progress) watch(ctx context.Context, name string, limit time.Duration) (context.Context, *watcher) {
	w := &watcher{
		ch: make(chan *client.SolveStatus, 16), done: make(chan struct{}), name: name, logs: map[digest.Digest]*strings.Builder{},
		limit: cmp.Or(limit, builderLimit), running: map[digest.Digest]*time.Timer{}, runs: map[digest.Digest]*vertexRun{},
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
		for d, r := range w.runs {
			r.settle()
			p.add(d, r)
		}
	}()
	return ctx, w
}

func (w *watcher) wait() {
	<-w.done
	w.giveUp(nil)
}

// clock cancels the solve when a download takes too long.
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

// A step is work of this program that is shown like one of BuildKit's, with its log.
type step struct {
	w *watcher

	mu     sync.Mutex // guards vertex
	vertex *client.Vertex
}

// step starts a step of a solve. It must end before the solve does.
func (w *watcher) step(name string) *step {
	now := time.Now()
	s := &step{w: w, vertex: &client.Vertex{Digest: digest.FromString(w.name + name), Name: name, Started: &now}}
	w.ch <- &client.SolveStatus{Vertexes: []*client.Vertex{s.vertex}}
	return s
}

// Write adds to the step's log, and does nothing after its end.
func (s *step) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vertex.Completed == nil {
		s.w.ch <- &client.SolveStatus{Logs: []*client.VertexLog{{Vertex: s.vertex.Digest, Stream: 2, Data: slices.Clone(p), Timestamp: time.Now()}}}
	}
	return len(p), nil
}

// end ends the step.
func (s *step) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, v := time.Now(), *s.vertex
	if v.Completed = &now; err != nil {
		v.Error = err.Error()
	}
	s.vertex = &v
	s.w.ch <- &client.SolveStatus{Vertexes: []*client.Vertex{s.vertex}}
}

// A vertexRun is what one solve observed of a vertex: how long it ran, each time.
type vertexRun struct {
	name   string
	source bool // it has no inputs: a download or a base
	took   map[int64]time.Duration
}

// settle removes what was not work: the first time, BuildKit only checks whether a source is
// cached.
func (r *vertexRun) settle() {
	if r.source && len(r.took) > 0 {
		delete(r.took, slices.Min(slices.Collect(maps.Keys(r.took))))
	}
}

// exporting is the prefix of BuildKit's own name of an export, which is the same for all images.
const exporting = "exporting to "

// time records how long a vertex took.
func (w *watcher) time(v *client.Vertex) {
	if v.Started == nil || v.Completed == nil || v.Cached || v.Error != "" {
		return
	}
	r := w.runs[v.Digest]
	if r == nil {
		r = &vertexRun{name: v.Name, source: len(v.Inputs) == 0, took: map[int64]time.Duration{}}
		if strings.HasPrefix(v.Name, exporting) {
			r.name, r.source = exportName(w.name), false
		}
		w.runs[v.Digest] = r
	}
	r.took[v.Started.UnixNano()] = max(0, v.Completed.Sub(*v.Started)) // the daemon's clock may have been set
}

func (w *watcher) note(st *client.SolveStatus) {
	for _, v := range st.Vertexes {
		w.clock(v)
		w.time(v)
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
