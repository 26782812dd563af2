//go:build cuda && cgo

package cuda

import (
	"encoding/binary"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/schedule"
)

// Copy engines reach what the links carry, which kernels' stores do not, and
// leave the multiprocessors alone. An operation is cut into chunks. Of each,
// copies bring what goes to the others into a slot of their rooms, on a stream
// of their own; then, on the operation's stream, a barrier of all ranks tells
// that everybody's copies of the chunk are there, and kernels reduce what came,
// or move it to where it belongs. Copies run ahead of that by as many chunks
// as there are slots: a copy stream that runs dry loses a third of its speed.
//
// The barrier is an exchange_ll of 8 bytes, which needs nothing from the host:
// so all this can be captured in a graph.
//
// An AllReduce has a second half: what a rank has reduced is copied to the
// others resultLag chunks later.
const resultLag = 2 // chunks; less than copyDepth

// A copier does operations of one rank by copy engines.
type copier struct {
	e       *engine
	room    windows // empty until the first operation
	refused bool    // a rank cannot have one
	streams [2]driver.Stream
	token   driver.Ptr // what barriers exchange
	move    *launch    // copies on this device

	copied        [2]ring // by stream
	met, consumed ring

	// The operation under way.
	op     coll.DeviceOp
	c      choice
	rounds int // chunks, and what the results lag behind
	round  int
}

// A ring has an event of each of the last rounds.
type ring [copyDepth]driver.Event

// slots are the two parts of a room.
const (
	inputs = iota
	results
)

// takes says how copies are to do an operation, if they are.
func (k *copier) takes(op *coll.DeviceOp) (choice, bool) {
	if k.refused || k.room.own == 0 || op.Scaled && !op.Average {
		return choice{}, false
	}
	c := k.e.chooser.choose(op.Coll, bytesOf(op))
	return c, c.kernel.byCopies()
}

// lacks reports whether an operation is one for copies, and there are no rooms
// yet. It is the same on all ranks, which then make offers to one another.
func (k *copier) lacks(op *coll.DeviceOp) bool {
	return !k.refused && k.room.own == 0 && (!op.Scaled || op.Average) &&
		k.e.chooser.choose(op.Coll, bytesOf(op)).kernel.byCopies()
}

// What an offer says beside yes (1) and no (0): while its stream is captured a
// rank cannot allocate.
const later = 2

// offer makes this rank's room, and all else that the copier needs. It gives
// what accept is to have from all ranks, and room for that.
func (k *copier) offer() (mine, all []byte) {
	e := k.e
	var o offer
	err := e.dev.in(func() error {
		captured, err := e.stream.Capturing()
		if captured || err != nil {
			o.OK = later
			return err
		}
		if o, err = k.room.offer(e.cfg, e.dev, copyRoom); err != nil {
			return err
		}
		o.OK = 1
		return k.prepare()
	})
	if err != nil {
		e.cfg.Log.Infof(debug.Init, "rank %d: no copy engines for large messages: %v", e.cfg.Rank, err)
		o.OK = 0
	}
	mine, err = binary.Append(nil, binary.LittleEndian, o)
	if err != nil {
		panic(err) // it has a fixed size
	}
	return mine, make([]byte, len(mine)*e.cfg.Size)
}

// prepare makes what a copier has beside its room.
func (k *copier) prepare() (err error) {
	if k.move != nil {
		return nil
	}
	e := k.e
	for i := range k.streams {
		if k.streams[i], err = driver.NewStream(-1); err != nil {
			return err
		}
	}
	if k.token, err = driver.Malloc((e.cfg.Size + 1) * 8); err != nil {
		return err
	}
	for _, ring := range k.rings() {
		for i := range ring {
			if ring[i], err = driver.NewEvent(0); err != nil {
				return err
			}
		}
	}
	f, err := e.dev.function(combine, elem.Float32, elem.Sum)
	if err != nil {
		return err
	}
	l := driver.NewLaunch(f, int(unsafe.Sizeof(commABI{})), int(unsafe.Sizeof(argsABI{})))
	*(*commABI)(l.Param(0)) = commABI{ranks: 1}
	k.move = &launch{l, (*argsABI)(l.Param(1))}
	return nil
}

