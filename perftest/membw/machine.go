package membw

import (
	"context"
	"errors"
	"fmt"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// memory is a kind of memory.
type memory uint8

// The kinds.
const (
	ofGPU    memory = iota
	pinned          // the host's, page-locked
	combined        // as pinned, and processors write it past their caches
	pageable        // the host's as any program has it; with eachCall only
)

// A place is where a copy begins or ends: memory of a GPU, or of the host on the
// NUMA node that is next to that GPU.
type place struct {
	GPU    int
	Memory memory
}

// engine is what copies.
type engine uint8

// The engines: a GPU's copy engine, and a kernel on its multiprocessors.
const (
	engineCE engine = iota
	engineSM
)

func (e engine) String() string { return [...]string{"CE", "SM"}[e] }

// A Flow is a stream of copies from one place to another.
type Flow struct {
	From, To place
	By       int // the GPU that does it
	Engine   engine
	Scale    int  // times so many bytes; 0 is 1
	Both     bool // SM only: the same kernel also copies as much from a second To to a second From
}

// timingKind says how copies are timed.
type timingKind uint8

// The ways.
const (
	// whileHeld: events around copies that wait in the stream until all are enqueued,
	// so that the host has no share in it.
	whileHeld timingKind = iota
	// byEvents around copies that are enqueued meanwhile.
	byEvents
	// byStopwatch: of the host, around copies that are enqueued and awaited.
	byStopwatch
	// eachCall: of the host, around each synchronous copy, added up.
	eachCall
)

// A Plan is how to measure flows.
type Plan struct {
	Bytes    int // of a copy
	Samples  int
	Copies   int // that a sample times, of each flow
	Warmup   int // copies before those, of each flow and sample
	Timing   timingKind
	Flush    bool // with EachCall, clear the processors' caches before each copy
	Short    bool // Held: hold for some milliseconds at most, since enqueueing may have to wait for the copies
	Launches bool // SM: a launch for each copy; otherwise one kernel makes them all
	NoVerify bool
}

// An Outcome is what was measured. All are seconds of a sample, for all of its
// copies.
type Outcome struct {
	Flows   [][]float64 // by flow and sample
	Total   []float64   // from the first flow's begin to the last one's end
	Enqueue []float64   // of the host, to enqueue the first flow's copies
}

// A GPU is one, and where it sits.
type GPU struct {
	Index     int         `json:"index"` // as CUDA counts in this process
	Name      string      `json:"name"`
	UUID      string      `json:"uuid"`
	Bus       sysfs.BusID `json:"bus"`
	PCIDevice string      `json:"pci_device,omitempty"` // four hex digits
	Node      int         `json:"numa_node"`            // -1: not known
	CPUs      string      `json:"cpus,omitempty"`       // those that host memory is allocated on
}

// A Latency is how to measure the time of one access.
type Latency struct {
	By       int // the GPU that reads
	At       place
	Accesses int // of a sample
	Samples  int
}

// A Machine measures. Its methods are called by one goroutine.
type Machine interface {
	GPUs() []GPU
	// CUDA is the driver's version of CUDA: 1000 times the major plus 10 times the
	// minor number.
	CUDA() int
	// Peer says why GPU a cannot use b's memory directly; nil: it can.
	Peer(a, b int) error
	// SetPeer turns direct access between two GPUs on or off, both ways.
	SetPeer(a, b int, on bool) error
	// Measure copies. What was copied wrongly is a dataError.
	Measure(ctx context.Context, flows []Flow, p Plan) (Outcome, error)
	// Latency gives seconds an access, by sample.
	Latency(ctx context.Context, l Latency) ([]float64, error)
	Close() error
}

// A dataError is data that did not arrive as it was sent.
type dataError struct {
	Flow  Flow
	Words int64 // of 8 bytes
	First int64 // byte
	Of    int64 // bytes
}

func (e *dataError) Error() string {
	return fmt.Sprintf("wrong data: %d words of 8 bytes differ from what was sent, the first at byte %d of %d", e.Words, e.First, e.Of)
}

// errPeer: two GPUs cannot reach each other's memory.
var errPeer = errors.New("no peer access between these GPUs")

// rates turns seconds into GB/s.
func rates(bytes float64, seconds []float64) []float64 {
	out := make([]float64, len(seconds))
	for i, s := range seconds {
		out[i] = bytes / s / 1e9
	}
	return out
}
