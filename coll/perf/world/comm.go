package world

import (
	"errors"
	"math"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/perf"
)

// A member is one rank of a world of our own engine.
type member interface {
	communicator() *coll.Comm
	// like returns a member of the same kind for another communicator.
	like(c *coll.Comm) (perf.Comm, error)
}

// A rankComm adapts a communicator to the benchmark.
type rankComm struct {
	*coll.Comm
	device  bool // buffers are in device memory
	group   coll.Group
	factors []float64 // of premultiplied sums, by reduction minus firstFactor
}

// firstFactor is the first reduction that is a premultiplied sum.
const firstFactor = elem.Op(64)

func (r *rankComm) communicator() *coll.Comm { return r.Comm }

func (r *rankComm) like(c *coll.Comm) (perf.Comm, error) { return &rankComm{Comm: c}, nil }

// Do implements perf.Comm.
func (r *rankComm) Do(o *op.Op) error {
	o.Device = r.device
	if o.Coll.Reduces() && o.Red >= firstFactor {
		scaled := *o
		scaled.Red, scaled.Scaled, scaled.Scale = elem.Sum, true, r.factors[o.Red-firstFactor]
		return r.Comm.Do(&scaled)
	}
	return r.Comm.Do(o)
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

// LastError implements perf.Explainer.
func (r *rankComm) LastError() string {
	if err := r.AsyncError(); err != nil {
		return err.Error()
	}
	return ""
}
