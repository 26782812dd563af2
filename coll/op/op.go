// Package op defines the engine's operations. Schedules, transports, executors on host memory and
// on GPUs, the benchmark and the bindings of NCCL all use its one table of the collectives: to
// add a collective, add a line here and its schedules. The package imports nothing except
// coll/elem.
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

// An extent is the size of a buffer, in parts of Count elements each.
type extent uint8

const (
	one     extent = iota // one part
	each                  // a part for each rank
	oneRoot               // one part at the root, nothing elsewhere
	eachRoot
)

// parts returns the number of parts at a rank.
func (e extent) parts(rank, root, ranks int) int {
	switch {
	case e >= oneRoot && rank != root:
		return 0
	case e == each || e == eachRoot:
		return ranks
	}
	return 1
}

// A form says how the buffers of an in-place operation share memory.
type form uint8

const (
	none       form = iota // the buffers must not share memory
	same                   // both buffers are the same memory
	sendInRecv             // the send buffer is the rank's own part of the receive buffer
	recvInSend             // the receive buffer is the rank's own part of the send buffer
)

var table = [NumCollectives]struct {
	name       string // in NCCL's API and logs
	test       string // nccl-tests' program is called TEST_perf
	rooted     bool
	reduces    bool
	send, recv extent
	inPlace    form
	// bus is how many times the slowest link carries the data, at best, with n ranks: nccl-tests,
	// doc/PERFORMANCE.md.
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

// OfTest returns the collective with the given name in nccl-tests.
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

// Vector reports whether the operation works on one vector as long as each buffer, rather than on
// a part for each rank or on messages.
func (c Collective) Vector() bool { return table[c].inPlace == same }

// InNetwork are the collectives that a network that reduces can do.
var InNetwork = []Collective{AllReduce, AllGather, ReduceScatter}

// Parts returns how many parts of Count elements each buffer of a rank has: 1, one for each rank,
// or 0 if the buffer is not used.
func (c Collective) Parts(rank, root, ranks int) (send, recv int) {
	return table[c].send.parts(rank, root, ranks), table[c].recv.parts(rank, root, ranks)
}

// Longest returns the number of parts of the longer buffer, at the rank where it is longest.
// Bandwidths and tables of sizes refer to Longest times Count elements.
func (c Collective) Longest(ranks int) int {
	return max(table[c].send.parts(0, 0, ranks), table[c].recv.parts(0, 0, ranks))
}

// InPlace returns the part of the shared memory at which each of a rank's buffers begins in an
// in-place operation; ok is false if the collective has none.
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

// BusFactor is bus bandwidth divided by algorithm bandwidth. The latter is Longest parts divided
// by time.
func (c Collective) BusFactor(ranks int) float64 { return table[c].bus(float64(ranks)) }

// An Op is one rank's part of an operation. Coll, Count, Type, Red, Root, Divisor
// and Scaled are the same on all ranks.
type Op struct {
	Coll Collective
	// Send and Recv have Parts times Bytes, or more; nil if the rank has no such buffer.
	Send, Recv []byte
	Device     bool      // Send and Recv are device memory: this package does not access them
	Count      int       // elements of one part of a buffer
	Type       elem.Type // of an element
	Red        elem.Op   // the reduction
	Root       int       // of a rooted collective
	Scale      float64   // factor of the rank's own input, if Scaled
	Scaled     bool
	Norm       Norm // what follows an AllReduce
	// Transfers replace all of the above in a SendRecv of several Sends and Recvs with any ranks.
	Transfers []Transfer

	// For executors on devices, where an average is a scaled sum.
	Average  bool   // Scaled is by 1/size, on all ranks
	Factor   uint64 // Scale as the bits of an element
	FactorAt bool   // Factor is the device address that contains it when the operation runs
	Divisor  int    // divisor of an integer result; 0: none
	Sign     uint32 // the rank's signature of the operation: ranks with another one do not take part in it
}

// Bytes is the length of a part of a buffer.
func (o *Op) Bytes() int { return o.Count * o.Type.Size() }

// A Norm follows an AllReduce of sums: the sum is added to Residual, of which each row of Row
// elements is then normalized (RMSNorm) and multiplied by Weight, and goes to Recv:
//
//	Residual = Residual + sum
//	Recv     = Residual / sqrt(mean(Residual²) + Eps) * Weight
type Norm struct {
	Row              int    // elements of a row; 0: nothing follows
	Residual, Weight []byte // device memory: Op.Bytes, and one row
	Eps              float32
}

// A Transfer is a Send or a Recv. The k-th Send to a rank matches that rank's k-th Recv from the
// sender.
type Transfer struct {
	Peer int
	Data []byte
	Send bool
}

// Addr returns the start address of memory, 0 if it is empty.
func Addr(b []byte) uintptr {
	if len(b) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// Memory returns n bytes from an address on that is not in Go's memory, but a device's.
func Memory(addr uintptr, n int) []byte {
	if addr == 0 || n <= 0 {
		return nil
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

// PartAlign aligns the parts into which a vector is cut, so that they do not share lines.
const PartAlign = 128

// PartBytes returns the length of the parts into which a vector of the given bytes is cut for the ranks,
// where each of them reduces a part. The last parts may be shorter.
func PartBytes(bytes, ranks int) int {
	return (bytes + ranks*PartAlign - 1) / (ranks * PartAlign) * PartAlign
}
