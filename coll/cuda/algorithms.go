package cuda

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"sync"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
)

// A choice is how an operation is done.
type choice struct {
	kernel   kernel
	channels int
	threads  int // per block
	chunk    int // bytes of a step (Simple, but exchangeDirect, which has none)
}

// String returns the choice in the syntax of ASSAY_GPU_ALGO.
func (c choice) String() string {
	if c.kernel == nvidia {
		return nvidia.String()
	}
	return fmt.Sprintf("%v:%d:%d:%d", c.kernel, c.channels, c.threads, c.chunk)
}

// exchangeThreads is the threads per block for all messages of Sends and Recvs: a kernel has
// messages of several sizes, and both ends must cut each message the same way.
const exchangeThreads = 512

// model holds the rules for GPUs without measurements, by whether windows are in host memory,
// and by ranks.
var model = sync.OnceValue(func() *[2][maxRanks + 1]choose.Rules[choice] {
	var m [2][maxRanks + 1]choose.Rules[choice]
	for hosted, gpu := range [...]string{choose.AnyGPU, choose.Hosted} {
		for ranks := range m[hosted] {
			var err error
			if m[hosted][ranks], err = choose.GPURules(nil, gpu, max(ranks, 2), choiceFor); err != nil {
				panic("cuda: " + err.Error())
			}
		}
	}
	return &m
})

// choiceFor parses a choice of a table.
func choiceFor(c op.Collective, s string) (choice, error) {
	k, err := parseChoice(s)
	if err == nil && !k.kernel.does(c) {
		err = fmt.Errorf("%v does no %v", k.kernel, c)
	}
	return k, err
}

// A chooser chooses how operations are done. All ranks make the same choice, because it
// depends only on what all ranks know.
type chooser struct {
	layout
	env       *choose.Env
	library   bool // NVIDIA's library can do operations
	blocks    int  // that fit on a device at the same time, on every device
	clusters  bool // blocks form clusters, on every device
	split     bool // stores of 128 bytes may arrive in parts: not all devices are connected by NVLink
	copyBytes int  // bytes that each rank has for copies
	measured  choose.Rules[choice]
	force     choice
}

// choose returns the choice for an operation. bytes is the length of the vector for AllReduce,
// Broadcast and Reduce, and of one rank's part for the others.
func (ch *chooser) choose(c op.Collective, bytes int) choice {
	return ch.chooseWithout(0, c, bytes)
}

// Bits of kernels that chooseWithout leaves out.
const (
	withoutCopies = 1 << copies
	withoutNvidia = 1 << nvidia
)

// chooseWithout is choose without some kernels, which are a set of bits.
func (ch *chooser) chooseWithout(kernels uint32, c op.Collective, bytes int) choice {
	can := func(k choice, strict bool) (choice, bool) {
		k = ch.shape(c, k, bytes)
		return k, k.kernel.does(c) && kernels>>k.kernel&1 == 0 && (!strict || ch.permitted(c, k.kernel, bytes)) && ch.fits(c, k, bytes)
	}
	if ch.force.kernel != noKernel {
		if got, ok := can(ch.force, false); ok {
			return got
		}
	}
	measured := ch.measured[c]
	for i := choose.At(measured, bytes); i >= 0; i-- {
		if got, ok := can(measured[i].C, true); ok {
			return got
		}
		if measured[i].C.kernel != copies { // without copy engines, long messages go as shorter ones do
			break
		}
	}
	hosted := 0
	if ch.hosted {
		hosted = 1
	}
	return choose.Pick(model()[hosted][ch.ranks][c], bytes, can)
}

// permitted reports whether the settings allow a kernel for a message of the given bytes.
func (ch *chooser) permitted(c op.Collective, k kernel, bytes int) bool {
	i := &kernelTable[k]
	if k == nvidia { // it follows the same settings itself
		return true
	}
	if k == copies && ch.env.FewCTAs() && !(ch.env.ZeroCTAs() && ringed(c)) { // every round waits for multiprocessors
		return false
	}
	if int64(bytes) < ch.env.LLThreshold && i.protocol != ll {
		return false
	}
	return ch.env.Proto.Allows(c, i.protocol.String()) && (c != op.AllReduce || ch.env.Algo.Allows(c, i.algorithm))
}

// shape is limit for a message of the given bytes.
func (ch *chooser) shape(of op.Collective, c choice, bytes int) choice {
	c = ch.limit(c)
	if int64(bytes) < ch.env.SingleRingThreshold {
		c.channels = 1
		return c
	}
	if s, ok := ch.short(of, c, bytes); ok {
		return s
	}
	return c
}

// evenSteps is how many steps of a channel are worth cutting evenly: of more, the last one matters little.
const evenSteps = 8

