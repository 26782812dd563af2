package cuda

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

// A protocol is how a kernel moves bytes.
type protocol uint8

const (
	ll protocol = iota
	ll128
	simple
)

var protocolNames = [...]string{"LL", "LL128", "Simple"}

// String is NCCL's name of the protocol.
func (p protocol) String() string { return protocolNames[p] }

// A kernel is one of those in coll/cuda/kernels, without its type and
// operation.
type kernel uint8

const (
	noKernel kernel = iota
	exchangeLL
	exchangeLL128
	exchangeSimple
	relaySimple
	chainSimple
	reduceLL
	reduceLL128
	allReduceLL
	allReduceLL128
	allReduceSimple
	reduceChain
	combine
	copies // no kernel: copy engines move the bytes, see copies.go
	numKernels
)

var kernelInfo = [numKernels]struct {
	name      string
	protocol  protocol
	typed     bool
	roles     int    // blocks a channel
	warps     int    // of a block, at least: where it passes on, one waits for what comes, another for where it goes
	algorithm string // coll/schedule's name of what it does for an AllReduce
}{
	exchangeLL:      {"exchange_ll", ll, false, 1, 1, ""},
	exchangeLL128:   {"exchange_ll128", ll128, false, 1, 1, ""},
	exchangeSimple:  {"exchange_simple", simple, false, 2, 1, ""},
	relaySimple:     {"relay_simple", simple, false, 3, 2, ""},
	chainSimple:     {"chain_simple", simple, false, 1, 2, ""},
	reduceLL:        {"reduce_ll", ll, true, 1, 1, schedule.OneShot},
	reduceLL128:     {"reduce_ll128", ll128, true, 1, 1, schedule.OneShot},
	allReduceLL:     {"allreduce_ll", ll, true, 1, 1, schedule.TwoShot},
	allReduceLL128:  {"allreduce_ll128", ll128, true, 1, 1, schedule.TwoShot},
	allReduceSimple: {"allreduce_simple", simple, true, 3, 2, schedule.TwoShot},
	reduceChain:     {"reduce_chain", simple, true, 1, 2, ""},
	combine:         {"combine", simple, true, 1, 1, ""},
	copies:          {"copy", simple, false, 1, 1, schedule.TwoShot},
}

// String is the kernel's name in its source.
func (k kernel) String() string { return kernelInfo[k].name }

// A choice is how an operation is done.
type choice struct {
	kernel   kernel
	channels int
	threads  int // a block
	chunk    int // bytes of a step (Simple)
}

// String is what ASSAY_GPU_ALGO takes.
func (c choice) String() string {
	return fmt.Sprintf("%v:%d:%d:%d", c.kernel, c.channels, c.threads, c.chunk)
}

// exchangeThreads is the same for all messages of Sends and Recvs: a kernel
// has messages of several sizes, and both ends must cut each in the same way.
const exchangeThreads = 512

// A rule is for messages of up to so many bytes.
type rule struct {
	upTo int
	choice
}

// An entry of the table is for a collective among some numbers of ranks.
// Bytes are as in nccl-tests' first column for AllReduce, Broadcast and
// Reduce, and of one rank's part for the others.
type entry struct {
	coll     op.Collective
	min, max int // ranks
	rules    []rule
}

