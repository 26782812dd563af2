//go:build cuda && cgo

package cuda

import (
	"context"
	"time"

	"github.com/assay-hpc/assay/coll/cuda/kernels"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// Copy engines reach the full rate of the links, which kernels' stores do not, and leave the
// multiprocessors free. An operation is cut into chunks and runs in rounds. In each round a
// rank copies a chunk, on a separate stream, into a slot of another rank's copy buffer. Then,
// on the operation's stream, a barrier of the ranks that copy to one another confirms that the
// round's copies have arrived, and a kernel reduces the received data or moves it to its
// place. Copies run ahead of that by as many rounds as there are slots for.
//
// The barrier is an exchange_ll of 8 bytes, which needs nothing from the host, so everything
// can be captured in a graph.
//
// Collectives that can pass data on from rank to rank use rings, see copyring.go; if the settings
// ask for that, one kernel does all rounds of these, see ringblocks.go. In Sends and Recvs, Gather,
// Scatter and AllToAll a chunk is copied directly to its receiver. An AllToAll has a phase for each
// peer, so that each link has one sender. In Sends and Recvs the barrier is pairwise, between ranks
// with a message between them.
//
// A copier does one rank's operations with copy engines.
type copier struct {
	e           *engine
	part        int          // the rank's part of its device's copy buffers; -1: none
	peerBuffers []driver.Ptr // by rank; nil: not all ranks have one, and copies are not used
	stream      driver.Stream
	token       driver.Ptr // what barriers exchange
	move        *launch    // copies on this device
	pair        *launch    // reduces two buffers

	copied, met events
	residents

	// The operation under way.
	op       op.Op
	messages argsABI // of Sends and Recvs: addresses and lengths
	c        choice
	plan     ring
	ring     *ring // plan; nil: direct copies
	slots    int   // of a ring
	first    int   // first round
	round    int   // next round
	end      int   // round after the last one
}

// events holds an event for each of the last copyDepth rounds.
type events [copyDepth]driver.Event

// takes reports whether copy engines can do a collective. They cannot if the input must be
// scaled before it is sent, or if a ring would round at each rank. Where multiprocessors are to
// be left to others, they do only what one kernel can do.
func (k *copier) takes(o *op.Op) bool {
	if k.peerBuffers == nil || o.Scaled && !o.Average {
		return false
	}
	if k.e.cfg.Env.FewCTAs() && k.e.chooser.force.kernel != copies {
		if one, err := k.stays(); !one || err != nil {
			return false
		}
	}
	return k.e.cfg.Size == 2 || !o.Coll.Reduces() || !kernels.Rounds(o.Type, o.Red)
}

// open reserves a part of a copy buffer, opens the other ranks' parts and creates everything
// else that copies need. All ranks call it. If it fails on any rank, copies are not used.
func (k *copier) open(ctx context.Context) error {
	e := k.e
	buffers, offers, why, err := share(ctx, e.cfg, "", func() (o offer, err error) {
		k.part, o, err = e.dev.arena.takeCopyPart(func(n int) (*loan, error) { return e.dev.newLoan(e.cfg, e.windows.kind, n) })
		if err != nil {
			k.part = -1
			return o, err
		}
		k.token = e.dev.arena.token(k.part)
		if err = k.prepare(); err == nil && canStay(e) {
			o.CanStay = 1
			err = k.residents.prepare(k.token)
		}
		return o, err
	}, func(r int, o offer) (driver.Ptr, error) { return openOne(ctx, e.dev, e.all, r, o) })
	if err != nil || why != "" {
		k.close()
		if k.part >= 0 {
			e.dev.arena.giveCopyPart(k.part, nil, false)
			k.part = -1
		}
		if err == nil {
			e.cfg.Log.Infof(debug.Init, "rank %d: no copy engines for large messages: %s", e.cfg.Rank, why)
		}
		return err
	}
	k.peerBuffers = buffers
	k.residents.open(buffers, offers)
	for _, o := range offers {
		e.chooser.copyBytes = min(e.chooser.copyBytes, int(o.Bytes))
	}
	return nil
}

// prepare creates everything that a copier has in addition to its copy buffer.
func (k *copier) prepare() (err error) {
	if k.stream, err = driver.NewStream(-1); err != nil {
		return err
	}
	for _, all := range [...]*events{&k.copied, &k.met} {
		for i := range all {
			if all[i], err = driver.NewEvent(0); err != nil {
				return err
			}
		}
	}
	return nil
}

// launches prepares the kernels that move and reduce what has come, once the communicator is known.
func (k *copier) launches() {
	one, two := k.e.comm, k.e.comm
	one.ranks, two.ranks = 1, 2 // of what they combine
	k.move, k.pair = newLaunch(one, combine, false), newLaunch(two, combine, false)
	k.move.l.SetFunc(k.e.funcs.of(combine, elem.Float32, elem.Sum))
}

// peer returns the i-th of the other ranks. For each i, all ranks have different peers.
func (k *copier) peer(i int) int { return (k.e.cfg.Rank + i) % k.e.cfg.Size }

// start begins a collective.
func (k *copier) start(o *op.Op, c choice) error {
	k.op = *o
	k.op.Transfers = nil
	n := o.Bytes()
	c.chunk = min(c.chunk, k.e.chooser.copyChunk(o.Coll))
	if ringed(o.Coll) {
		k.plan = newRing(o, k.e.cfg.Rank, k.e.cfg.Size, c.chunk)
		k.ring = &k.plan
		c.chunk = k.ring.chunk
		if one, err := k.stays(); err != nil {
			return err
		} else if one {
			k.on, k.c, k.round, k.end = true, c, k.ring.first, k.ring.end
			return k.stay()
		}
		k.on, k.slots = false, ringSlots
		return k.begin(c, k.ring.first, k.ring.end)
	}
	k.on = false
	k.ring = nil
	rounds := chunks(n, c.chunk, k.tail())
	if o.Coll == op.AllToAll {
		rounds *= k.e.cfg.Size - 1
	}
	return k.begin(c, 0, rounds)
}

// phase returns the peer of a round of an AllToAll among a power of two of ranks, to which this
// rank sends and from which it receives, and which chunk of their messages.
func (k *copier) phase(round int) (peer, chunk int) {
	each := chunks(k.op.Bytes(), k.c.chunk, k.tail())
	return k.e.cfg.Rank ^ (1 + round/each), round % each
}

// startPairs begins Sends and Recvs with the addresses and lengths in args.
func (k *copier) startPairs(args *argsABI, c choice) error {
	k.on = false
	k.op, k.messages, k.ring = op.Op{Coll: op.SendRecv, Root: op.NoPeer, Sign: args.sign}, *args, nil
	longest := 0
	for p := range k.e.cfg.Size {
		longest = max(longest, int(args.send[p]), int(args.recv[p]))
	}
	c.chunk = min(c.chunk, k.e.chooser.copyChunk(op.SendRecv))
	return k.begin(c, 0, chunks(longest, c.chunk, k.tail()))
}

// begin enqueues the first barrier of the operation that start or startPairs has set up.
func (k *copier) begin(c choice, first, end int) error {
	e := k.e
	e.chosen = c
	k.c, k.first, k.round, k.end = c, first, first, end
	// After this barrier all ranks have emptied their copy buffers, and the input is ready.
	return e.dev.in(func() error {
		if err := k.barrier(begins); err != nil {
			return err
		}
		return k.mark(&k.met, first-1, e.stream)
	})
}

// begins stands for the round of an operation's first barrier.
const begins = -1

// next enqueues the next round. It returns false if all rounds are enqueued.
func (k *copier) next() (bool, error) {
	if k.round == k.end {
		return false, nil
	}
	enqueue := k.enqueue
	if k.on {
		enqueue = k.release
	}
	err := k.e.dev.in(func() error { return enqueue(k.round) })
	k.round++
	return true, err
}

// all enqueues all rounds of a collective.
func (k *copier) all(o *op.Op, c choice) error {
	if err := k.start(o, c); err != nil {
		return err
	}
	for {
		if more, err := k.next(); !more || err != nil {
			return err
		}
	}
}

// enqueue enqueues a round with kernels of its own.
func (k *copier) enqueue(r int) error {
	main := k.e.stream
	used, err := k.copy(r)
	if err != nil {
		return err
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
	if k.ring != nil {
		return k.pass(r)
	}
	return k.consume(r)
}

// mark records and await waits for the event of a round. The round before the first one stands
// for the operation's first barrier.
func (k *copier) mark(all *events, round int, s driver.Stream) error {
	return all[(round+copyDepth)%copyDepth].Record(s)
}

func (k *copier) await(all *events, round int, s driver.Stream) error {
	return s.WaitEvent(all[(round+copyDepth)%copyDepth])
}

// barrier enqueues a barrier on the stream for all ranks that exchange data with this rank in
// a round.
func (k *copier) barrier(round int) error {
	e := k.e
	l := e.launch(exchangeLL, 0, 0)
	c := choice{exchangeLL, 1, 32, 0}
	o := op.Op{Coll: op.AllGather, Send: op.Memory(uintptr(k.token), 8), Recv: op.Memory(uintptr(k.token)+8, 8*k.e.cfg.Size), Count: 8, Type: elem.Uint8, Root: op.NoPeer, Sign: k.op.Sign}
	a := l.args
	fill(a, e.cfg.Rank, e.cfg.Size, &o, c)
	if k.ring != nil || k.op.Coll == op.SendRecv {
		a.symmetric = 0
		for p := range e.cfg.Size {
			if !k.meets(p, round) {
				a.send[p], a.recv[p] = 0, 0
			}
		}
	}
	a.owners = 1 << e.cfg.Rank
	if k.ring != nil && k.ring.prev != op.NoPeer { // the next rank gets what this one had from the previous one
		a.owners |= 1 << k.ring.prev
	}
	e.set(l, c)
	// The previous work on the stream may not be a kernel, and must have ended.
	l.l.SetDependent(false)
	return e.run(l.l)
}

// meets reports whether this rank and another one exchange data in a round.
func (k *copier) meets(rank, round int) bool {
	if k.ring != nil {
		return k.ring.meets(rank, round) || round == begins && (rank == k.ring.next || rank == k.ring.prev)
	}
	return chunks(int(max(k.messages.send[rank], k.messages.recv[rank])), k.c.chunk, k.tail()) > max(round, 0)
}

// copy enqueues a round's copies to other ranks, if there are any. They wait until their slots
// are empty, which the barrier of copyDepth-1 rounds before guarantees.
func (k *copier) copy(round int) (used bool, err error) {
	for i := 1; i < k.e.cfg.Size; i++ {
		var c stretch
		if k.ring == nil {
			c = k.goes(k.peer(i), round)
		} else if i == 1 {
			c = k.passed(round)
		}
		if c.n == 0 {
			continue
		}
		if !used {
			if err := k.await(&k.met, max(round-copyDepth+1, k.first-1), k.stream); err != nil {
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

// A stretch is a copy of n bytes into a slot.
type stretch struct {
	from, to driver.Ptr
	n        int
}

// slot returns the address of the slot, in the copy buffer of one rank, for the data from
// another.
func (k *copier) slot(round, of, from int) driver.Ptr {
	if from > of { // a rank has no slot for itself
		from--
	}
	at := round%copyDepth*(k.e.cfg.Size-1) + from
	if k.op.Coll == op.AllToAll { // data from one rank in a round
		at = round % copyDepth
	}
	return k.peerBuffers[of] + driver.Ptr(at*k.c.chunk)
}

// tail returns how many parts the last chunk is cut into, one for each round. While the last
// part is moved to its place nothing is in flight, so it should be short. With more than two
// ranks short copies would bring the ranks out of step.
func (k *copier) tail() int {
	if k.e.cfg.Size == 2 {
		return 4
	}
	return 1
}

// goes returns the direct copy to a peer in a round.
func (k *copier) goes(peer, round int) stretch {
	src, length := k.source(peer)
	chunk := round
	if k.op.Coll == op.AllToAll {
		var partner int
		if partner, chunk = k.phase(round); partner != peer {
			return stretch{}
		}
	}
	at, n := chunkOf(length, k.c.chunk, k.tail(), chunk)
	return stretch{src + driver.Ptr(at), k.slot(round, peer, k.e.cfg.Rank), n}
}

// source returns the address and length of the data for a peer.
func (k *copier) source(peer int) (src driver.Ptr, length int) {
	me, o := k.e.cfg.Rank, &k.op
	send, n := driver.Ptr(op.Addr(o.Send)), o.Bytes()
	switch o.Coll {
	case op.SendRecv:
		return driver.Ptr(k.messages.in[peer]), int(k.messages.send[peer])
	case op.AllToAll:
		return send + driver.Ptr(peer*n), n
	case op.Scatter:
		if me == o.Root {
			return send + driver.Ptr(peer*n), n
		}
	case op.Gather:
		if peer == o.Root {
			return send, n
		}
	}
	return 0, 0
}

// consume empties the slots of a round.
func (k *copier) consume(round int) error {
	o := &k.op
	me, size, n := k.e.cfg.Rank, k.e.cfg.Size, o.Bytes()
	send, recv := driver.Ptr(op.Addr(o.Send)), driver.Ptr(op.Addr(o.Recv))
	switch o.Coll {
	case op.SendRecv:
		for p := range size {
			if p == me {
				continue
			}
			if err := k.take(driver.Ptr(k.messages.out[p]), k.slot(round, me, p), int(k.messages.recv[p]), round, 1<<p); err != nil {
				return err
			}
		}
	case op.AllToAll:
		peer, chunk := k.phase(round)
		if round == chunk { // the own part beside the first phase
			if err := k.arrive(recv+driver.Ptr(me*n), send+driver.Ptr(me*n), me, chunk); err != nil {
				return err
			}
		}
		return k.take(recv+driver.Ptr(peer*n), k.slot(round, me, peer), n, chunk, 1<<peer)
	case op.Gather:
		if me != o.Root {
			return nil
		}
		for p := range size {
			if err := k.arrive(recv+driver.Ptr(p*n), send, p, round); err != nil {
				return err
			}
		}
	case op.Scatter:
		if me == o.Root {
			send += driver.Ptr(me * n)
		}
		return k.arrive(recv, send, o.Root, round)
	}
	return nil
}

// arrive moves the data from a rank, or this rank's own input, to its place.
func (k *copier) arrive(to, own driver.Ptr, from, round int) error {
	n := k.op.Bytes()
	if from != k.e.cfg.Rank {
		return k.take(to, k.slot(round, k.e.cfg.Rank, from), n, round, 1<<from)
	}
	at, _ := chunkOf(n, k.c.chunk, k.tail(), round)
	return k.take(to, own+driver.Ptr(at), n, round, 0)
}

// take moves a round's chunk to its place in the buffer of length bytes at to.
func (k *copier) take(to, from driver.Ptr, length, round int, owners uint32) error {
	at, n := chunkOf(length, k.c.chunk, k.tail(), round)
	return k.moveTo(to+driver.Ptr(at), from, n, owners)
}

// moveTo copies on this device. owners are the ranks, as bits, that copy to where the data are.
func (k *copier) moveTo(to, from driver.Ptr, n int, owners uint32) error {
	if n == 0 || to == from {
		return nil
	}
	*k.move.args = argsABI{}
	a := k.move.args
	a.in[0], a.out[k.e.cfg.Rank], a.recv[k.e.cfg.Rank], a.owners = uint64(from), uint64(to), uint64(n), owners
	return k.e.run(k.e.set(k.move, choice{combine, k.blocks(n), exchangeThreads, 0}))
}

// passed returns the copy to the next rank of the ring in a round.
func (k *copier) passed(round int) stretch {
	m := k.ring.sends(round)
	if m.n == 0 {
		return stretch{}
	}
	from := k.at(m.where, &m)
	if m.where == inSlot {
		from = k.ringSlot(round-k.ring.lag, k.e.cfg.Rank)
	}
	return stretch{from, k.ringSlot(round, k.ring.next), m.n}
}

// pass moves the data in a round's ring slot to its place, or reduces it there. It also copies
// the rank's own part where needed.
func (k *copier) pass(round int) error {
	if m := k.ring.keeps(round); m.n > 0 {
		if err := k.moveTo(k.at(output, &m), k.at(input, &m), m.n, 0); err != nil {
			return err
		}
	}
	m := k.ring.gets(round)
	if m.n == 0 {
		return nil
	}
	slot := k.ringSlot(round, k.e.cfg.Rank)
	to := slot
	if m.where == output {
		to = k.at(output, &m)
	}
	if !m.reduce {
		return k.moveTo(to, slot, m.n, 1<<k.ring.prev)
	}
	return k.reduce(to, slot, k.at(input, &m), &m)
}

// ringSlot returns the address of the slot, in the copy buffer of a rank, for the data of a
// round.
func (k *copier) ringSlot(round, of int) driver.Ptr {
	return k.peerBuffers[of] + driver.Ptr(round%k.slots*k.c.chunk)
}

// at returns the address of a chunk in the input or the output.
func (k *copier) at(where copyPlace, m *move) driver.Ptr {
	base := driver.Ptr(op.Addr(k.op.Recv))
	if where == input {
		base = driver.Ptr(op.Addr(k.op.Send))
	}
	return base + driver.Ptr(k.ring.offset(where, m))
}

// reduce combines received data with the rank's own input.
func (k *copier) reduce(to, slot, own driver.Ptr, m *move) error {
	o, l := &k.op, k.pair
	l.l.SetFunc(k.e.funcs.of(combine, o.Type, o.Red))
	a := l.args
	*a = argsABI{}
	a.average(o, m.raw, m.last)
	a.in[0], a.in[1], a.out[k.e.cfg.Rank], a.recv[k.e.cfg.Rank] = uint64(slot), uint64(own), uint64(to), uint64(m.n)
	a.owners = 1 << k.ring.prev
	return k.e.run(k.e.set(l, choice{combine, k.blocks(m.n), exchangeThreads, 0}))
}

// average makes a kernel average what it reduces: each input is multiplied before it is added, or the last sum
// is divided.
func (a *argsABI) average(o *op.Op, raw, last bool) {
	switch {
	case o.Scaled:
		if a.scale, a.factor = scaleFactor, o.Factor; !raw {
			a.targets = 1 // the first input is a sum
		}
	case o.Divisor > 0 && last:
		a.scale, a.divisor = scaleDivide, uint32(o.Divisor)
	}
}

// blocks returns how many blocks a kernel for n bytes has.
func (k *copier) blocks(n int) int { return min(k.c.channels, max(1, n/(16*exchangeThreads))) }

// close frees everything except the copier's part of a copy buffer.
// drain waits until the copies have ended of which a kernel that gave up has let go: no operation's stream
// waits for them, and they still write to other ranks' memory. It reports whether they did within drainTime.
func (k *copier) drain() bool {
	until := time.Now().Add(drainTime)
	return idle(k.waits, until) && idle(k.stream, until) && idle(k.tells, until)
}

func (k *copier) close() {
	for _, all := range [...]*events{&k.copied, &k.met} {
		for _, ev := range all {
			_ = ev.Destroy()
		}
		*all = events{}
	}
	_ = k.stream.Destroy()
	if k.move != nil {
		k.move.l.Close()
		k.pair.l.Close()
	}
	k.residents.close()
	k.stream, k.move, k.pair = 0, nil, nil
}