// even returns the bytes of a step that cut a message of the given bytes into as many steps for each
// channel as the choice's do, but all of one length, in whole rows. Where ranks pass data on, the longest
// step delays all behind it. Exchanges only push and take: of more than one step, it is faster to push
// whole ones first.
func (ch *chooser) even(of op.Collective, c choice, bytes int) int {
	k := &kernelTable[c.kernel]
	if k.results && of != op.ReduceScatter {
		bytes = partBytes(bytes, ch.ranks)
	}
	steps := (bytes + c.channels*c.chunk - 1) / (c.channels * c.chunk)
	if steps == 0 || steps > k.steps {
		return c.chunk
	}
	each := (bytes + c.channels*steps - 1) / (c.channels * steps)
	return min(c.chunk, (each+warpRow-1)/warpRow*warpRow)
}

// warpRow is what a warp moves at a time: ROW of the kernels.
const warpRow = 512

// shortUnits is how many units a channel of a short operation has at most, if there are channels
// enough. On H200s more of them take longer, and fewer take as long on more multiprocessors.
const shortUnits = 128

// short returns a choice with as many channels and threads as a message of the given bytes needs that
// short_packets of the kernels sends: it takes one round, and a block has a thread for each unit and
// peer. threads of such a choice are those for one peer. Blocks of other sizes than powers of two, which
// only settings ask for, do not send that way.
func (ch *chooser) short(of op.Collective, c choice, bytes int) (_ choice, ok bool) {
	if !kernelTable[c.kernel].short || of == op.SendRecv || c.threads&(c.threads-1) != 0 {
		return c, false
	}
	units, most := (bytes+llUnit-1)/llUnit, ch.warps(exchangeThreads)/(ch.ranks-1)
	for per := 32; per <= most; per *= 2 {
		if per < min(units, shortUnits) && 2*per <= most {
			continue
		}
		s := ch.limit(choice{kernel: c.kernel, channels: (units + per - 1) / per, threads: per})
		if s.threads*s.channels >= units {
			return s, true
		}
	}
	return c, false
}

// row is Args.row of a choice for a message of the given bytes.
func (ch *chooser) row(of op.Collective, c choice, bytes int) uint32 {
	if s, ok := ch.short(of, c, bytes); !ok || s != c {
		return 0
	}
	return uint32(bits.TrailingZeros(uint(c.threads)))
}

// directFrom and directTo are the bytes that a rank sends of operations that are done by
// exchangeDirect, between packets and copy engines.
const (
	directFrom = 512 << 10
	directTo   = 256 << 20
)

// directChannels carry all that a link does: on four H200s more of them are slower, because they get in
// one another's way behind it, and on two no more than 2 % faster. Broadcasts, whose links have one
// sender, are fastest with as many as there are.
const directChannels = 8

// direct returns how an operation of registered memory is done, if it is done directly.
func (ch *chooser) direct(of op.Collective, bytes int) (choice, bool) {
	c := choice{kernel: exchangeDirect, channels: directChannels, threads: exchangeThreads}
	sent := bytes * (ch.ranks - 1)
	if of == op.Broadcast {
		if ch.ranks > 2 { // the root's link would carry everything: a chain is faster, also out of slots
			return choice{}, false
		}
		sent, c.channels = bytes, chunkChannels
	}
	if ch.force.kernel != noKernel {
		return ch.limit(ch.force), kernelTable[ch.force.kernel].registered
	}
	if sent <= directFrom || !ch.permitted(of, c.kernel, bytes) {
		return choice{}, false
	}
	if k := ch.choose(of, bytes).kernel; k == nvidia || k == copies && sent > directTo {
		return choice{}, false
	}
	return ch.limit(c), true
}

// limit keeps a choice within what settings and devices allow.
func (ch *chooser) limit(c choice) choice {
	if c.kernel == nvidia { // which has its own limits
		return choice{kernel: nvidia}
	}
	most := packetChannels
	switch {
	case c.kernel == copies: // channels are the blocks that reduce
		most = 2 * packetChannels
		c.chunk = max(c.chunk, leastCopy) / partAlign * partAlign
	case kernelTable[c.kernel].protocol == simple:
		most = resultChannel
		if !kernelTable[c.kernel].results {
			most = chunkChannels
		}
	}
	roles := kernelTable[c.kernel].roles
	most = min(most, max(1, ch.allowed(cmp.Or(ch.blocks, math.MaxInt))/roles))
	c.channels = min(max(c.channels, (ch.env.MinChannels+roles-1)/roles, 1), most)
	c.threads = max(ch.warps(c.threads), 32*kernelTable[c.kernel].warps)
	if c.kernel.chunks() {
		c.chunk = ch.step(c.chunk, c.threads)
	}
	return c
}

