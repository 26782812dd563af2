//go:build cuda && cgo

package world

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/cuda"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/exit"
)

// tuneGPUs measures with GPUs. In the process of rank 0 it passes each table to add at
// once, so that an interrupted run has some results.
func (j *job) tuneGPUs(ctx context.Context, t *Tuning, all []perf.Device, add func(choose.Place, []choose.Row) error) (err error) {
	w, err := j.gpuWorld(ctx, perf.Config{}, all)
	if err != nil {
		return err
	}
	defer func() {
		if closed := w.Close(); err == nil {
			err = closed
		}
	}()
	return each(len(w.Comms), func(i int) error {
		g := w.Comms[i].(*gpuComm)
		silent := func(string) {}
		r := &gpuTuner{gpuComm: g, name: w.Device(i).Name, show: silent, log: silent, refused: map[string]bool{}, add: func(choose.Place, []choose.Row) error { return nil }}
		if g.Rank() == 0 {
			r.show, r.log, r.add = t.Show, t.Log, add
		}
		return r.run(ctx, t)
	})
}

// A gpuTuner is one rank that measures.
type gpuTuner struct {
	*gpuComm
	name       string // of its GPU
	send, recv []byte
	add        func(choose.Place, []choose.Row) error
	show, log  func(text string)
	refused    map[string]bool // choices already reported as refused
}

func (r *gpuTuner) logf(format string, a ...any) { r.log(fmt.Sprintf(format, a...)) }

// samples is the number of timed launches of a graph of operations. The shortest counts.
const samples = 5

// run runs the rank.
func (r *gpuTuner) run(ctx context.Context, t *Tuning) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := r.Bind()
	if err == nil {
		err = r.all(ctx, t)
	}
	if err != nil {
		_ = r.Abort() // otherwise the other ranks wait for this one, and this one for its kernels
	}
	for _, b := range [][]byte{r.send, r.recv} {
		if b != nil {
			r.Free(b)
		}
	}
	return err
}

