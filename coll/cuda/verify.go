//go:build cuda && cgo

package cuda

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/flip"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// With ASSAY_CHECK some operations are verified, the same on all ranks. Kernels on the operation's stream
// do that, so it works in graphs too; nothing waits for the host.
//
// Where data are only moved, every rank computes a checksum of each part before it goes and of each that
// has come. Of a reduction every rank keeps a piece of its input; behind the operation the ranks exchange
// these pieces and each of them makes the piece of the result anew, in the order in which the operation
// did. The words that come of this are exchanged, and a kernel of each rank compares them. If some differ
// that must be equal, it writes all of them to the host's memory, where watch finds them; flip.Check says
// from them whose bits have flipped.
type verifier struct {
	e         *engine
	share     knob.Verify
	scratch   *loan
	found     *loan
	piece     int // bytes of a piece at most
	save, add *launch
	sums      *driver.Launch
	compare   *driver.Launch
	gpus      []string // by rank

	number uint64 // collectives so far
	steps  []verifyStep
	now    verified

	mu     sync.Mutex
	all    map[uint32]verified // by number, the last ones, and those in graphs
	order  []uint32            // of those that may be forgotten, the oldest first
	events []flip.Event        // the first ones
	wrong  int                 // findings
	checks atomic.Uint64
}

// A verified is an operation that is verified.
type verified struct {
	flip.Check
	number   uint32
	bytes    int
	captured bool
	op       op.Op
	way      choice
	at, n    int // the piece: offset in the vector, or in the owner's part of a ReduceScatter, and bytes
	part     int // of a ReduceScatter
	first    int // the rank that is added to
}

// A verifyStep prepares a launch.
type verifyStep func(*verifier) *driver.Launch

const (
	mostPiece     = 1 << 20
	mostPieces    = 8 << 20 // of all ranks
	remembersMost = 4096
	mostEvents    = 256
	wordsBytes    = 8 * flip.Slots
	allWordsBytes = wordsBytes * flip.MaxRanks
)

// openVerifier prepares verification, if it is asked for. All ranks call it.
func openVerifier(ctx context.Context, e *engine) (*verifier, error) {
	v := &verifier{e: e, share: e.cfg.Env.Verify, all: map[uint32]verified{}}
	if v.share.Some == 0 || e.cfg.Size == 1 {
		return nil, nil
	}
	v.piece = min(mostPiece, mostPieces/e.cfg.Size)
	bus, err := driver.Bus(e.cfg.Device)
	if err != nil {
		return nil, err
	}
	all, err := e.cfg.Host.Exchange(ctx, []byte(bus))
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		v.gpus = append(v.gpus, string(b))
	}
	n := wholePages(v.arrived() + 4)
	if v.scratch, err = e.dev.arena.take(onDevice, n, func(n int) (*loan, error) { return e.dev.newLoan(e.cfg, onDevice, n) }); err != nil {
		return nil, fmt.Errorf("memory for ASSAY_CHECK: %w", err)
	}
	if err = clearMemory(v.scratch.ptr+driver.Ptr(v.words()), v.arrived()+4-v.words()); err == nil {
		v.found, err = e.dev.arena.take(pinned, int(unsafe.Sizeof(findingsABI{})), newPinned)
	}
	if err != nil {
		e.dev.arena.give(v.scratch, nil, false)
		return nil, err
	}
	clear(v.found.bytes)
	one, several := e.comm, e.comm
	one.ranks = 1
	v.save, v.add = newLaunch(one, combine, false), newLaunch(several, combine, false)
	v.sums = driver.NewLaunch(e.funcs.of(checksum, 0, 0), int(unsafe.Sizeof(checkABI{})))
	v.compare = driver.NewLaunch(e.funcs.of(checkWords, 0, 0), int(unsafe.Sizeof(checkWordsABI{})))
	watch.add(e)
	return v, nil
}

// Where things are in scratch: the piece of this rank's input, those of all, the piece of the result that
// is made of them, this rank's words, those of all, and what the blocks of checksum have.
func (v *verifier) inputs() int  { return v.piece }
func (v *verifier) again() int   { return v.inputs() + v.piece*v.e.cfg.Size }
func (v *verifier) words() int   { return v.again() + v.piece }
func (v *verifier) table() int   { return v.words() + wordsBytes }
func (v *verifier) partial() int { return v.table() + allWordsBytes }
func (v *verifier) arrived() int { return v.partial() + 8*checkBlocks*checkSpans }

func (v *verifier) at(offset int) uint64 { return uint64(v.scratch.ptr) + uint64(offset) }