// table is for machines that nothing was measured on; it is made of what was
// seen on H200s. It is looked through from the top; of an entry the first rule
// counts that is wide enough, allowed and can do it.
var table = []entry{
	{op.AllReduce, 2, 2, []rule{
		{2 << 10, choice{reduceLL, 1, 256, 0}},
		{8 << 10, choice{reduceLL, 2, 512, 0}},
		{32 << 10, choice{reduceLL, 8, 512, 0}},
		{128 << 10, choice{reduceLL128, 16, 512, 0}},
		{512 << 10, choice{reduceLL128, 32, 512, 0}},
		{2 << 20, choice{reduceLL128, 64, 512, 0}},
		{8 << 20, choice{allReduceSimple, 24, 512, 32 << 10}},
		{maxMessage, choice{allReduceSimple, 32, 512, 128 << 10}},
	}},
	{op.AllReduce, 3, maxRanks, []rule{
		{2 << 10, choice{reduceLL, 4, 128, 0}},
		{8 << 10, choice{reduceLL, 16, 128, 0}},
		{64 << 10, choice{reduceLL, 32, 256, 0}},
		{128 << 10, choice{reduceLL128, 64, 256, 0}},
		{512 << 10, choice{allReduceLL, 64, 256, 0}},
		{1 << 20, choice{allReduceLL128, 64, 256, 0}},
		{2 << 20, choice{allReduceLL128, 64, 512, 0}},
		{4 << 20, choice{allReduceSimple, 32, 256, 32 << 10}},
		{maxMessage, choice{allReduceSimple, 32, 512, 64 << 10}},
	}},
	{op.ReduceScatter, 2, maxRanks, []rule{
		{2 << 10, choice{reduceLL, 1, 256, 0}},
		{8 << 10, choice{reduceLL, 8, 256, 0}},
		{64 << 10, choice{reduceLL, 32, 256, 0}},
		{512 << 10, choice{reduceLL128, 64, 512, 0}},
		{4 << 20, choice{allReduceSimple, 32, 512, 32 << 10}},
		{maxMessage, choice{allReduceSimple, 32, 512, 64 << 10}},
	}},
	{op.Reduce, 2, 2, []rule{
		{2 << 10, choice{reduceLL, 4, 128, 0}},
		{32 << 10, choice{reduceLL, 32, 256, 0}},
		{512 << 10, choice{reduceLL128, 64, 256, 0}},
		{8 << 20, choice{allReduceSimple, 32, 512, 32 << 10}},
		{maxMessage, choice{allReduceSimple, 32, 512, 64 << 10}},
	}},
	{op.Reduce, 3, maxRanks, []rule{
		{2 << 10, choice{reduceLL, 4, 128, 0}},
		{32 << 10, choice{reduceLL, 32, 256, 0}},
		{512 << 10, choice{reduceLL128, 64, 256, 0}},
		{2 << 20, choice{reduceChain, 64, 512, 16 << 10}},
		{16 << 20, choice{reduceChain, 64, 512, 32 << 10}},
		{128 << 20, choice{reduceChain, 64, 512, 64 << 10}},
		{maxMessage, choice{reduceChain, 64, 512, 128 << 10}},
		{maxMessage, choice{allReduceSimple, 32, 512, 64 << 10}}, // where a chain would round
	}},
	{op.Broadcast, 2, 2, []rule{
		{2 << 10, choice{exchangeLL, 1, 256, 0}},
		{32 << 10, choice{exchangeLL, 8, 512, 0}},
		{1 << 20, choice{exchangeLL128, 32, 512, 0}},
		{maxMessage, choice{exchangeSimple, 32, 512, 128 << 10}},
	}},
	{op.Broadcast, 3, maxRanks, []rule{
		{2 << 10, choice{exchangeLL, 1, 256, 0}},
		{32 << 10, choice{exchangeLL, 8, 512, 0}},
		{512 << 10, choice{exchangeLL128, 32, 512, 0}},
		{8 << 20, choice{relaySimple, 24, 512, 32 << 10}},
		{maxMessage, choice{chainSimple, 64, 512, 128 << 10}},
	}},
	{op.SendRecv, 2, maxRanks, []rule{
		{4 << 10, choice{exchangeLL, 1, exchangeThreads, 0}},
		{32 << 10, choice{exchangeLL, 8, exchangeThreads, 0}},
		{1 << 20, choice{exchangeLL128, 32, exchangeThreads, 0}},
		{maxMessage, choice{exchangeSimple, 32, exchangeThreads, 128 << 10}},
	}},
}

// general is for the collectives that send each rank something of its own.
var general = []rule{
	{2 << 10, choice{exchangeLL, 1, 256, 0}},
	{16 << 10, choice{exchangeLL, 8, 256, 0}},
	{128 << 10, choice{exchangeLL128, 64, 256, 0}},
	{512 << 10, choice{exchangeLL128, 64, 512, 0}},
	{2 << 20, choice{exchangeSimple, 64, 256, 32 << 10}},
	{maxMessage, choice{exchangeSimple, 64, 512, 64 << 10}},
}

// hostedTable is for windows in the processor's memory. To read its own window
// costs a rank a microsecond there, a few blocks carry all that the links do,
// and there is no LL128. What AllReduce among two has was tried on H200s, the rest was
// made like it.
var hostedTable = []entry{
	{op.AllReduce, 2, 2, []rule{
		{2 << 10, choice{reduceLL, 1, 256, 0}},
		{8 << 10, choice{reduceLL, 2, 512, 0}},
		{64 << 10, choice{reduceLL, 16, 512, 0}},
		{1 << 20, choice{allReduceSimple, 16, 512, 16 << 10}},
		{maxMessage, choice{allReduceSimple, 16, 512, 32 << 10}},
	}},
	{op.AllReduce, 3, maxRanks, []rule{
		{2 << 10, choice{reduceLL, 2, 256, 0}},
		{8 << 10, choice{reduceLL, 8, 256, 0}},
		{64 << 10, choice{allReduceLL, 16, 512, 0}},
		{2 << 20, choice{allReduceSimple, 16, 512, 16 << 10}},
		{maxMessage, choice{allReduceSimple, 24, 512, 32 << 10}},
	}},
	{op.ReduceScatter, 2, maxRanks, hostedReduce},
	{op.Reduce, 2, maxRanks, hostedReduce},
	{op.Broadcast, 3, maxRanks, []rule{
		{2 << 10, choice{exchangeLL, 1, 256, 0}},
		{32 << 10, choice{exchangeLL, 8, 512, 0}},
		{8 << 20, choice{relaySimple, 16, 512, 32 << 10}},
		{maxMessage, choice{relaySimple, 16, 512, 64 << 10}},
	}},
	{op.SendRecv, 2, maxRanks, []rule{
		{4 << 10, choice{exchangeLL, 1, exchangeThreads, 0}},
		{32 << 10, choice{exchangeLL, 8, exchangeThreads, 0}},
		{maxMessage, choice{exchangeSimple, 16, exchangeThreads, 128 << 10}},
	}},
}