func (k *copier) rings() [4]*ring {
	return [...]*ring{&k.copied[0], &k.copied[1], &k.met, &k.consumed}
}

// accept opens the others' rooms, if all have one.
func (k *copier) accept(all []byte) error {
	e := k.e
	offers := make([]offer, e.cfg.Size)
	n := len(all) / len(offers)
	yes := true
	for r := range offers {
		if _, err := binary.Decode(all[r*n:][:n], binary.LittleEndian, &offers[r]); err != nil {
			return err
		}
		yes = yes && offers[r].OK == 1
		k.refused = k.refused || offers[r].OK == 0
	}
	return e.dev.in(func() error {
		if !yes {
			return k.room.giveUp(nil)
		}
		return k.room.open(e.cfg, e.dev, e.all, offers)
	})
}

// start begins an operation.
func (k *copier) start(op *coll.DeviceOp, c choice) error {
	e := k.e
	k.op, k.c, k.round = *op, c, 0
	k.op.Transfers = nil
	k.rounds = (k.length(0) + k.c.chunk - 1) / k.c.chunk
	if op.Coll == schedule.AllReduce {
		k.rounds += resultLag
	}
	if op.Coll == schedule.AllToAll && op.Send == op.Recv {
		in, err := e.aside(op)
		if err != nil {
			return err
		}
		k.op.Send = in
	}
	e.chosen = c
	// Behind this barrier all have emptied their rooms, and the input is there.
	return e.dev.in(func() error {
		if err := k.barrier(); err != nil {
			return err
		}
		return k.mark(&k.met, copyDepth-1, e.stream)
	})
}

// next enqueues another round; false: the operation is enqueued.
func (k *copier) next() (bool, error) {
	if k.round == k.rounds {
		return false, nil
	}
	err := k.e.dev.in(k.enqueue)
	k.round++
	return true, err
}

// all enqueues an operation.
func (k *copier) all(op *coll.DeviceOp, c choice) error {
	if err := k.start(op, c); err != nil {
		return err
	}
	for {
		if more, err := k.next(); !more || err != nil {
			return err
		}
	}
}

func (k *copier) enqueue() error {
	main, r := k.e.stream, k.round
	on := k.on(inputs, r)
	if err := k.begin(on, r); err != nil {
		return err
	}
	if err := k.send(inputs, r, k.streams[on]); err != nil {
		return err
	}
	used := 1 << on
	if k.op.Coll == schedule.AllReduce && r >= resultLag {
		on := k.on(results, r)
		if used>>on&1 == 0 {
			if err := k.begin(on, r); err != nil {
				return err
			}
		}
		used |= 1 << on
		if err := k.await(&k.consumed, r-resultLag, k.streams[on]); err != nil {
			return err
		}
		if err := k.send(results, r-resultLag, k.streams[on]); err != nil {
			return err
		}
	}
	for i := range k.streams {
		if used>>i&1 == 0 {
			continue
		}
		if err := k.mark(&k.copied[i], r, k.streams[i]); err != nil {
			return err
		}
		if err := k.await(&k.copied[i], r, main); err != nil {
			return err
		}
	}
	if err := k.barrier(); err != nil {
		return err
	}
	if err := k.mark(&k.met, r, main); err != nil {
		return err
	}
	if err := k.consume(r); err != nil {
		return err
	}
	return k.mark(&k.consumed, r, main)
}

// on is which stream has a round's copies: with two of them the next copy is
// made ready while the last one runs.
func (k *copier) on(slots, round int) int {
	if k.c.kernel == copies {
		return 0
	}
	return (round + slots) % len(k.streams)
}

// begin lets a stream's copies of a round wait until their slots are free:
// they were emptied before the barrier that comes after their last round's.
func (k *copier) begin(on, round int) error {
	return k.await(&k.met, max(round-copyDepth+1, -1), k.streams[on])
}