// close gives back what openVerifier took; nothing runs any more.
func (v *verifier) close() {
	if v == nil {
		return
	}
	v.report()
	for _, l := range []*driver.Launch{v.save.l, v.add.l, v.sums, v.compare} {
		l.Close()
	}
	v.e.dev.arena.give(v.scratch, nil, false)
	v.e.dev.arena.give(v.found, nil, false)
}

// due reports whether a collective is verified. It is called once for each.
func (v *verifier) due(o *op.Op) bool {
	if v == nil || o.Coll == op.SendRecv {
		return false
	}
	v.number++
	return v.share.Due(v.number) && o.Norm.Row == 0
}

// before prepares the steps before an operation that is due; after those behind it. Both have none if it
// cannot be verified.
func (v *verifier) before(o *op.Op) {
	v.steps = v.steps[:0]
	way := v.e.way(o)
	v.now = verified{number: uint32(v.number), op: *o, way: way, bytes: o.Bytes()}
	v.now.op.Transfers = nil
	v.now.Check = flip.Check{Coll: o.Coll, Ranks: v.e.cfg.Size, Root: o.Root, Owner: flip.Itself}
	// GPUs have no instruction for these: kernels may differ in which of two zeros they choose.
	v.now.Unordered = o.Type == elem.Float64 && (o.Red == elem.Max || o.Red == elem.Min)
	if way.kernel == nvidia || v.now.bytes == 0 {
		v.now.bytes = 0
		return
	}
	several := v.e.cfg.Size > 2
	path := kernelTable[way.kernel].path
	v.now.Passed = several && (path == alongChain || path == byRelay || way.kernel == copies && ringed(o.Coll))
	switch {
	case !o.Coll.Reduces():
		v.steps = append(v.steps, (*verifier).sumsOfInput)
	default:
		v.choosePiece()
		v.steps = append(v.steps, (*verifier).keepInput)
	}
}

func (v *verifier) after() {
	v.steps = v.steps[:0]
	if v.now.bytes == 0 {
		return
	}
	if v.now.Coll.Reduces() {
		v.steps = append(v.steps, (*verifier).gatherInputs, (*verifier).addAgain, (*verifier).sumsOfReduction)
	} else {
		v.steps = append(v.steps, (*verifier).sumsOfOutput)
	}
	v.steps = append(v.steps, (*verifier).exchangeWords, (*verifier).compareWords)
}

// next prepares the next step's launch; nil: there is none left.
func (v *verifier) next() *driver.Launch {
	if len(v.steps) == 0 {
		return nil
	}
	step := v.steps[0]
	v.steps = v.steps[1:]
	chosen := v.e.chosen
	l := step(v)
	v.e.chosen = chosen
	return l
}

// run does all steps.
func (v *verifier) run() error {
	for l := v.next(); l != nil; l = v.next() {
		if err := v.e.run(l); err != nil {
			return err
		}
	}
	return nil
}

// choosePiece chooses a piece of the result, the same on all ranks, within what one rank reduces.
func (v *verifier) choosePiece() {
	k := &v.now
	o, ranks, path := &k.op, k.Ranks, kernelTable[k.way.kernel].path
	h := v.number*0x9e3779b97f4a7c15 ^ v.number>>7
	draw := func(n int) int {
		h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
		return int(h >> 33 % uint64(max(1, n)))
	}
	start, length := 0, k.bytes
	owners := make([]int, 0, maxRanks)
	for r := range ranks {
		if o.Coll != op.Reduce || path != byParts || r != o.Root || ranks == 2 && r == o.Root {
			owners = append(owners, r)
		}
	}
	if o.Coll == op.Reduce && (path != byParts || ranks == 2) {
		owners = []int{o.Root}
	}
	switch {
	case o.Coll == op.ReduceScatter:
		k.part = draw(ranks)
		k.Owner = k.part
	case o.Coll == op.AllReduce && path == toOwners: // each rank reduces all
	default:
		per := partBytes(k.bytes, len(owners))
		part := draw((k.bytes + per - 1) / per)
		k.Owner = owners[part]
		start = part * per
		length = min(per, k.bytes-start)
	}
	k.n = min(length, v.piece)
	k.at = start + draw((length-k.n)/partAlign+1)*partAlign
	k.n = min(k.n, start+length-k.at)
	if k.way.kernel == copies || path == alongChain { // from rank to rank
		switch {
		case o.Coll == op.ReduceScatter:
			k.first = (k.part + 1) % ranks
		case o.Coll == op.Reduce:
			k.first = (o.Root + 1) % ranks
		default: // the segment's number is the first rank's, and the last one has the sum
			k.first, k.Owner = k.Owner, (k.Owner+ranks-1)%ranks
		}
	}
}