var hostedReduce = []rule{
	{2 << 10, choice{reduceLL, 1, 256, 0}},
	{32 << 10, choice{reduceLL, 8, 512, 0}},
	{1 << 20, choice{allReduceSimple, 16, 512, 16 << 10}},
	{maxMessage, choice{allReduceSimple, 16, 512, 32 << 10}},
}

// hostedGeneral is to hostedTable what general is to table.
var hostedGeneral = []rule{
	{2 << 10, choice{exchangeLL, 1, 256, 0}},
	{32 << 10, choice{exchangeLL, 8, 512, 0}},
	{1 << 20, choice{exchangeSimple, 16, 512, 16 << 10}},
	{maxMessage, choice{exchangeSimple, 16, 512, 32 << 10}},
}

// A chooser chooses how operations are done. All ranks come to the same
// choice: it is made of what all know.
type chooser struct {
	layout
	blocks   int   // that can be on a device at the same time, on all of them
	min, max int   // channels; 0: no limit
	threads  int   // of a block, at most; 0: no limit
	single   int64 // messages of fewer bytes have one channel
	packets  int64 // messages of fewer bytes go by LL, if they fit
	allows   func(c op.Collective, protocol string) bool
	does     func(c op.Collective, algorithm string) bool
	room     int // bytes that each rank has for copies
	measured measured
	force    choice
}

// rules are those of a collective.
func (ch *chooser) rules(c op.Collective) []rule {
	table, general := table, general
	if ch.hosted {
		table, general = hostedTable, hostedGeneral
	}
	for i := range table {
		if e := &table[i]; e.coll == c && ch.ranks >= e.min && ch.ranks <= e.max {
			return e.rules
		}
	}
	return general
}

// choose chooses for an operation of so many bytes (see entry).
func (ch *chooser) choose(c op.Collective, bytes int) choice {
	return ch.chooseWithout(0, c, bytes)
}

// Bits of what chooseWithout is to leave out.
const (
	withoutCopies = 1 << copies
	withoutChain  = 1 << reduceChain
)

// chooseWithout chooses where some kernels cannot be used: bits.
func (ch *chooser) chooseWithout(kernels uint32, c op.Collective, bytes int) choice {
	can := func(k kernel) bool { return does(k, c) && kernels>>k&1 == 0 }
	if f := ch.force; f.kernel != noKernel && can(f.kernel) {
		if got := ch.shape(f, bytes); ch.fits(c, got, bytes) {
			return got
		}
	}
	if got, ok := ch.measured.choose(ch, c, bytes); ok && can(got.kernel) {
		return got
	}
	all := ch.rules(c)
	for _, strict := range [...]bool{true, false} { // what no rule obeys is not asked for twice
		for i := range all {
			r := &all[i]
			if !can(r.kernel) || bytes > r.upTo && i < len(all)-1 || strict && !ch.permitted(c, r.kernel, bytes) {
				continue
			}
			if got := ch.shape(r.choice, bytes); ch.fits(c, got, bytes) {
				return got
			}
		}
		if !strict {
			break
		}
		// Of those that are allowed, the widest that takes it.
		for i := len(all) - 1; i >= 0; i-- {
			if !can(all[i].kernel) || !ch.permitted(c, all[i].kernel, bytes) {
				continue
			}
			if got := ch.shape(all[i].choice, bytes); ch.fits(c, got, bytes) {
				return got
			}
		}
	}
	return ch.shape(all[len(all)-1].choice, bytes)
}

// permitted reports whether the settings allow a kernel for so many bytes.
func (ch *chooser) permitted(c op.Collective, k kernel, bytes int) bool {
	i := &kernelInfo[k]
	if int64(bytes) < ch.packets && i.protocol != ll {
		return false
	}
	if ch.allows != nil && !ch.allows(c, i.protocol.String()) {
		return false
	}
	return c != op.AllReduce || ch.does == nil || ch.does(c, i.algorithm)
}

