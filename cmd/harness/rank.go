package main

import (
	"errors"
	"math"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/perf"
)

// A member is one rank of a world of our own engine.
type member interface {
	communicator() *coll.Comm
	// like makes what this is to its communicator of another one.
	like(c *coll.Comm) (perf.Comm, error)
}

// A rankComm makes a communicator what the benchmark drives.
type rankComm struct {
	*coll.Comm
	device  bool // buffers are a device's
	group   coll.Group
	factors []float64 // of premultiplied sums, by reduction minus firstFactor
}

// Reductions from here on are premultiplied sums.
const firstFactor = elem.Op(64)

func (r *rankComm) communicator() *coll.Comm { return r.Comm }

func (r *rankComm) like(c *coll.Comm) (perf.Comm, error) { return &rankComm{Comm: c}, nil }

// buffer is b as the engine knows it.
func (r *rankComm) buffer(b []byte) coll.Buffer {
	if r.device {
		return coll.Device(uintptr(unsafe.Pointer(unsafe.SliceData(b))), len(b))
	}
	return coll.Bytes(b)
}

func (r *rankComm) AllReduce(send, recv []byte, count int, t elem.Type, op elem.Op) error {
	if op >= firstFactor {
		return r.AllReducePreMul(r.buffer(send), r.buffer(recv), count, t, r.factor(op))
	}
	return r.Comm.AllReduce(r.buffer(send), r.buffer(recv), count, t, op)
}

func (r *rankComm) Reduce(send, recv []byte, count int, t elem.Type, op elem.Op, root int) error {
	if op >= firstFactor {
		return r.ReducePreMul(r.buffer(send), r.buffer(recv), count, t, r.factor(op), root)
	}
	return r.Comm.Reduce(r.buffer(send), r.buffer(recv), count, t, op, root)
}

func (r *rankComm) ReduceScatter(send, recv []byte, count int, t elem.Type, op elem.Op) error {
	if op >= firstFactor {
		return r.ReduceScatterPreMul(r.buffer(send), r.buffer(recv), count, t, r.factor(op))
	}
	return r.Comm.ReduceScatter(r.buffer(send), r.buffer(recv), count, t, op)
}

func (r *rankComm) Broadcast(send, recv []byte, count int, t elem.Type, root int) error {
	return r.Comm.Broadcast(r.buffer(send), r.buffer(recv), count, t, root)
}

func (r *rankComm) AllGather(send, recv []byte, count int, t elem.Type) error {
	return r.Comm.AllGather(r.buffer(send), r.buffer(recv), count, t)
}

func (r *rankComm) AllToAll(send, recv []byte, count int, t elem.Type) error {
	return r.Comm.AllToAll(r.buffer(send), r.buffer(recv), count, t)
}

func (r *rankComm) Gather(send, recv []byte, count int, t elem.Type, root int) error {
	return r.Comm.Gather(r.buffer(send), r.buffer(recv), count, t, root)
}

func (r *rankComm) Scatter(send, recv []byte, count int, t elem.Type, root int) error {
	return r.Comm.Scatter(r.buffer(send), r.buffer(recv), count, t, root)
}

func (r *rankComm) SendRecv(send []byte, to int, recv []byte, from, count int, t elem.Type) error {
	return r.Group(func() error {
		if err := r.Send(r.buffer(send), count, t, to); err != nil {
			return err
		}
		return r.Recv(r.buffer(recv), count, t, from)
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