// mark and await are about an event of a round; round -1 is the barrier that
// an operation begins with.
func (k *copier) mark(r *ring, round int, s driver.Stream) error {
	return r[(round+copyDepth)%copyDepth].Record(s)
}

func (k *copier) await(r *ring, round int, s driver.Stream) error {
	return s.WaitEvent(r[(round+copyDepth)%copyDepth])
}

// barrier returns, on the stream, when all ranks have come to it.
func (k *copier) barrier() error {
	e := k.e
	l, err := e.launch(exchangeLL, 0, 0)
	if err != nil {
		return err
	}
	c := choice{exchangeLL, 1, 32, 0}
	op := coll.DeviceOp{Coll: schedule.AllGather, Send: uintptr(k.token), Recv: uintptr(k.token) + 8, Count: 8, Type: elem.Uint8, Root: coll.NoPeer}
	fill(l.args, e.cfg.Rank, e.cfg.Size, &op, c)
	e.set(l, c)
	// What is ahead may be no kernel, and is to be over.
	l.l.SetDependent(false)
	err = e.run(l.l)
	l.l.SetDependent(true)
	return err
}

// slot is where, in the room of a rank, the bytes of another are.
func (k *copier) slot(part, round, of, from int) driver.Ptr {
	n := k.e.cfg.Size
	return k.room.at[of] + driver.Ptr(((part*copyDepth+round%copyDepth)*n+from)*copyChunk(n))
}

// length is of a rank's part of the operation, in bytes. Those of rank 0 are
// the longest.
func (k *copier) length(rank int) int {
	n := bytesOf(&k.op)
	if k.op.Coll != schedule.AllReduce {
		return n
	}
	per := part(n, k.e.cfg.Size)
	return min(max(n-rank*per, 0), per)
}

// chunk is where a round's chunk of a part is in it.
func (k *copier) chunk(rank, round int) (at, n int) {
	at = round * k.c.chunk
	return at, min(max(k.length(rank)-at, 0), k.c.chunk)
}

// send copies a round's chunks to the others, in an order in which no two
// ranks copy to the same one.
func (k *copier) send(slots, round int, on driver.Stream) error {
	e := k.e
	for i := 1; i < e.cfg.Size; i++ {
		p := (e.cfg.Rank + i) % e.cfg.Size
		src, of := k.source(slots, p)
		at, n := k.chunk(of, round)
		if src == 0 || n == 0 {
			continue
		}
		if err := driver.CopyAsync(k.slot(slots, round, p, e.cfg.Rank), src+driver.Ptr(at), n, on); err != nil {
			return err
		}
	}
	return nil
}

// source is what goes to a peer, and whose part that is; 0: nothing.
func (k *copier) source(slots, peer int) (src driver.Ptr, of int) {
	me, op := k.e.cfg.Rank, &k.op
	send, recv, n := driver.Ptr(op.Send), driver.Ptr(op.Recv), driver.Ptr(bytesOf(op))
	switch op.Coll {
	case schedule.AllReduce:
		per := driver.Ptr(part(int(n), k.e.cfg.Size))
		if slots == results {
			return recv + driver.Ptr(me)*per, me
		}
		return send + driver.Ptr(peer)*per, peer
	case schedule.AllToAll, schedule.ReduceScatter:
		return send + driver.Ptr(peer)*n, peer
	case schedule.Scatter:
		if me == op.Root {
			return send + driver.Ptr(peer)*n, peer
		}
	case schedule.Broadcast:
		if me == op.Root {
			return send, peer
		}
	case schedule.Gather, schedule.Reduce:
		if peer == op.Root {
			return send, me
		}
	case schedule.AllGather:
		return send, me
	}
	return 0, 0
}

