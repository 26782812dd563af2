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
// copies bring what goes to the others into a slot of their rooms, on a stream of
// their own; then, on the operation's stream, a barrier of all ranks tells that
// everybody's copies of the chunk are there, and kernels reduce what came, or
// move it to where it belongs. Copies run ahead of that by as many chunks as
// there are slots.
//
// All ranks copy to the next one, then to the one after it, and so on: a copy
// has its receiver's links for itself as long as the ranks keep in step, and
// gets out of step ever faster once two meet at one receiver, while another has
// none. The barriers bring them together again; long chunks keep them so. Four
// H200s carry 370 GB/s with chunks of 64 MB, 215 with 16 MB, or with a stream
// for each peer.
//
// The barrier is an exchange_ll of 8 bytes, which needs nothing from the host:
// so all this can be captured in a graph.
//
// An AllReduce has a second half: what a rank has reduced is copied to the
// others resultLag chunks later.
const resultLag = 2 // chunks; less than copyDepth

// Sends and Recvs are done in the same way, but that the barrier is one of the
// ranks that have a message between them, by twos, and so are their rooms
// opened.
//
// A copier does operations of one rank by copy engines.
type copier struct {
	e        *engine
	room     windows // at has those that are open; own is made with the first
	mine     offer
	opened   uint32 // bits: ranks whose rooms are open, and this one's to them
	shut     uint32 // bits: ranks with which there is no such pair
	together bool   // all ranks have opened all rooms
	refused  bool   // a rank cannot have one
	stream   driver.Stream
	token    driver.Ptr // what barriers exchange
	move     *launch    // copies on this device

	copied, met, consumed ring

	// The operation under way.
	op     coll.DeviceOp
	pairs  argsABI // of Sends and Recvs: addresses and lengths
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

// takes reports whether copies can do a collective now.
func (k *copier) takes(op *coll.DeviceOp) bool { return k.together && !scaledFirst(op) }

// scaledFirst reports whether the input is multiplied before it is sent.
func scaledFirst(op *coll.DeviceOp) bool { return op.Scaled && !op.Average }

// lacks reports whether a collective is one for copies, and there are no rooms
// yet. It is the same on all ranks, which then make offers to one another.
func (k *copier) lacks(op *coll.DeviceOp) bool {
	e := k.e
	return !k.together && !k.refused && e.copying && op.Coll != schedule.SendRecv && e.cfg.Size > 1 &&
		!scaledFirst(op) && e.chooser.choose(op.Coll, bytesOf(op)).kernel == copies
}

// swap is what a rank does before Sends and Recvs with those peers with which
// some are for copies, and rooms are not open yet. Both ends of a message know
// alike.
func (k *copier) swap(op *coll.DeviceOp) (s coll.Swap) {
	e := k.e
	if op.Coll != schedule.SendRecv || !e.copying {
		return s
	}
	known := k.opened | k.shut | 1<<e.cfg.Rank
	for i := range op.Transfers {
		t := &op.Transfers[i]
		if known>>t.Peer&1 == 0 && e.chooser.choose(schedule.SendRecv, t.Bytes).kernel == copies {
			known |= 1 << t.Peer
			s.Peers, s.Recv = append(s.Peers, t.Peer), append(s.Recv, make([]byte, offerBytes))
		}
	}
	if len(s.Peers) > 0 {
		s.Side, s.Send = e.cfg.Host, k.offer()
	}
	return s
}

// What an offer says beside yes (1) and no (0): while its stream is captured a
// rank cannot allocate.
const later = 2

// offerBytes is how long an offer is on the way.
var offerBytes = binary.Size(offer{})

// offer makes this rank's room, and all else that the copier needs, and gives
// what others are to have of it.
func (k *copier) offer() []byte {
	e := k.e
	err := e.dev.in(func() error {
		if k.room.own != 0 {
			return nil
		}
		captured, err := e.stream.Capturing()
		if captured || err != nil {
			k.mine = offer{OK: later}
			return err
		}
		if k.mine, err = k.room.offer(e.cfg, e.dev, copyRoom*(e.cfg.Size-1)); err != nil {
			return err
		}
		k.mine.OK = 1
		k.room.at = make([]driver.Ptr, e.cfg.Size)
		k.room.at[e.cfg.Rank] = k.room.own
		return k.prepare()
	})
	if err != nil {
		e.cfg.Log.Infof(debug.Init, "rank %d: no copy engines for large messages: %v", e.cfg.Rank, err)
		k.mine = offer{}
	}
	b, err := binary.Append(nil, binary.LittleEndian, k.mine)
	if err != nil {
		panic(err) // it has a fixed size
	}
	return b
}

// prepare makes what a copier has beside its room.
func (k *copier) prepare() (err error) {
	if k.move != nil {
		return nil
	}
	e := k.e
	if k.stream, err = driver.NewStream(-1); err != nil {
		return err
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

func (k *copier) rings() [3]*ring { return [...]*ring{&k.copied, &k.met, &k.consumed} }

// peer is the i-th of the other ranks. No two ranks have the same one.
func (k *copier) peer(i int) int { return (k.e.cfg.Rank + i) % k.e.cfg.Size }

// acceptAll opens the rooms of all ranks, if all have one. offers are by rank.
func (k *copier) acceptAll(offers []byte) error {
	e := k.e
	all := make([]offer, e.cfg.Size)
	yes := true
	for r := range all {
		if _, err := binary.Decode(offers[r*offerBytes:][:offerBytes], binary.LittleEndian, &all[r]); err != nil {
			return err
		}
		yes = yes && all[r].OK == 1
		k.refused = k.refused || all[r].OK == 0
	}
	return e.dev.in(func() error {
		if !yes {
			if k.opened == 0 {
				return k.room.giveUp(nil)
			}
			return nil
		}
		for r := range all {
			if err := k.open(r, all[r]); err != nil {
				return err
			}
		}
		k.together = true
		return nil
	})
}

// acceptSwap opens the rooms of peers, where both have one.
func (k *copier) acceptSwap(s coll.Swap) error {
	for i, p := range s.Peers {
		var o offer
		if _, err := binary.Decode(s.Recv[i], binary.LittleEndian, &o); err != nil {
			return err
		}
		switch {
		case o.OK == 1 && k.mine.OK == 1:
			if err := k.e.dev.in(func() error { return k.open(p, o) }); err != nil {
				return err
			}
		case o.OK == 0 || k.mine.OK == 0:
			k.shut |= 1 << p
		}
	}
	return nil
}

// open opens the room of a rank.
func (k *copier) open(rank int, o offer) error {
	if rank == k.e.cfg.Rank || k.opened>>rank&1 == 1 {
		return nil
	}
	if err := k.room.openOne(k.e.dev, k.e.all, rank, o); err != nil {
		return err
	}
	k.opened |= 1 << rank
	return nil
}

// start begins a collective.
func (k *copier) start(op *coll.DeviceOp, c choice) error {
	k.op = *op
	k.op.Transfers = nil
	return k.begin(c, k.length(0))
}

// startPairs begins Sends and Recvs, of which args has addresses and lengths.
func (k *copier) startPairs(args *argsABI, c choice) error {
	k.op, k.pairs = coll.DeviceOp{Coll: schedule.SendRecv, Root: coll.NoPeer}, *args
	longest := 0
	for p := range k.e.cfg.Size {
		longest = max(longest, int(args.send[p]), int(args.recv[p]))
	}
	return k.begin(c, longest)
}

// begin begins what was described, of which nothing has more than so many bytes.
func (k *copier) begin(c choice, longest int) error {
	e := k.e
	c.chunk = min(c.chunk, copyChunk(k.op.Coll))
	e.chosen = c
	k.c, k.round, k.rounds = c, 0, chunks(longest, c.chunk, k.tail())
	if k.op.Coll == schedule.AllReduce {
		k.rounds += resultLag
	}
	// Behind this barrier all have emptied their rooms, and the input is there.
	return e.dev.in(func() error {
		if err := k.barrier(0); err != nil {
			return err
		}
		return k.mark(&k.met, -1, e.stream)
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

// all enqueues a collective.
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
	// The slots were emptied before the barrier that comes after their last
	// round's.
	used, err := k.copy(inputs, r, &k.met, max(r-copyDepth+1, -1))
	if err != nil {
		return err
	}
	if k.op.Coll == schedule.AllReduce && r >= resultLag {
		more, err := k.copy(results, r-resultLag, &k.consumed, r-resultLag)
		if err != nil {
			return err
		}
		used = used || more
	}
	if used {
		if err := k.mark(&k.copied, r, k.stream); err != nil {
			return err
		}
		if err := k.await(&k.copied, r, main); err != nil {
			return err
		}
	}
	if err := k.barrier(r); err != nil {
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

// mark and await are about an event of a round; round -1 is the barrier that
// an operation begins with.
func (k *copier) mark(r *ring, round int, s driver.Stream) error {
	return r[(round+copyDepth)%copyDepth].Record(s)
}

func (k *copier) await(r *ring, round int, s driver.Stream) error {
	return s.WaitEvent(r[(round+copyDepth)%copyDepth])
}

// barrier returns, on the stream, when all have come to it that have something
// to do in a round.
func (k *copier) barrier(round int) error {
	e := k.e
	l, err := e.launch(exchangeLL, 0, 0)
	if err != nil {
		return err
	}
	c := choice{exchangeLL, 1, 32, 0}
	op := coll.DeviceOp{Coll: schedule.AllGather, Send: uintptr(k.token), Recv: uintptr(k.token) + 8, Count: 8, Type: elem.Uint8, Root: coll.NoPeer}
	fill(l.args, e.cfg.Rank, e.cfg.Size, &op, c)
	if k.op.Coll == schedule.SendRecv {
		a := l.args
		a.symmetric = 0
		for p := range e.cfg.Size {
			if chunks(int(max(k.pairs.send[p], k.pairs.recv[p])), k.c.chunk, k.tail()) <= round {
				a.send[p], a.recv[p] = 0, 0
			}
		}
	}
	e.set(l, c)
	// What is ahead may be no kernel, and is to be over.
	l.l.SetDependent(false)
	err = e.run(l.l)
	l.l.SetDependent(true)
	return err
}

// slot is where, in the room of a rank, the bytes of another are.
func (k *copier) slot(part, round, of, from int) driver.Ptr {
	if from > of { // it has none of its own
		from--
	}
	at := (part*copyDepth+round%copyDepth)*(k.e.cfg.Size-1) + from
	return k.room.at[of] + driver.Ptr(at*k.c.chunk)
}

// length is of a rank's part of a collective, in bytes. Those of rank 0 are the
// longest.
func (k *copier) length(rank int) int {
	n := bytesOf(&k.op)
	if k.op.Coll != schedule.AllReduce {
		return n
	}
	per := part(n, k.e.cfg.Size)
	return min(max(n-rank*per, 0), per)
}

// tail is how many rounds the last chunk has: when it has come, nothing is on
// its way while it is reduced, or moved to its place. Among more than two ranks
// short copies would bring them out of step.
func (k *copier) tail() int {
	if k.e.cfg.Size == 2 {
		return 4
	}
	return 1
}

// chunks is how many rounds so many bytes take, of whose last chunk there are
// so many parts.
func chunks(length, chunk, tail int) int {
	if length == 0 {
		return 0
	}
	return (length+chunk-1)/chunk - 1 + tail
}

// chunkOf is where a round's chunk is of so many bytes.
func chunkOf(length, chunk, tail, round int) (at, n int) {
	whole := max(length-1, 0) / chunk // before the last one
	if round < whole {
		return round * chunk, chunk
	}
	last := length - whole*chunk
	per := part(last, tail)
	at = min((round-whole)*per, last)
	return whole*chunk + at, min(per, last-at)
}

// chunk is where a round's chunk is of a message of so many bytes.
func (k *copier) chunk(length, round int) (at, n int) {
	if k.op.Coll != schedule.AllReduce {
		return chunkOf(length, k.c.chunk, k.tail(), round)
	}
	at, n = chunkOf(k.length(0), k.c.chunk, k.tail(), round) // parts are cut alike
	return at, min(max(length-at, 0), n)
}

// copy copies to all peers what goes there of a round, if there is anything,
// behind an event.
func (k *copier) copy(slots, round int, behind *ring, at int) (used bool, err error) {
	for i := 1; i < k.e.cfg.Size; i++ {
		c := k.goes(slots, k.peer(i), round)
		if c.n == 0 {
			continue
		}
		if !used {
			if err := k.await(behind, at, k.stream); err != nil {
				return false, err
			}
		}
		used = true
		if err := driver.CopyAsync(c.to, c.from, c.n, k.stream); err != nil {
			return false, err
		}
	}
	return used, nil
}

// A stretch is n bytes that go to a slot.
type stretch struct {
	from, to driver.Ptr
	n        int
}

// goes is what goes to a peer in a round.
func (k *copier) goes(slots, peer, round int) stretch {
	src, length := k.source(slots, peer)
	at, n := k.chunk(length, round)
	return stretch{src + driver.Ptr(at), k.slot(slots, round, peer, k.e.cfg.Rank), n}
}

// source is what goes to a peer, and how long that is.
func (k *copier) source(slots, peer int) (src driver.Ptr, length int) {
	me, op := k.e.cfg.Rank, &k.op
	send, recv, n := driver.Ptr(op.Send), driver.Ptr(op.Recv), driver.Ptr(bytesOf(op))
	switch op.Coll {
	case schedule.SendRecv:
		return driver.Ptr(k.pairs.in[peer]), int(k.pairs.send[peer])
	case schedule.AllReduce:
		per := driver.Ptr(part(int(n), k.e.cfg.Size))
		if slots == results {
			return recv + driver.Ptr(me)*per, k.length(me)
		}
		return send + driver.Ptr(peer)*per, k.length(peer)
	case schedule.AllToAll, schedule.ReduceScatter:
		return send + driver.Ptr(peer)*n, int(n)
	case schedule.Scatter:
		if me == op.Root {
			return send + driver.Ptr(peer)*n, int(n)
		}
	case schedule.Broadcast:
		if me == op.Root {
			return send, int(n)
		}
	case schedule.Gather, schedule.Reduce:
		if peer == op.Root {
			return send, int(n)
		}
	case schedule.AllGather:
		return send, int(n)
	}
	return 0, 0
}

// consume empties the slots of a round.
func (k *copier) consume(round int) error {
	e, op := k.e, &k.op
	me, size := e.cfg.Rank, e.cfg.Size
	send, recv, n := driver.Ptr(op.Send), driver.Ptr(op.Recv), driver.Ptr(bytesOf(op))
	switch op.Coll {
	case schedule.SendRecv:
		for p := range size {
			if p == me {
				continue
			}
			if err := k.take(driver.Ptr(k.pairs.out[p]), k.slot(inputs, round, me, p), int(k.pairs.recv[p]), round); err != nil {
				return err
			}
		}
		return nil
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
			if err := k.take(recv+driver.Ptr(p)*per, k.slot(results, round-resultLag, me, p), k.length(p), round-resultLag); err != nil {
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
		return k.take(to, k.slot(inputs, round, me, from), k.length(from), round)
	}
	if to == own {
		return nil
	}
	at, _ := k.chunk(k.length(me), round)
	return k.take(to, own+driver.Ptr(at), k.length(me), round)
}

// take moves a round's chunk, of so many bytes at to, to its place in them.
func (k *copier) take(to, from driver.Ptr, length, round int) error {
	at, n := k.chunk(length, round)
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
	at, n := k.chunk(k.length(e.cfg.Rank), round)
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
		a.in[p] = uint64(own) + uint64(at)
		if p != e.cfg.Rank {
			a.in[p] = uint64(k.slot(inputs, round, e.cfg.Rank, p))
		}
	}
	a.out[e.cfg.Rank], a.recv[e.cfg.Rank] = uint64(to)+uint64(at), uint64(n)
	return e.run(e.set(l, choice{combine, k.blocks(n), exchangeThreads, 0}))
}

// blocks is how many a kernel for so many bytes has.
func (k *copier) blocks(n int) int { return min(k.c.channels, max(1, n/(16*exchangeThreads))) }

// close frees what the copier has, but for its room.
func (k *copier) close() {
	if k.move == nil {
		return
	}
	for _, ring := range k.rings() {
		for _, ev := range ring {
			_ = ev.Destroy()
		}
	}
	_ = k.stream.Destroy()
	_ = driver.Free(k.token)
	k.move.l.Close()
}