// set sets what all launches of these kernels have in common.
func (v *verifier) set(l *driver.Launch, blocks, threads int) *driver.Launch {
	e := v.e
	e.waiting, e.waitingBlocks, e.last = 1, blocks, checksum // it begins when all before it have ended
	l.SetDependent(false)
	l.SetGrid(blocks, 1, 1)
	l.SetBlock(threads, 1, 1)
	l.SetStream(e.stream)
	return l
}

// blocks is how many blocks a kernel for so many bytes has.
func (v *verifier) blocks(bytes, most int) int {
	return min(max(1, bytes/(64*exchangeThreads)), v.e.chooser.allowed(min(most, v.e.chooser.blocks)))
}

// checksums prepares the launch of checksum, for words from a slot on.
func (v *verifier) checksums(slot int, spans []checkSpan) *driver.Launch {
	k := (*checkABI)(v.sums.Param(0))
	*k = checkABI{words: v.at(v.words() + 8*slot), partial: v.at(v.partial()), arrived: v.at(v.arrived())}
	k.count = uint32(copy(k.spans[:], spans))
	longest := 0
	for _, s := range spans {
		longest = max(longest, int(s.bytes))
	}
	return v.set(v.sums, v.blocks(longest, checkBlocks), exchangeThreads)
}

// parts are the parts of a buffer.
func parts(b []byte, n int) (spans []checkSpan) {
	for at := 0; at < len(b); at += n {
		spans = append(spans, checkSpan{uint64(op.Addr(b)) + uint64(at), uint64(n)})
	}
	return spans
}

func (v *verifier) sumsOfInput() *driver.Launch {
	return v.checksums(0, parts(v.now.op.Send, v.now.bytes))
}

// sumsOfOutput computes the checksums of what has come, by sender.
func (v *verifier) sumsOfOutput() *driver.Launch {
	k := &v.now
	spans := parts(k.op.Recv, k.bytes)
	slot := flip.Came
	if k.Coll == op.Broadcast || k.Coll == op.Scatter {
		slot += k.Root
	}
	return v.checksums(slot, spans)
}

// keepInput keeps the piece of this rank's input, multiplied by its factor.
func (v *verifier) keepInput() *driver.Launch {
	k := &v.now
	from := uint64(op.Addr(k.op.Send)) + uint64(k.at)
	if k.Coll == op.ReduceScatter {
		from += uint64(k.part * k.bytes)
	}
	a := v.save.args
	*a = argsABI{}
	t, red := elem.Float32, elem.Sum
	if k.op.Scaled {
		t, red = k.op.Type, k.op.Red
		a.scaled(&k.op)
	}
	v.save.l.SetFunc(v.e.funcs.of(combine, t, red))
	a.in[0], a.out[v.e.cfg.Rank], a.recv[v.e.cfg.Rank] = from, v.at(0), uint64(k.n)
	return v.set(v.save.l, v.blocks(k.n, v.e.dev.info.SMs), exchangeThreads)
}

// gather prepares an AllGather of what is in scratch.
func (v *verifier) gather(from, to, bytes int) *driver.Launch {
	e := v.e
	o := op.Op{Coll: op.AllGather, Send: op.Memory(uintptr(v.at(from)), bytes), Recv: op.Memory(uintptr(v.at(to)), bytes*e.cfg.Size), Count: bytes, Type: elem.Uint8, Root: op.NoPeer, Sign: v.now.op.Sign}
	return e.prepare(&o, e.chooser.chooseWithout(withoutCopies|withoutNvidia, op.AllGather, bytes))
}

func (v *verifier) gatherInputs() *driver.Launch { return v.gather(0, v.inputs(), v.now.n) }

// addAgain makes the piece of the result.
func (v *verifier) addAgain() *driver.Launch {
	k := &v.now
	v.add.l.SetFunc(v.e.funcs.of(combine, k.op.Type, k.op.Red))
	a := v.add.args
	*a = argsABI{}
	if k.op.Divisor > 0 {
		a.scale, a.divisor = scaleDivide, uint32(k.op.Divisor)
	}
	for i := range k.Ranks {
		a.in[i] = v.at(v.inputs() + (k.first+i)%k.Ranks*k.n)
	}
	a.out[v.e.cfg.Rank], a.recv[v.e.cfg.Rank] = v.at(v.again()), uint64(k.n)
	return v.set(v.add.l, v.blocks(k.n, v.e.dev.info.SMs), exchangeThreads)
}

