// Package op says what the engine's operations are. Its one table of the
// collectives is what schedules, transports, executors on host memory and on GPUs,
// the benchmark and the bindings of NCCL go by: adding a collective is a line here,
// and its schedules. It imports nothing but coll/elem.
package op

import (
	"unsafe"

	"github.com/assay-hpc/assay/coll/elem"
)

// A Collective is one of the collective operations.
type Collective uint8

// The collectives.
const (
	AllReduce Collective = iota
	Broadcast
	Reduce
	AllGather
	ReduceScatter
	AllToAll
	Gather
	Scatter
	SendRecv // each rank sends to the next one and receives from the one before
	NumCollectives
)

// An extent is how much of its operation a buffer holds: parts of Count elements
// each.
type extent uint8

const (
	one     extent = iota // one part
	each                  // a part for each rank
	oneRoot               // the same at the root, and nothing elsewhere
	eachRoot
)

// parts is how many there are at a rank.
func (e extent) parts(rank, root, ranks int) int {
	switch {
	case e >= oneRoot && rank != root:
		return 0
	case e == each || e == eachRoot:
		return ranks
	}
	return 1
}

// A form of an operation in place says how its buffers share memory.
type form uint8

const (
	none       form = iota // they must not
	same                   // one is the other
	sendInRecv             // the send buffer is the rank's own part of the receive buffer
	recvInSend             // or the other way round
)

var table = [NumCollectives]struct {
	name       string // in NCCL's API and logs
	test       string // nccl-tests' program is called TEST_perf
	rooted     bool
	reduces    bool
	send, recv extent
	inPlace    form
	// bus is how many times the data the slowest link carries at best, if there are
	// n ranks: nccl-tests, doc/PERFORMANCE.md.
	bus func(n float64) float64
}{
	AllReduce:     {"AllReduce", "all_reduce", false, true, one, one, same, func(n float64) float64 { return 2 * (n - 1) / n }},
	Broadcast:     {"Broadcast", "broadcast", true, false, oneRoot, one, same, whole},
	Reduce:        {"Reduce", "reduce", true, true, one, oneRoot, same, whole},
	AllGather:     {"AllGather", "all_gather", false, false, one, each, sendInRecv, butOwn},
	ReduceScatter: {"ReduceScatter", "reduce_scatter", false, true, each, one, recvInSend, butOwn},
	AllToAll:      {"AllToAll", "alltoall", false, false, each, each, none, butOwn},
	Gather:        {"Gather", "gather", true, false, one, eachRoot, sendInRecv, butOwn},
	Scatter:       {"Scatter", "scatter", true, false, eachRoot, one, recvInSend, butOwn},
	SendRecv:      {"SendRecv", "sendrecv", false, false, one, one, none, whole},
}

func whole(float64) float64    { return 1 }
func butOwn(n float64) float64 { return (n - 1) / n }

// String is the collective's name in NCCL's API and logs: "AllReduce".
func (c Collective) String() string {
	if c >= NumCollectives {
		return "Collective(?)"
	}
	return table[c].name
}

// Test is the name of nccl-tests' program without "_perf": "all_reduce".
func (c Collective) Test() string { return table[c].test }

// OfTest finds a collective by that name.
func OfTest(name string) (c Collective, ok bool) {
	for c := range NumCollectives {
		if table[c].test == name {
			return c, true
		}
	}
	return 0, false
}

// Rooted reports whether the collective has a root.
func (c Collective) Rooted() bool { return c < NumCollectives && table[c].rooted }

// Reduces reports whether the collective applies a reduction.
func (c Collective) Reduces() bool { return c < NumCollectives && table[c].reduces }

// Vector reports whether the operation is on one vector as long as each buffer,
// rather than on a part for each rank or on messages.
func (c Collective) Vector() bool { return table[c].inPlace == same }

// InNetwork are the collectives that networks which reduce can do.
var InNetwork = []Collective{AllReduce, AllGather, ReduceScatter}

// Parts is how many parts of Count elements each buffer of a rank has: 1, one for
// each rank, or 0 where it is not used.
func (c Collective) Parts(rank, root, ranks int) (send, recv int) {
	return table[c].send.parts(rank, root, ranks), table[c].recv.parts(rank, root, ranks)
}

// Longest is how many parts the longer buffer has, at the rank where it is longest:
// bandwidths and tables of sizes are of so many times Count elements.
func (c Collective) Longest(ranks int) int {
	return max(table[c].send.parts(0, 0, ranks), table[c].recv.parts(0, 0, ranks))
}

// InPlace says at which part of the memory that they share a rank's buffers begin in
// an operation in place; ok is whether there is one.
func (c Collective) InPlace(rank int) (send, recv int, ok bool) {
	switch table[c].inPlace {
	case sendInRecv:
		return rank, 0, true
	case recvInSend:
		return 0, rank, true
	case same:
		return 0, 0, true
	}
	return 0, 0, false
}

// BusFactor is bus bandwidth over algorithm bandwidth. The latter is Longest parts
// over time.
func (c Collective) BusFactor(ranks int) float64 { return table[c].bus(float64(ranks)) }

// An Op is one rank's part of an operation. Coll, Count, Type, Red, Root, Divisor
// and Scaled are the same on all ranks.
type Op struct {
	Coll Collective
	// Send and Recv have Parts times Bytes, or more; nothing where the rank has no
	// such buffer.
	Send, Recv []byte
	Device     bool      // they are a device's memory: they are not touched here
	Count      int       // elements, of one part of a buffer
	Type       elem.Type // of an element
	Red        elem.Op   // what elements are reduced by
	Root       int       // of a rooted collective
	Scale      float64   // what the rank's own input is multiplied by, if Scaled
	Scaled     bool
	// Transfers take the place of all the above in a SendRecv of several Sends and
	// Recvs with any ranks.
	Transfers []Transfer

	// What executors on devices get, where an average is a sum that is scaled.
	Average  bool   // Scaled, by 1/size on all ranks
	Factor   uint64 // Scale as the bits of an element
	FactorAt bool   // Factor is the address, on the device, where it is when the operation runs
	Divisor  int    // of the result, of integers; 0: none
	Sign     uint32 // what the rank takes the operation for: ranks with another one do not take part in it
}

// Bytes is the length of a part of a buffer.
func (o *Op) Bytes() int { return o.Count * o.Type.Size() }

// A Transfer is a Send or a Recv. The k-th Send to a rank and the k-th Recv
// there belong together.
type Transfer struct {
	Peer int
	Data []byte
	Send bool
}

// Addr is where memory begins; 0: there is none.
func Addr(b []byte) uintptr {
	if len(b) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// Memory is n bytes from an address on that is none of Go's: a device's.
func Memory(addr uintptr, n int) []byte {
	if addr == 0 || n <= 0 {
		return nil
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}