// shape is limit for a message of so many bytes.
func (ch *chooser) shape(c choice, bytes int) choice {
	c = ch.limit(c)
	if int64(bytes) < ch.single {
		c.channels = 1
	}
	return c
}

// limit keeps a choice within what settings and devices allow.
func (ch *chooser) limit(c choice) choice {
	most := packetChannels
	switch {
	case c.kernel == copies: // channels are the blocks that reduce
		most = 2 * packetChannels
		c.chunk = max(c.chunk, leastCopy) / partAlign * partAlign
	case kernelInfo[c.kernel].protocol == simple:
		most = resultChannel
		if kernelInfo[c.kernel].roles < 3 { // which have no results to pass on
			most = chunkChannels
		}
		c.chunk = min(max(c.chunk, 128), ch.chunk) / 128 * 128
	}
	if ch.blocks > 0 {
		most = min(most, max(1, ch.blocks/kernelInfo[c.kernel].roles))
	}
	if ch.max > 0 {
		most = min(most, ch.max)
	}
	c.channels = min(max(c.channels, ch.min, 1), most)
	c.threads = max(ch.warps(c.threads), 32*kernelInfo[c.kernel].warps)
	return c
}

// warps are as many threads as the settings allow.
func (ch *chooser) warps(threads int) int {
	if ch.threads == 0 {
		return threads
	}
	return min(threads, max(ch.threads/32, 1)*32)
}

// fits reports whether a kernel takes an operation of so many bytes.
func (ch *chooser) fits(c op.Collective, k choice, bytes int) bool {
	if ch.hosted && (k.kernel == copies || kernelInfo[k.kernel].protocol == ll128) { // these need windows on devices
		return false
	}
	switch k.kernel {
	case allReduceLL, allReduceLL128:
		bytes = part(bytes, ch.ranks)
	case copies:
		return ch.ranks == 2 || ringed(c) || c == op.SendRecv
	}
	return bytes <= ch.capacity(kernelInfo[k.kernel].protocol, k.channels, k.threads)
}

// part is the length of the parts, but for the last ones, into which a vector
// is cut for the ranks.
func part(bytes, ranks int) int {
	return (bytes + ranks*partAlign - 1) / (ranks * partAlign) * partAlign
}

// partAlign keeps parts apart by whole lines.
const partAlign = 128

// does reports whether a kernel can do a collective at all.
func does(k kernel, c op.Collective) bool {
	switch k {
	case exchangeLL, exchangeLL128, exchangeSimple:
		return !c.Reduces()
	case relaySimple, chainSimple:
		return c == op.Broadcast
	case reduceChain:
		return c == op.Reduce
	case reduceLL, reduceLL128, allReduceSimple:
		return c.Reduces()
	case allReduceLL, allReduceLL128:
		return c == op.AllReduce
	case copies:
		return true
	}
	return false
}

// What copy engines bring to a rank comes to its room, in slots.
const (
	leastCopy    = 64 << 10 // bytes of a step: each costs microseconds
	exchangeCopy = 64 << 20 // of a step of Sends and Recvs, of whatever length
	copyDepth    = 3        // rounds that copies run ahead by, less one
)

// copyChunk is the longest step of a collective.
func (ch *chooser) copyChunk(c op.Collective) int {
	slots := copyDepth * (ch.ranks - 1)
	if ringed(c) {
		slots = ringSlots
	}
	return ch.room / slots / partAlign * partAlign
}

// copyStep is the step of Sends and Recvs, of whatever length, unless somebody
// tries another.
func (ch *chooser) copyStep() int {
	if ch.force.kernel == copies {
		return ch.limit(ch.force).chunk
	}
	return min(exchangeCopy, ch.copyChunk(op.SendRecv))
}

// parseChoice reads "kernel:channels:threads:chunk", of which all but the
// kernel may be left out.
func parseChoice(s string) (choice, error) {
	c := choice{channels: 8, threads: exchangeThreads, chunk: defaultChunk}
	fields := strings.Split(s, ":")
	for k := range numKernels {
		if k != noKernel && k != combine && strings.EqualFold(k.String(), fields[0]) {
			c.kernel = k
		}
	}
	if c.kernel == noKernel || len(fields) > 4 {
		return choice{}, fmt.Errorf("%q is no kernel:channels:threads:chunk", s)
	}
	for i, to := range []*int{&c.channels, &c.threads, &c.chunk} {
		if i+1 >= len(fields) {
			break
		}
		n, err := strconv.Atoi(fields[i+1])
		if err != nil || n < 0 || n == 0 && to != &c.chunk {
			return choice{}, fmt.Errorf("%q: %q is no number", s, fields[i+1])
		}
		*to = n
	}
	if c.threads%32 != 0 || c.threads > exchangeThreads {
		return choice{}, fmt.Errorf("%q: a block has a multiple of 32 threads, 512 at most", s)
	}
	return c, nil
}