func (v *verifier) sumsOfReduction() *driver.Launch {
	k := &v.now
	var spans [checkSpans]checkSpan
	for r := range k.Ranks {
		spans[r] = checkSpan{v.at(v.inputs() + r*k.n), uint64(k.n)}
	}
	spans[flip.Given] = checkSpan{v.at(0), uint64(k.n)}
	spans[flip.Again] = checkSpan{v.at(v.again()), uint64(k.n)}
	if at := uint64(op.Addr(k.op.Recv)); at != 0 && len(k.op.Recv) >= k.at+k.n {
		spans[flip.Got] = checkSpan{at + uint64(k.at), uint64(k.n)}
		if k.Coll == op.AllReduce {
			spans[flip.Whole] = checkSpan{at, uint64(k.bytes)}
		}
	}
	return v.checksums(0, spans[:])
}

func (v *verifier) exchangeWords() *driver.Launch { return v.gather(v.words(), v.table(), wordsBytes) }

func (v *verifier) compareWords() *driver.Launch {
	k := (*checkWordsABI)(v.compare.Param(0))
	*k = checkWordsABI{words: v.at(v.table()), found: uint64(v.found.ptr), ranks: uint32(v.now.Ranks), number: v.now.number, classes: v.now.Classes()}
	v.remember()
	return v.set(v.compare, 1, 128)
}

// remember keeps what report needs.
func (v *verifier) remember() {
	_ = v.e.dev.bound(func() (err error) {
		v.now.captured, err = v.e.stream.Capturing()
		return err
	})
	v.checks.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all[v.now.number] = v.now
	if v.now.captured {
		return
	}
	if v.order = append(v.order, v.now.number); len(v.order) > remembersMost {
		delete(v.all, v.order[0])
		v.order = v.order[1:]
	}
}

// report looks for findings, and reports them. Those of a communicator that has failed come of what did
// not happen.
func (v *verifier) report() {
	if v == nil {
		return
	}
	f := (*findingsABI)(unsafe.Pointer(&v.found.bytes[0]))
	if atomic.LoadUint32(&f.taken) == 0 {
		return
	}
	w, number := flip.Words(f.words), f.number
	count := atomic.LoadUint32(&f.count)
	atomic.StoreUint32(&f.taken, 0)
	if v.e.stopped.Load() || v.gaveUp() || v.e.cfg.Host.Err() != nil {
		return
	}
	v.mu.Lock()
	k, ok := v.all[number]
	v.mu.Unlock()
	if !ok {
		return
	}
	suspects, what := k.Blame(&w)
	if v.wrong++; len(v.events) < mostEvents {
		v.events = append(v.events, flip.Of(suspects, v.gpu))
	}
	b := flip.BlameOf(v.events, k.Ranks)
	text := fmt.Sprintf("%v (operation %d, %d bytes) was verified and is wrong: %s: %v", k.Coll, number, k.bytes, what, b)
	if n := len(v.events); n > 1 {
		text += fmt.Sprintf(", as of %d of the %d findings so far", b.Explain, n)
	}
	text += fmt.Sprintf(" (%d wrong of %d verified); %s", count, v.checks.Load(), b.Remedy())
	if v.share.Fail {
		defer v.e.cfg.Host.Fail(&op.Error{Code: op.SystemError, Rank: v.e.cfg.Rank, Op: k.Coll.String(), Peer: op.NoPeer, Err: fmt.Errorf("ASSAY_CHECK: %s", text)})
	}
	if v.e.cfg.Rank != 0 || !due(v.wrong) { // all ranks find the same
		v.e.cfg.Log.Warnf("%s", text)
		return
	}
	var ranks []int
	for r := range k.Ranks {
		if slices.ContainsFunc(b.Suspects, func(d flip.Device) bool { return d.GPU == v.gpu(r) || d.From == v.gpu(r) }) {
			ranks = append(ranks, r)
		}
	}
	v.e.cfg.Host.Flipped(ranks, text)
}

// gaveUp reports whether a kernel has given up: what later ones read may be anything. A kernel writes its
// report before the next one begins. One that was only asked what it waits for goes on.
func (v *verifier) gaveUp() bool {
	for ch := range packetChannels + chunkChannels {
		if r, ok := v.e.report(ch); ok && r.who>>24 != stopTell {
			return true
		}
	}
	return false
}

// due reports whether a finding is worth a report, beside the log: the first, second, fourth …
func due(n int) bool { return n&(n-1) == 0 }

func (v *verifier) gpu(rank int) string {
	return fmt.Sprintf("GPU %s (rank %d)", strings.TrimSpace(v.gpus[rank]), rank)
}