// consume empties the slots of a round.
func (k *copier) consume(round int) error {
	e, op := k.e, &k.op
	me, size := e.cfg.Rank, e.cfg.Size
	send, recv, n := driver.Ptr(op.Send), driver.Ptr(op.Recv), driver.Ptr(bytesOf(op))
	switch op.Coll {
	case schedule.AllReduce:
		per := driver.Ptr(part(int(n), size))
		own := driver.Ptr(me) * per
		if err := k.reduce(recv+own, send+own, round); err != nil {
			return err
		}
		if round < resultLag {
			return nil
		}
		for p := range size {
			if p == me {
				continue
			}
			if err := k.take(recv+driver.Ptr(p)*per, k.slot(results, round-resultLag, me, p), p, round-resultLag); err != nil {
				return err
			}
		}
		return nil
	case schedule.ReduceScatter:
		return k.reduce(recv, send+driver.Ptr(me)*n, round)
	case schedule.Reduce:
		if me != op.Root {
			return nil
		}
		return k.reduce(recv, send, round)
	case schedule.AllGather, schedule.AllToAll, schedule.Gather:
		if op.Coll == schedule.Gather && me != op.Root {
			return nil
		}
		if op.Coll == schedule.AllToAll {
			send += driver.Ptr(me) * n
		}
		for p := range size {
			if err := k.arrive(recv+driver.Ptr(p)*n, send, p, round); err != nil {
				return err
			}
		}
		return nil
	case schedule.Scatter, schedule.Broadcast:
		if me == op.Root && op.Coll == schedule.Scatter {
			send += driver.Ptr(me) * n
		}
		return k.arrive(recv, send, op.Root, round)
	}
	return nil
}

// arrive moves to its place what came from a rank, or the own input.
func (k *copier) arrive(to, own driver.Ptr, from, round int) error {
	me := k.e.cfg.Rank
	if from != me {
		return k.take(to, k.slot(inputs, round, me, from), from, round)
	}
	if to == own {
		return nil
	}
	at, _ := k.chunk(me, round)
	return k.take(to, own+driver.Ptr(at), me, round)
}

// take moves a round's chunk of a rank's part to its place in the part.
func (k *copier) take(to, from driver.Ptr, rank, round int) error {
	at, n := k.chunk(rank, round)
	if n == 0 {
		return nil
	}
	*k.move.args = argsABI{}
	a := k.move.args
	a.in[0], a.out[0], a.recv[0] = uint64(from), uint64(to)+uint64(at), uint64(n)
	return k.e.run(k.e.set(k.move, choice{combine, k.blocks(n), exchangeThreads, 0}))
}

// reduce reduces a round's chunk of this rank's part.
func (k *copier) reduce(to, own driver.Ptr, round int) error {
	e := k.e
	at, n := k.chunk(e.cfg.Rank, round)
	if n == 0 {
		return nil
	}
	l, err := e.launch(combine, k.op.Type, k.op.Op)
	if err != nil {
		return err
	}
	a := l.args
	*a = argsABI{}
	switch {
	case k.op.Scaled:
		a.scale, a.factor = scaleFactor, k.op.Factor
	case k.op.Divisor > 0:
		a.scale, a.divisor = scaleDivide, uint32(k.op.Divisor)
	}
	for p := range e.cfg.Size {
		a.in[p] = uint64(k.slot(inputs, round, e.cfg.Rank, p))
	}
	a.in[e.cfg.Rank] = uint64(own) + uint64(at)
	a.out[e.cfg.Rank], a.recv[e.cfg.Rank] = uint64(to)+uint64(at), uint64(n)
	return e.run(e.set(l, choice{combine, k.blocks(n), exchangeThreads, 0}))
}

// blocks is how many a kernel for so many bytes has.
func (k *copier) blocks(n int) int { return min(k.c.channels, max(1, n/(16*exchangeThreads))) }

// close frees what the copier has. barrier and drained are as for windows.
func (k *copier) close(barrier func() error, drained bool) {
	if k.room.own == 0 {
		return
	}
	k.room.close(barrier, drained)
	if !drained {
		return
	}
	for _, ring := range k.rings() {
		for _, ev := range ring {
			_ = ev.Destroy()
		}
	}
	for _, s := range k.streams {
		_ = s.Destroy()
	}
	_ = driver.Free(k.token)
	k.move.l.Close()
}
