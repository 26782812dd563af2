//go:build cuda && cgo

package cuda

import (
	"os"
	"slices"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// In a ring, one kernel can do what must be done with the copies of all rounds (kernels/ring.cuh).
// Beside matrix products, which hold the multiprocessors that they run on until they end, the
// operation then waits for multiprocessors once, not in each round. The kernel tells a stream when
// to copy by a word that the stream waits for, and the stream tells the next rank's kernel with
// another word that a copy has arrived. Two more streams do that, so that copies follow one
// another without a gap.
//
// Such a kernel waits for copies that are enqueued after it. If another thread frees memory or loads
// code at that moment, the driver has that thread wait for the kernel, and may have this one wait for
// that thread. So the program must ask for it, with NCCL_CTA_POLICY=ZERO. It is never used in a
// graph, which promises no order among what does not depend on one another, nor where a launch may
// return only when the kernel has ended. There, each round has kernels of its own (copier.enqueue),
// which need nothing that comes later.

const (
	// residentBlocks is how many blocks move data, beside the one that talks to the others. On H200s 24
	// keep up with the link; more make no difference.
	residentBlocks = fewBlocks - 1

	mostRingPiece = 256 << 10 // bytes that a block moves at a time
	ringRow       = 512       // of which these are a multiple: ROW of the kernels
)

// residents is a copier's part for kernels that stay for all rounds.
type residents struct {
	states []driver.Ptr  // by rank, in their copy buffers; nil: not used
	waits  driver.Stream // waits until copies may begin
	tells  driver.Stream // tells that they have arrived
	ready  driver.Event
	sent   driver.Event
	base   uint32 // number of round 0 of the next operation
	now    uint32 // of the operation under way
	claim  uint32 // ringState.claimed when that begins
	on     bool   // the operation under way has such a kernel
}

// canStay reports whether this rank's rings may have such a kernel.
func canStay(e *engine) bool {
	return e.cfg.Env.ZeroCTAs() && e.dev.info.CanStreamMemOps && os.Getenv("CUDA_LAUNCH_BLOCKING") != "1"
}

// prepare creates what such kernels need, and clears the rank's state, behind the token.
func (k *residents) prepare(token driver.Ptr) (err error) {
	for _, s := range [...]*driver.Stream{&k.waits, &k.tells} {
		if *s, err = driver.NewStream(-1); err != nil {
			return err
		}
	}
	for _, ev := range [...]*driver.Event{&k.ready, &k.sent} {
		if *ev, err = driver.NewEvent(0); err != nil {
			return err
		}
	}
	return clearMemory(token+ringStateAt, ringState)
}

// open finds the states of all ranks, if all may have such kernels. buffers are their parts of copy
// buffers.
func (k *residents) open(buffers []driver.Ptr, offers []offer) {
	if slices.ContainsFunc(offers, func(o offer) bool { return o.CanStay == 0 }) {
		return
	}
	k.base = 1
	for r, o := range offers {
		k.states = append(k.states, buffers[r]-driver.Ptr(o.At)+driver.Ptr(tokenOf(partOf(o)))+ringStateAt)
	}
}

func (k *residents) close() {
	_, _ = k.waits.Destroy(), k.tells.Destroy()
	_, _ = k.ready.Destroy(), k.sent.Destroy()
	*k = residents{}
}

// stays reports whether one kernel does all rounds of a ring that is enqueued now.
func (k *copier) stays() (one bool, err error) {
	if k.states == nil {
		return false, nil
	}
	err = k.e.dev.bound(func() error {
		captured, err := k.e.stream.Capturing()
		one = !captured
		return err
	})
	return one, err
}

// stay launches the kernel of the collective that start has set up.
func (k *copier) stay() error {
	e, o, g := k.e, &k.op, k.ring
	k.now = k.base
	k.base += uint32(g.rounds()) + 1
	e.chosen = k.c
	kind, red := o.Type, o.Red
	if !o.Coll.Reduces() {
		kind, red = elem.Float32, elem.Sum
	}
	l := e.launch(copyRing, kind, red)
	*l.args = argsABI{sign: o.Sign}
	l.args.average(o, true, true)
	l.args.in[g.rank], l.args.out[g.rank] = uint64(k.at(input, &move{})), uint64(k.at(output, &move{}))
	g.fill(l.ring)
	l.ring.base, l.ring.after, l.ring.inSlots = k.now, k.base, uint64(k.peerBuffers[g.rank])
	l.ring.own = uint64(k.states[g.rank])
	g.neighbours(l.ring, func(rank int) uint64 { return uint64(k.states[rank]) })
	blocks := min(k.blocks(g.chunk), residentBlocks, max(1, e.chooser.blocks-1))
	if most := e.cfg.Env.MaxChannels; most > 0 {
		blocks = min(blocks, max(1, most-1))
	}
	k.slots = min(e.chooser.copyBytes/g.chunk, mostRingSlots)
	piece := min(max(g.chunk/(2*blocks)+ringRow-1, 32*ringRow)/ringRow*ringRow, mostRingPiece)
	pieces := (g.chunk + piece - 1) / piece
	l.ring.slots, l.ring.piece, l.ring.pieces, l.ring.claim = uint32(k.slots), uint32(piece), uint32(pieces), k.claim
	k.claim += uint32((g.end-g.first)*pieces)<<l.ring.keeps + uint32(blocks)
	return e.run(e.set(l, choice{copyRing, blocks + 1, exchangeThreads, 0}))
}

// release enqueues the copy of a round.
func (k *copier) release(round int) error {
	c := k.passed(round)
	if c.n == 0 {
		return nil
	}
	number := k.now + uint32(round) + 1
	if err := k.waits.WaitValue32(k.states[k.ring.rank]+ringGo, number); err != nil {
		return err
	}
	if err := follow(k.waits, k.ready, k.stream); err != nil {
		return err
	}
	if err := driver.CopyAsync(c.to, c.from, c.n, k.stream); err != nil {
		return err
	}
	if err := follow(k.stream, k.sent, k.tells); err != nil {
		return err
	}
	return k.tells.WriteValue32(k.states[k.ring.next]+ringArrived, number)
}

// follow makes one stream wait for another.
func follow(before driver.Stream, ev driver.Event, after driver.Stream) error {
	if err := ev.Record(before); err != nil {
		return err
	}
	return after.WaitEvent(ev)
}
