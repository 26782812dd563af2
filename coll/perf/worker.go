package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/assay-hpc/assay/coll/elem"
)

// A worker is one rank. All workers run the same loops with the same decisions: values that may
// differ between them are exchanged first.
type worker struct {
	*session
	i      int // index among this process's ranks
	world  Comm
	comm   Comm // the group's, if the world is split; else world
	now    clock
	pulse  pulse
	report *reporter // on rank 0 of the world only
	medium medium

	buffers            // the ones that operations use
	kinds    []buffers // all buffers; one kind, unless engines are compared
	entrants []entrant // the engines, ours first, if they are compared
}

func (w *worker) run(ctx context.Context) (err error) {
	for _, c := range w.contenders(w.i) {
		l := laneOf(c)
		if l == nil {
			continue
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := l.Bind(); err != nil {
			return w.failed(DeviceError, err)
		}
	}
	// Some kinds of memory are freed by all ranks together, unless the world was aborted. So a
	// rank that failed aborts the world before it frees its own memory.
	defer func() {
		w.stop(err)
		w.close()
	}()
	if err := w.open(ctx); err != nil {
		return err
	}
	switch {
	case w.cfg.Split > 0:
		return w.splitCompare(ctx)
	case !w.cfg.sweeps():
		return w.shape(ctx)
	}
	for cycle := 0; cycle < w.cfg.Cycles || w.cfg.Cycles == 0; cycle++ {
		if err := w.combinations(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open introduces the ranks to one another, splits them into groups and
// allocates the buffers.
func (w *worker) open(ctx context.Context) error {
	maxBytes, err := w.introduce(ctx)
	if err != nil {
		return err
	}
	if w.set.split.op != 0 {
		c, err := w.session.world.Split(w.world, w.set.split.color(w.session.world.Process))
		if err != nil {
			return w.failed(EngineError, err)
		}
		w.comm = c
	}
	if w.cfg.sweeps() && maxBytes < w.cfg.MinBytes {
		return w.failed(DeviceError, fmt.Errorf("-b %d bytes do not fit: memory allows %d for each buffer; use fewer ranks (-t, -g) or smaller sizes", w.cfg.MinBytes, maxBytes))
	}
	if w.cfg.Root >= w.comm.Size() {
		return w.failed(InvalidUsage, fmt.Errorf("-r %d is no rank: they go from 0 to %d", w.cfg.Root, w.comm.Size()-1))
	}
	n := maxBytes + int64(8*w.cfg.Unalign) + 2*guard
	if err := w.allocate(int(n)); err != nil {
		return w.failed(DeviceError, fmt.Errorf("allocating %d bytes: %w", n, err))
	}
	return nil
}

// failed makes err a Failure of this rank; nil stays nil.
func (w *worker) failed(s Status, err error) error { return w.failure(s, w.comm, err) }

// failedBy makes err a Failure of an engine.
func (w *worker) failedBy(c Comm, err error) error { return w.failure(EngineError, c, err) }

// failure must be called by failed or failedBy: it records the line that called these.
func (w *worker) failure(s Status, c Comm, err error) error {
	if err == nil {
		return nil
	}
	f := &Failure{Status: s, Rank: w.world.Rank(), Where: where(3), Err: err}
	if e, ok := c.(Explainer); ok {
		f.Last = e.LastError()
	}
	return f
}

// A combination is a type, a reduction and a root: one sweep.
type combination struct {
	t    elem.Type
	red  Reduction
	root int
	op   elem.Op // red's, for this communicator
}

// redop is what the table shows in the redop column.
func (w *worker) redop(k combination) string {
	if w.c.redop() {
		return k.red.Name
	}
	return "none"
}

// shownRoot is what the table shows in the root column.
func (w *worker) shownRoot(k combination) int {
	if w.c.Rooted() {
		return k.root
	}
	return -1
}

func (w *worker) combinations(ctx context.Context) error {
	reds := w.cfg.Ops
	if !w.c.redop() {
		reds = Reductions[:1]
	}
	roots := []int{max(0, w.cfg.Root)}
	if w.c.Rooted() && w.cfg.Root < 0 {
		roots = roots[:0]
		for r := range w.comm.Size() {
			roots = append(roots, r)
		}
	}
	for _, t := range w.cfg.Types {
		if err := w.touch(t); err != nil {
			return err
		}
		for _, red := range reds {
			for _, root := range roots {
				if err := w.combination(ctx, combination{t: t, red: red, root: root, op: red.Op}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// touch gives the buffers pages of their own and values that are numbers: unwritten memory is one
// page of zeros, and too fast to read.
func (w *worker) touch(t elem.Type) error {
	p := w.source.pattern(generator{t: t, seed: 1}, periods[1])
	for i := range w.kinds {
		for _, b := range []*buffer{&w.kinds[i].send, &w.kinds[i].recv} {
			b.base = guard + w.cfg.Unalign*t.Size()
			mem := b.mem[w.cfg.Unalign*t.Size():]
			if err := w.medium.fill(layout{{p, 0, int64(len(mem) / t.Size())}}, mem); err != nil {
				return w.failed(EngineError, err)
			}
		}
	}
	w.buffers = w.kinds[0]
	return w.failed(EngineError, w.medium.settle())
}

// combination runs one sweep. It creates the reduction mulsum for it if needed.
func (w *worker) combination(ctx context.Context, k combination) (err error) {
	if w.cfg.Versus != "" {
		return w.versus(ctx, k)
	}
	if k.red.Mulsum && w.c.Reduces() {
		p, ok := w.comm.(PreMulSummer)
		if !ok {
			return w.withoutMulsum()
		}
		if k.op, err = w.preMulSum(p, k.t); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.failed(EngineError, p.FreeOp(k.op))) }()
	}
	return w.sweep(ctx, k)
}

func (w *worker) preMulSum(p PreMulSummer, t elem.Type) (elem.Op, error) {
	op, err := p.PreMulSum(generator{t: t}.scalarBytes(w.comm.Rank()), t)
	return op, w.failed(EngineError, err)
}

// withoutMulsum skips mulsum in -o all, and fails if nothing else was requested.
func (w *worker) withoutMulsum() error {
	if len(w.cfg.Ops) == 1 {
		return w.failed(NotImplemented, errors.New("-o mulsum: the engine has no sums with scalars"))
	}
	if w.report != nil {
		return w.report.remark("mulsum", "# mulsum is left out: the engine has no sums with scalars")
	}
	return nil
}

func (g generator) scalarBytes(rank int) []byte {
	s := mulsumScalar(rank)
	return elem.AppendBits(nil, g.t, g.bits(element{i: s, f: float64(s)}))
}

func (w *worker) sweep(ctx context.Context, k combination) error {
	if err := w.barrier(); err != nil {
		return err
	}
	if err := w.warmUp(k); err != nil {
		return err
	}
	for _, size := range w.sizes() {
		if err := w.row(ctx, size, k); err != nil {
			return err
		}
	}
	return nil
}

// sizes returns the sweep's sizes, as far as memory allows.
func (w *worker) sizes() []int64 {
	cfg := w.cfg
	cfg.MaxBytes = min(cfg.MaxBytes, w.maxBytes())
	return cfg.Sizes()
}

// maxBytes is how large an operation's buffers can be.
func (w *worker) maxBytes() int64 {
	return int64(len(w.recv.mem)) - int64(8*w.cfg.Unalign) - 2*guard
}

// warmUp runs sizes that double, so that everything has been used once: connections, memory,
// branch predictors.
func (w *worker) warmUp(k combination) error {
	for size := max(1, w.cfg.MinBytes); size <= w.maxBytes(); size *= 2 {
		o := w.operation(w.c.volume(size, w.comm.Size(), k.t), k, false)
		for range w.cfg.Warmup {
			if err := o.once(); err != nil {
				return err
			}
		}
	}
	return nil
}

// row measures one size in both placements.
func (w *worker) row(ctx context.Context, size int64, k combination) error {
	v := w.c.volume(size, w.comm.Size(), k.t)
	if w.report != nil {
		w.report.progress(v, k)
	}
	iters, err := w.iterations(ctx, w.operation(v, k, false))
	if err != nil {
		return err
	}
	var both [2][]measure
	for i, inPlace := range []bool{false, true} {
		m, err := w.placement(ctx, w.operation(v, k, inPlace), iters)
		if err != nil {
			return err
		}
		if both[i], err = w.collect(ctx, m); err != nil {
			return err
		}
	}
	if w.report == nil {
		return nil
	}
	return w.report.row(Row{
		Bytes: v.bytes(), Count: v.count, Type: k.t.String(), Redop: w.redop(k), Root: w.shownRoot(k),
		Iterations: iters * w.cfg.AggIters, at: w.host.now(),
		OutOfPlace: w.report.placement(v, k, both[0], iters), InPlace: w.report.placement(v, k, both[1], iters),
	})
}

// collect sends the ranks' measures to the rank that reports.
func (w *worker) collect(ctx context.Context, m measure) ([]measure, error) {
	return w.exchange(ctx, m, w.report != nil)
}

// exchange sends the ranks' measures to the ranks that read them.
func (w *worker) exchange(ctx context.Context, m measure, read bool) ([]measure, error) {
	all, err := w.world.Exchange(ctx, m.encode())
	if err != nil || !read {
		return nil, w.failed(EngineError, err)
	}
	ms := make([]measure, len(all))
	for i, b := range all {
		if ms[i], err = decodeMeasure(b); err != nil {
			return nil, w.failed(InternalError, fmt.Errorf("rank %d: %w", i, err))
		}
	}
	return ms, nil
}

func (w *worker) barrier() error { return w.failed(EngineError, w.world.Barrier()) }

// sum returns the sum of all ranks' values.
func (w *worker) sum(ctx context.Context, v int64) (total int64, err error) {
	ms, err := w.exchange(ctx, measure{wrong: v}, true)
	for _, m := range ms {
		total += m.wrong
	}
	return total, err
}

// processes lists the process of each rank.
func processes(ranks []introduction) []int {
	out := make([]int, len(ranks))
	for i, r := range ranks {
		out[i] = r.Process
	}
	return slices.Clip(out)
}