// allowed returns how many of so many blocks the settings allow.
func (ch *chooser) allowed(blocks int) int {
	return min(blocks, cmp.Or(ch.env.MaxChannels, blocks), cmp.Or(ch.few(), blocks))
}

// fewBlocks is how many blocks a kernel has at most where multiprocessors are left to products. On
// two H100s an AllReduce of 16 to 512 MB takes 7 to 13 % longer than with as many as are fastest.
const fewBlocks = 24

// few returns fewBlocks if the settings ask for that, or 0.
func (ch *chooser) few() int {
	if ch.env.FewCTAs() {
		return fewBlocks
	}
	return 0
}

// rowsAhead is how many rows of 512 bytes a warp loads while it stores as many: MANY of each_row in
// the kernels.
const rowsAhead = 4

// step returns the bytes of a step of a kernel that moves chunks: at most chunk, and what the warps
// of a block move a whole number of times, if it is more than that.
func (ch *chooser) step(chunk, threads int) int {
	chunk = min(max(chunk, 128), ch.chunk) / 128 * 128
	if round := (threads/32 - serving) * rowsAhead * 512; chunk > round {
		chunk -= chunk % round
	}
	return chunk
}

// warps limits threads to what the settings allow, in whole warps.
func (ch *chooser) warps(threads int) int {
	if ch.env.Threads == 0 {
		return threads
	}
	return min(threads, max(ch.env.Threads/32, 1)*32)
}

// fits reports whether a kernel can do an operation of the given bytes.
func (ch *chooser) fits(c op.Collective, k choice, bytes int) bool {
	if ch.env.SameBits && !ch.inOrder(c, k.kernel) {
		return false
	}
	// Both need windows on devices, and LL128 lines that arrive whole.
	if ch.hosted && k.kernel == copies || (ch.hosted || ch.split) && kernelTable[k.kernel].protocol == ll128 {
		return false
	}
	row := &kernelTable[k.kernel]
	switch {
	case k.kernel == nvidia:
		return ch.library
	case k.kernel == copies:
		return c != op.AllToAll || ch.ranks&(ch.ranks-1) == 0 // see copier.phase
	case row.registered: // direct chooses it, where memory is registered
		return false
	case row.path == byParts:
		bytes = partBytes(bytes, ch.ranks)
	}
	return bytes <= ch.capacity(row.protocol, k.channels, k.threads)
}

// inOrder reports whether a kernel reduces each element in the order of the ranks.
func (ch *chooser) inOrder(c op.Collective, k kernel) bool {
	most := kernelTable[k].inOrder
	return !c.Reduces() || most == 0 || ch.ranks <= most
}

func partBytes(bytes, ranks int) int { return op.PartBytes(bytes, ranks) }

const partAlign = op.PartAlign

// Copy engines write the data for a rank to slots in the rank's copy buffer.
const (
	leastCopy    = 64 << 10 // least bytes of a step: each step costs microseconds
	exchangeCopy = 64 << 20 // bytes of a step of Sends and Recvs, regardless of their length
	copyDepth    = 3        // copies run ahead by copyDepth-1 rounds
)

// copyChunk returns the longest step of a collective in bytes.
func (ch *chooser) copyChunk(c op.Collective) int {
	slots := copyDepth * (ch.ranks - 1)
	switch {
	case ringed(c):
		slots = ringSlots
	case c == op.AllToAll:
		slots = copyDepth
	}
	return ch.copyBytes / slots / partAlign * partAlign
}

// copyStep returns the step of Sends and Recvs, which is the same for all lengths, unless
// another one is forced.
func (ch *chooser) copyStep() int {
	if ch.force.kernel == copies {
		return ch.limit(ch.force).chunk
	}
	return min(exchangeCopy, ch.copyChunk(op.SendRecv))
}

// parseChoice parses "kernel:channels:threads:chunk". All but the kernel may be left out.
func parseChoice(s string) (choice, error) {
	c := choice{channels: 8, threads: exchangeThreads, chunk: defaultChunk}
	name, err := choose.Numbers(s, &c.channels, &c.threads, &c.chunk)
	if strings.EqualFold(name, nvidia.String()) && err == nil {
		return choice{kernel: nvidia}, nil
	}
	for k := range numWays {
		if kernelTable[k].does != nil && strings.EqualFold(k.String(), name) {
			c.kernel = k
		}
	}
	switch {
	case err != nil:
		return choice{}, err
	case c.kernel == noKernel:
		return choice{}, fmt.Errorf("%q is no kernel:channels:threads:chunk", s)
	case c.channels == 0 || c.threads == 0:
		return choice{}, fmt.Errorf("%q has no channels or threads", s)
	}
	if c.threads%32 != 0 || c.threads > exchangeThreads {
		return choice{}, fmt.Errorf("%q: a block has a multiple of 32 threads, 512 at most", s)
	}
	return c, nil
}