// all tunes one collective after another. All ranks arrive at the same rules.
func (r *gpuTuner) all(ctx context.Context, t *Tuning) error {
	engine, ok := r.communicator().Executor().(cuda.Tuner)
	switch {
	case r.Size() == 1:
		return exit.Usagef("there is nothing to choose with one rank")
	case !ok:
		return errors.New("the GPUs do not reach one another's memory: there is nothing to choose")
	}
	names, err := r.Exchange(ctx, []byte(r.name))
	if err != nil {
		return err
	}
	for p, n := range names {
		if string(n) != r.name {
			return fmt.Errorf("rank %d is on a GPU %q, rank %d on a %q: they have no rules in common", r.Rank(), r.name, p, n)
		}
	}
	if err := r.allocate(ctx, t); err != nil {
		return err
	}
	for _, o := range t.Collectives {
		sizes := slices.DeleteFunc(slices.Clone(t.Sizes), func(n int) bool { return n*o.Longest(r.Size()) > len(r.send) })
		if left := len(t.Sizes) - len(sizes); left > 0 {
			r.logf("%s: the memory is too small for the largest sizes, %d of %d", o.Test(), left, len(t.Sizes))
		}
		began := time.Now()
		rules, err := engine.Tune(o, sizes, func(choice string, bytes int) (float64, error) {
			if err := context.Cause(ctx); err != nil {
				return 0, err
			}
			return r.measure(o, choice, bytes)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", o.Test(), err)
		}
		r.logf("%-14s %3d rules, %.1f s", o.Test(), len(rules), time.Since(began).Seconds())
		if len(rules) == 0 {
			continue
		}
		if err := r.add(choose.Place{GPU: r.name, Ranks: r.Size(), Collective: o.String()}, rules); err != nil {
			return err
		}
	}
	return nil
}

// allocate allocates buffers for the largest size, or as large as the free memory of all
// ranks allows.
func (r *gpuTuner) allocate(ctx context.Context, t *Tuning) error {
	free, _, err := r.Memory()
	if err != nil {
		return err
	}
	all, err := r.Exchange(ctx, binary.LittleEndian.AppendUint64(nil, uint64(free)))
	if err != nil {
		return err
	}
	for _, b := range all {
		free = min(free, int64(binary.LittleEndian.Uint64(b)))
	}
	n := 0
	for _, o := range t.Collectives {
		n = max(n, o.Longest(r.Size())*slices.Max(t.Sizes))
	}
	n = min(n, int(free/5*2))
	if r.send, err = r.Alloc(n); err == nil {
		r.recv, err = r.Alloc(n)
	}
	return err
}

// measure times an operation with the current choice. It returns microseconds, the same
// on all ranks, or 0 if the choice cannot do the operation.
func (r *gpuTuner) measure(o op.Collective, choice string, bytes int) (float64, error) {
	r.show(fmt.Sprintf("%-14s %11d bytes  %s", o.Test(), bytes, choice))
	ops := min(40, max(2, (64<<20)/bytes)) // enough to hide the launch of a graph
	graph, err := r.record(o, bytes, ops)
	if graph != nil {
		defer graph.Close()
	}
	if broken := r.AsyncError(); broken != nil {
		return 0, errors.Join(err, broken)
	}
	able, broken := r.able(err)
	switch {
	case broken != nil:
		return 0, errors.Join(err, broken)
	case able == 0:
		if !r.refused[choice] {
			r.refused[choice] = true
			r.logf("%s of %d bytes is not done by %s: %v", o.Test(), bytes, choice, err)
		}
		return 0, nil
	case able < r.Size(): // the ranks have not called the same operations
		return 0, fmt.Errorf("%s of %d bytes can be done by %d of %d ranks with %s: %w", o.Test(), bytes, able, r.Size(), choice, cmp.Or(err, errOthers))
	}
	if err := r.Barrier(); err != nil {
		return 0, err
	}
	// The first launch uploads the graph to the device, and the next ones wait in the
	// stream: the marks measure the operations, not the launches.
	for i := range samples + 1 {
		if err := graph.Launch(); err != nil {
			return 0, err
		}
		if err := r.Mark(i); err != nil {
			return 0, err
		}
	}
	if err := r.Wait(); err != nil {
		return 0, err
	}
	times := make([]uint64, samples)
	for i := range samples {
		d, err := r.Between(i, i+1)
		if err != nil {
			return 0, err
		}
		times[i] = uint64(d)
	}
	all, err := r.gather(times)
	if err != nil {
		return 0, err
	}
	best := uint64(math.MaxUint64)
	for i := range samples {
		slowest := uint64(1)
		for p := range r.Size() {
			slowest = max(slowest, all[p*samples+i])
		}
		best = min(best, slowest)
	}
	return float64(best) / 1e3 / float64(ops), nil
}

// errOthers is for a rank that has no error of its own.
var errOthers = errors.New("others failed")

// record captures a graph of operations that step through the buffers. It runs one
// operation first, because first-time setup cannot be captured.
func (r *gpuTuner) record(o op.Collective, bytes, ops int) (perf.Graph, error) {
	n := bytes * o.Longest(r.Size())
	at, step := 0, (n+511)/512*512
	issue := func() error {
		return r.Do(&op.Op{Coll: o, Send: r.send[at:][:n], Recv: r.recv[at:][:n], Count: bytes / elem.Float32.Size(), Type: elem.Float32})
	}
	if err := issue(); err != nil {
		return nil, err
	}
	return r.Capture(func() error {
		for range ops {
			if err := issue(); err != nil {
				return err
			}
			if at += step; at+n > len(r.send) {
				at = 0
			}
		}
		return nil
	})
}

// able returns the number of ranks without an error.
func (r *gpuTuner) able(err error) (int, error) {
	mine := uint64(1)
	if err != nil {
		mine = 0
	}
	all, err := r.gather([]uint64{mine})
	n := 0
	for _, v := range all {
		n += int(v)
	}
	return n, err
}

// gather gives each rank the numbers of all ranks. It takes microseconds.
func (r *gpuTuner) gather(mine []uint64) ([]uint64, error) {
	var send []byte
	for _, v := range mine {
		send = binary.LittleEndian.AppendUint64(send, v)
	}
	recv := make([]byte, len(send)*r.Size())
	if err := r.communicator().AllGather(coll.Bytes(send), coll.Bytes(recv), len(mine), elem.Uint64); err != nil {
		return nil, err
	}
	all := make([]uint64, len(mine)*r.Size())
	for i := range all {
		all[i] = binary.LittleEndian.Uint64(recv[8*i:])
	}
	return all, nil
}
