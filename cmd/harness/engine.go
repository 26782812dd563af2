package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/perf"
)

// libraryVersion is that of the NCCL whose calls and knobs the engine follows,
// as NCCL encodes it.
const libraryVersion = 23007

// openWorld joins this process's ranks, perProcess of them, to those of the
// other processes of the job that a launcher started, if one did.
func openWorld(ctx context.Context, perProcess int) (*perf.World, error) {
	knobs, warnings, err := knob.Load(os.Environ(), nil)
	if err != nil {
		return nil, err
	}
	where, err := bootstrap.Detect(knobs.Getenv)
	if err != nil {
		return nil, err
	}
	for _, w := range knob.News(warnings) {
		if w.Level == debug.Warn && where.Rank == 0 {
			fmt.Fprintln(os.Stderr, "harness:", w)
		}
	}
	boot := bootstrap.Options{Ifname: knobs.SocketIfname, Family: knobs.SocketFamily}
	id, root, err := bootstrap.ShareID(ctx, where, boot)
	if err != nil {
		return nil, fmt.Errorf("finding the other processes of the job (%s): %w", where.Launcher, err)
	}
	joined := *knobs
	joined.CommID = "" // ShareID has made use of it
	cfg := coll.Config{Knobs: &joined}
	if root != nil {
		context.AfterFunc(ctx, func() { root.Close() })
	}
	ranks := make([]int, perProcess)
	for i := range ranks {
		ranks[i] = where.Rank*perProcess + i
	}
	comms, err := coll.CommInitRanks(ctx, where.Size*perProcess, id, ranks, cfg)
	if err != nil {
		return nil, err
	}
	w := &perf.World{Process: where.Rank, Engine: "assay", Version: libraryVersion}
	for _, c := range comms {
		w.Comms = append(w.Comms, &rankComm{Comm: c})
	}
	w.Split = func(c perf.Comm, color int) (perf.Comm, error) {
		sub, err := c.(*rankComm).Comm.Split(ctx, color, c.Rank())
		if err != nil {
			return nil, err
		}
		return &rankComm{Comm: sub}, nil
	}
	w.Abort = func(error) {
		for _, c := range comms {
			_ = c.Abort()
		}
	}
	return w, nil
}

// closeWorld leaves in order.
func closeWorld(w *perf.World) error {
	errs := make([]error, len(w.Comms))
	var wg sync.WaitGroup
	for i, c := range w.Comms {
		wg.Go(func() { errs[i] = c.(*rankComm).Destroy() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A rankComm makes a communicator what the benchmark drives.
type rankComm struct {
	*coll.Comm
	group   coll.Group
	factors []float64 // of premultiplied sums, by reduction minus firstFactor
}

// Reductions from here on are premultiplied sums.
const firstFactor = elem.Op(64)

func (r *rankComm) AllReduce(send, recv []byte, count int, t elem.Type, op elem.Op) error {
	if op >= firstFactor {
		return r.AllReducePreMul(coll.Bytes(send), coll.Bytes(recv), count, t, r.factor(op))
	}
	return r.Comm.AllReduce(coll.Bytes(send), coll.Bytes(recv), count, t, op)
}

func (r *rankComm) Reduce(send, recv []byte, count int, t elem.Type, op elem.Op, root int) error {
	if op >= firstFactor {
		return r.ReducePreMul(coll.Bytes(send), coll.Bytes(recv), count, t, r.factor(op), root)
	}
	return r.Comm.Reduce(coll.Bytes(send), coll.Bytes(recv), count, t, op, root)
}

func (r *rankComm) ReduceScatter(send, recv []byte, count int, t elem.Type, op elem.Op) error {
	if op >= firstFactor {
		return r.ReduceScatterPreMul(coll.Bytes(send), coll.Bytes(recv), count, t, r.factor(op))
	}
	return r.Comm.ReduceScatter(coll.Bytes(send), coll.Bytes(recv), count, t, op)
}

func (r *rankComm) Broadcast(send, recv []byte, count int, t elem.Type, root int) error {
	return r.Comm.Broadcast(coll.Bytes(send), coll.Bytes(recv), count, t, root)
}

func (r *rankComm) AllGather(send, recv []byte, count int, t elem.Type) error {
	return r.Comm.AllGather(coll.Bytes(send), coll.Bytes(recv), count, t)
}

func (r *rankComm) AllToAll(send, recv []byte, count int, t elem.Type) error {
	return r.Comm.AllToAll(coll.Bytes(send), coll.Bytes(recv), count, t)
}

func (r *rankComm) Gather(send, recv []byte, count int, t elem.Type, root int) error {
	return r.Comm.Gather(coll.Bytes(send), coll.Bytes(recv), count, t, root)
}

func (r *rankComm) Scatter(send, recv []byte, count int, t elem.Type, root int) error {
	return r.Comm.Scatter(coll.Bytes(send), coll.Bytes(recv), count, t, root)
}

func (r *rankComm) SendRecv(send []byte, to int, recv []byte, from, count int, t elem.Type) error {
	return r.Group(func() error {
		if err := r.Send(coll.Bytes(send), count, t, to); err != nil {
			return err
		}
		return r.Recv(coll.Bytes(recv), count, t, from)
	})
}

func (r *rankComm) Group(f func() error) error {
	r.group.Start()
	r.group.Add(r.Comm)
	err := f()
	return errors.Join(err, r.group.End())
}

func (r *rankComm) Alloc(n int) ([]byte, error) { return coll.Alloc(n) }
func (r *rankComm) Free(b []byte)               { _ = coll.Free(b) }

// PreMulSum implements perf.PreMulSummer.
func (r *rankComm) PreMulSum(scalar []byte, t elem.Type) (elem.Op, error) {
	if int(firstFactor)+len(r.factors) > math.MaxUint8 {
		return 0, errors.New("too many premultiplied sums")
	}
	r.factors = append(r.factors, elem.Float(t, scalar))
	return firstFactor + elem.Op(len(r.factors)-1), nil
}

// FreeOp implements perf.PreMulSummer.
func (r *rankComm) FreeOp(op elem.Op) error {
	if int(op-firstFactor) == len(r.factors)-1 {
		r.factors = r.factors[:len(r.factors)-1]
	}
	return nil
}

func (r *rankComm) factor(op elem.Op) coll.PreMulSum {
	return coll.PreMulSum{Factor: r.factors[op-firstFactor]}
}

// LastError implements perf.Explainer.
func (r *rankComm) LastError() string {
	if err := r.AsyncError(); err != nil {
		return err.Error()
	}
	return ""
}
