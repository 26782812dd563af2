package host

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/transport"
)

// An Op is the operation that a plan is run for.
type Op struct {
	op.Op        // Send and Recv may overlap as the package comment of coll/schedule says
	InPlace bool // they overlap
	Copy    bool // copy messages into slots, even where they could be sent directly from the buffers
	Keep    bool // Send is copied when the run begins: it changes before the run has ended
	Window  int  // most bytes of a block that a step moves; 0: as many as fit in a slot
	Header  transport.Header
}

// A Run is one execution of a plan, or an operation within this rank. The zero value is ready for
// Start; it can be started again when it is done. It begins when what it waits for has happened:
// nothing reads or writes its buffers before.
type Run struct {
	Op
	plan      *Plan
	kernel    elem.Kernel
	past      elem.Kernel // kernel with stores that bypass the caches
	reduction elem.Op     // reduction of kernel and past
	large     bool        // more than the caches hold
	size      int         // bytes of an element
	per       int         // bytes of a block
	part      int         // bytes of a block per channel
	window    int         // bytes of a channel's part that a step moves
	total     int         // bytes of a vector; its last blocks may be shorter than per
	lanes     []lane
	live      int // lanes that are not done
	zeroCopy  bool
	scratch   []byte
	failed    error
	begun     bool
	waits     []wait // what must have happened before it begins
	after     *Run   // run on the same connections that must be done before this one uses them
	from      *Run   // within this rank: the run whose Send it stores
}

// A wait is for the end of a run, or for its begin.
type wait struct {
	run   *Run
	begin bool
}

// A lane is the state of one lane: the current step and window.
type lane struct {
	plan    *planLane
	pc      int
	lo, hi  int // the window, in bytes from the start of a block
	end     int
	scratch int  // offset of the lane's scratch memory
	posted  bool // a receive is under way
	got     bool // the step's value is at its dst, and must be sent
}

// beyondCaches is the size of an operation from which on its results are no longer in the caches
// when the program reads them, so that storing them there is a waste.
const beyondCaches = 8 << 20

const vectorAlign = 64 // bytes; long blocks, parts and windows begin at multiples of it

// Start prepares the run. Nothing moves before Drive.
func (r *Run) Start(p *Plan, o Op) {
	same := r.plan == p && r.Count == o.Count && r.Type == o.Type && r.Window == o.Window
	r.Op, r.plan, r.failed, r.waits, r.after, r.from = o, p, nil, r.waits[:0], nil, nil
	if !same || r.reduction != o.Red || r.kernel == nil {
		r.kernel, r.past = elem.KernelOf(o.Type, o.Red), elem.KernelNT(o.Type, o.Red)
		r.reduction = o.Red
	}
	if !same {
		r.layout()
	}
	r.zeroCopy = !o.Copy && (p.zeroCopy[0] && !o.InPlace || p.zeroCopy[1] && o.InPlace)
	r.rewind()
}

// StartLocal prepares an operation that needs no other rank: from, if not nil, is the run whose
// Send is copied to Recv.
func (r *Run) StartLocal(o Op, from *Run) {
	r.Op, r.plan, r.failed, r.waits, r.after, r.from = o, nil, nil, r.waits[:0], nil, from
	r.begun, r.live = false, 0
	if from != nil {
		r.AfterBegin(from)
	}
}

// Alone does an operation of a rank that is alone in it.
func Alone(o *op.Op) {
	if o.Scaled {
		elem.Scale(o.Type, o.Recv, o.Send, o.Scale)
	} else if len(o.Recv) > 0 && op.Addr(o.Recv) != op.Addr(o.Send) {
		copy(o.Recv, o.Send)
	}
}

// rewind resets the lanes to their first windows.
func (r *Run) rewind() {
	r.begun, r.live = false, 0
	for i := range r.lanes {
		l := &r.lanes[i]
		l.lo = l.plan.channel * r.part
		l.end = min(l.lo+r.part, r.per)
		l.hi = min(l.lo+r.window, l.end)
		l.pc, l.posted, l.got = 0, false, false
		if l.lo < l.end {
			r.live++
		} else {
			l.pc = -1
		}
	}
}

// Again starts the run once more, with other memory, which nothing changes meanwhile, and
// everything else unchanged.
func (r *Run) Again(in, out []byte, seq uint32) {
	r.Send, r.Recv, r.Header.Seq, r.Keep = in, out, seq, false
	r.failed = nil
	r.rewind()
}

// Plan returns the plan that the run was started with.
func (r *Run) Plan() *Plan { return r.plan }

