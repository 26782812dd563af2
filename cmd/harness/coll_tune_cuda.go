//go:build cuda && cgo

package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/coll/tuning"
)

// tuneGPUs measures with GPUs, and adds what was found to m.
func (j *job) tuneGPUs(ctx context.Context, t gpuTuning, all []perf.Device, m *tuning.Measurements, errOut io.Writer) (found string, err error) {
	w, err := j.gpuWorld(ctx, perf.Config{}, all)
	if err != nil {
		return "", err
	}
	defer func() {
		if closed := w.close(); err == nil {
			err = closed
		}
	}()
	name := w.Device(0).Name
	tables := make([][]tuning.GPUTable, len(w.Comms))
	err = each(len(w.Comms), func(i int) (err error) {
		g := w.Comms[i].(*gpuComm)
		r := &gpuTuner{gpuComm: g, name: w.Device(i).Name, log: io.Discard}
		if g.Rank() == 0 {
			r.log, r.terminal = errOut, isTerminal(errOut)
		}
		if tables[i], err = r.run(ctx, t); err != nil {
			_ = g.Abort() // else the others wait for this one
		}
		return err
	})
	if err != nil {
		return "", err
	}
	rules := 0
	for _, t := range tables[0] {
		m.SetGPU(t)
		rules += len(t.Rules)
	}
	return fmt.Sprintf("%d rules for %d collectives among %d GPUs %q", rules, len(tables[0]), w.Comms[0].Size(), name), nil
}

// A gpuTuner is one rank that measures.
type gpuTuner struct {
	*gpuComm
	name       string // of its GPU
	send, recv []byte
	log        io.Writer
	terminal   bool
}

// samples are so many launches of a graph of operations, the shortest of which
// counts.
const samples = 5

// run tunes one collective after the other. All ranks return the same tables.
func (r *gpuTuner) run(ctx context.Context, t gpuTuning) (tables []tuning.GPUTable, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := r.Bind(); err != nil {
		return nil, err
	}
	engine, ok := r.communicator().Accelerator().(cuda.Tuner)
	switch {
	case r.Size() == 1:
		return nil, usagef("there is nothing to choose with one rank")
	case !ok:
		return nil, errors.New("the GPUs do not reach one another's memory: there is nothing to choose")
	}
	names, err := r.Exchange(ctx, []byte(r.name))
	if err != nil {
		return nil, err
	}
	for p, n := range names {
		if string(n) != r.name {
			return nil, fmt.Errorf("rank %d is on a GPU %q, rank %d on a %q: they have no rules in common", r.Rank(), r.name, p, n)
		}
	}
	if err := r.allocate(ctx, t); err != nil {
		return nil, err
	}
	defer func() {
		r.Free(r.send)
		r.Free(r.recv)
	}()
	for _, o := range t.collectives {
		sizes := slices.DeleteFunc(slices.Clone(t.sizes), func(n int) bool { return n*o.parts(r.Size()) > len(r.send) })
		if left := len(t.sizes) - len(sizes); left > 0 {
			fmt.Fprintf(r.log, "%s: the memory is too small for the largest sizes, %d of %d\n", o.name, left, len(t.sizes))
		}
		began := time.Now()
		rules, err := engine.Tune(o.coll, sizes, func(choice string, bytes int) (float64, error) {
			if err := context.Cause(ctx); err != nil {
				return 0, err
			}
			return r.measure(o, choice, bytes)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
		if r.terminal {
			fmt.Fprint(r.log, "\r\x1b[K")
		}
		fmt.Fprintf(r.log, "%-14s %3d rules, %.1f s\n", o.name, len(rules), time.Since(began).Seconds())
		if len(rules) > 0 {
			tables = append(tables, tuning.GPUTable{GPU: r.name, Ranks: r.Size(), Collective: o.coll.String(), Rules: rules})
		}
	}
	return tables, nil
}

// allocate makes buffers for the largest size, or for as much as all ranks
// have room for.
func (r *gpuTuner) allocate(ctx context.Context, t gpuTuning) error {
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
	for _, o := range t.collectives {
		n = max(n, o.parts(r.Size())*slices.Max(t.sizes))
	}
	n = min(n, int(free/5*2))
	if r.send, err = r.Alloc(n); err == nil {
		r.recv, err = r.Alloc(n)
	}
	return err
}

// measure times an operation with the choice that is in force: microseconds,
// the same on all ranks, or 0 where it cannot be done.
func (r *gpuTuner) measure(o gpuCollective, choice string, bytes int) (float64, error) {
	if r.terminal {
		fmt.Fprintf(r.log, "\r\x1b[K%-14s %11d bytes  %s", o.name, bytes, choice)
	}
	ops := min(40, max(2, (64<<20)/bytes)) // enough to hide the launch of a graph
	graph, err := r.capture(o, bytes, ops)
	if graph != nil {
		defer graph.Close()
	}
	if broken := r.AsyncError(); broken != nil {
		return 0, errors.Join(err, broken)
	}
	// Nothing is launched unless all ranks can.
	able, broken := r.able(err)
	switch {
	case broken != nil:
		return 0, errors.Join(err, broken)
	case able == 0:
		fmt.Fprintf(r.log, "%s of %d bytes is not done by %s: %v\n", o.name, bytes, choice, err)
		return 0, nil
	case able < r.Size(): // they have not called the same operations
		return 0, fmt.Errorf("%s of %d bytes can be recorded by %d of %d ranks with %s: %w", o.name, bytes, able, r.Size(), choice, cmp.Or(err, errOthers))
	}
	if err := r.Barrier(); err != nil {
		return 0, err
	}
	// The first launch puts the graph onto the device, and those after it wait
	// in the stream: the marks are between operations, not between launches.
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

var errOthers = errors.New("others failed")

// capture records operations that step through the buffers.
func (r *gpuTuner) capture(o gpuCollective, bytes, ops int) (perf.Graph, error) {
	n := bytes * o.parts(r.Size())
	at, step := 0, (n+511)/512*512
	return r.Capture(func() error {
		for range ops {
			if err := o.run(r.gpuComm, r.send[at:][:n], r.recv[at:][:n], bytes/elem.Float32.Size()); err != nil {
				return err
			}
			if at += step; at+n > len(r.send) {
				at = 0
			}
		}
		return nil
	})
}

// able is how many ranks have no error.
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

// gather gives every rank every rank's numbers, in microseconds.
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