// layout computes what depends on the plan, the count and the type only.
func (r *Run) layout() {
	r.size = r.Type.Size()
	s := r.plan.Schedule
	r.total = r.Count * r.size
	r.per = r.total
	if r.plan.vector {
		r.per = divUp(r.total, s.Blocks, r.size)
	}
	r.large = r.per*s.Blocks >= beyondCaches
	r.part = min(divUp(r.per, s.Channels, r.size), r.per)
	r.window = r.plan.slot / max(1, s.MaxSpan)
	if r.Window > 0 {
		r.window = min(r.window, r.Window)
	}
	r.window = max(r.window/vectorAlign*vectorAlign, r.size)
	r.window = min(r.window, r.part)
	if len(r.lanes) != len(r.plan.lanes) {
		r.lanes = make([]lane, len(r.plan.lanes))
	}
	each := r.plan.scratch * r.window
	if need := each * len(r.lanes); need > len(r.scratch) {
		r.scratch = make([]byte, need)
	}
	for i := range r.lanes {
		r.lanes[i].plan = &r.plan.lanes[i]
		r.lanes[i].scratch = i * each
	}
}

// divUp divides n bytes into k parts of whole elements, and returns the length of all parts
// except the last ones.
func divUp(n, k, size int) int {
	per := (n + k - 1) / k
	per = (per + size - 1) / size * size
	if per >= 64*vectorAlign {
		per = (per + vectorAlign - 1) / vectorAlign * vectorAlign
	}
	return per
}

// length returns how many bytes the lane's window covers of the blocks of a span.
func (r *Run) length(l *lane, d schedule.Span) int {
	if !r.plan.vector {
		return int(d.N) * (l.hi - l.lo)
	}
	n := 0
	for b := int(d.First); b < int(d.First+d.N); b++ {
		n += r.clip(b, l)
	}
	return n
}

// clip returns how many bytes the lane's window covers of a block of a vector.
func (r *Run) clip(block int, l *lane) int {
	return max(0, min(l.hi-l.lo, r.total-block*r.per-l.lo))
}

// whole reports whether the window covers all of every block, so that consecutive blocks are
// contiguous.
func (r *Run) whole(l *lane) bool { return l.lo == 0 && l.hi == r.per }

// mem returns the memory of the lane's window in block number i of a range of blocks, n bytes.
func (r *Run) mem(l *lane, ref schedule.Ref, i, n int) []byte {
	block := int(ref.First) + i
	switch ref.Buf {
	case schedule.Input:
		off := block*r.per + l.lo
		return r.Send[off : off+n : off+n]
	case schedule.Output:
		off := block*r.per + l.lo
		return r.Recv[off : off+n : off+n]
	}
	off := l.scratch + block*r.window
	return r.scratch[off : off+n : off+n]
}

// fail ends the run with an error.
func (r *Run) fail(err error) {
	if r.failed == nil {
		r.failed = err
	}
}

// A MismatchError says that a peer's message belongs to another operation
// than the one this rank is in: the ranks do not call the same operations in
// the same order with the same arguments.
type MismatchError struct {
	Peer       int
	Mine       transport.Header
	Theirs     transport.Header
	MyBytes    int
	TheirBytes int
}

func (e *MismatchError) Error() string {
	mine, theirs := e.Mine, e.Theirs
	switch {
	case theirs.Seq != mine.Seq && theirs.Sign != mine.Sign:
		return fmt.Sprintf("rank %d is in %v, this rank is in %v: one of them called an operation that the other did not", e.Peer, theirs, mine)
	case theirs.Seq != mine.Seq:
		return fmt.Sprintf("rank %d is in operation #%d, this rank in #%d, both %s: one of them called an operation that the other did not", e.Peer, theirs.Seq, mine.Seq, op.NameOf(mine.Sign))
	case op.NameOf(theirs.Sign) != op.NameOf(mine.Sign):
		return fmt.Sprintf("rank %d called %s as operation #%d, this rank called %s", e.Peer, op.NameOf(theirs.Sign), mine.Seq, op.NameOf(mine.Sign))
	case theirs.Sign != mine.Sign:
		return fmt.Sprintf("rank %d called operation #%d, %s, with another count or root than this rank", e.Peer, mine.Seq, op.NameOf(mine.Sign))
	}
	return fmt.Sprintf("rank %d sent a message of %d bytes for operation #%d, this rank expects %d: do both have the same NCCL_ variables?", e.Peer, e.TheirBytes, mine.Seq, e.MyBytes)
}

func (r *Run) check(peer int32, h transport.Header, n, want int) bool {
	if h == r.Header && n == want {
		return true
	}
	r.fail(&MismatchError{Peer: int(peer), Mine: r.Header, Theirs: h, MyBytes: want, TheirBytes: n})
	return false
}
