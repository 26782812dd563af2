package membw

import (
	"context"
	"errors"
	"fmt"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/words"
)

// memory is a kind of memory.
type memory uint8

// Kinds of memory.
const (
	ofGPU    memory = iota
	pinned          // host memory, page-locked
	combined        // as pinned, but CPUs write it past their caches (write-combined)
	pageable        // ordinary host memory, not page-locked; with eachCall only
)

// An endpoint is where a copy begins or ends: memory of a GPU, or host memory on the NUMA node next to
// that GPU.
type endpoint struct {
	GPU    int
	Memory memory
}

// engine is the unit that copies.
type engine uint8

// The engines: a GPU's copy engine, and a kernel on its multiprocessors.
const (
	engineCE engine = iota
	engineSM
)

func (e engine) String() string { return [...]string{"CE", "SM"}[e] }

// A Flow is a stream of copies from one place to another.
type Flow struct {
	From, To endpoint
	By       int // the GPU that makes the copy
	Engine   engine
	Scale    int  // multiplies the number of bytes; 0 is 1
	Both     bool // SM only: the same kernel also copies as much from a second To to a second From
}

// timingKind says how copies are timed.
type timingKind uint8

// The timing methods.
const (
	// whileHeld uses events around copies that wait in the stream until all are enqueued, so that
	// the host does not influence the time.
	whileHeld timingKind = iota
	// byEvents uses events around copies that run while more are enqueued.
	byEvents
	// byStopwatch uses the host's clock, around enqueueing the copies and waiting for them.
	byStopwatch
	// eachCall uses the host's clock around each synchronous copy, and adds up the times.
	eachCall
)

// A Plan defines how flows are measured.
type Plan struct {
	Bytes    int // of a copy
	Samples  int
	Copies   int // timed by a sample, for each flow
	Warmup   int // untimed copies before those, for each flow and sample
	Timing   timingKind
	Flush    bool // with eachCall: clear the CPU caches before each copy
	Short    bool // with whileHeld: hold for some milliseconds at most, since enqueueing may have to wait for the copies
	Launches bool // SM: one launch per copy; otherwise one kernel makes all copies
	NoVerify bool
}

// An Outcome contains the measured times, in seconds per sample, for all copies of the sample.
type Outcome struct {
	Flows   [][]float64 // by flow and sample
	Total   []float64   // from the begin of the first flow to the end of the last one
	Enqueue []float64   // host time to enqueue the copies of the first flow
}

// A GPU is a GPU and its location.
type GPU struct {
	Index     int         `json:"index"` // CUDA's index in this process
	Name      string      `json:"name"`
	UUID      string      `json:"uuid"`
	Bus       sysfs.BusID `json:"bus"`
	PCIDevice string      `json:"pci_device,omitempty"` // four hex digits
	Node      int         `json:"numa_node"`            // -1: not known
	CPUs      string      `json:"cpus,omitempty"`       // on which host memory is allocated
}

// A Latency defines how the latency of an access is measured.
type Latency struct {
	By       int // the GPU that reads
	At       endpoint
	Accesses int // per sample
	Samples  int
}

// A Machine measures. Only one goroutine may call its methods.
type Machine interface {
	GPUs() []GPU
	// CUDA is the CUDA version of the driver: 1000 times the major plus 10 times the minor number.
	CUDA() int
	// Peer returns why GPU a cannot access b's memory directly; nil: it can.
	Peer(a, b int) error
	// SetPeer turns direct access between two GPUs on or off, in both directions.
	SetPeer(a, b int, on bool) error
	// Measure copies. It returns a dataError if the copied data is wrong.
	Measure(ctx context.Context, flows []Flow, p Plan) (Outcome, error)
	// Latency returns seconds per access, by sample.
	Latency(ctx context.Context, l Latency) ([]float64, error)
	Close() error
}

// A dataError is data that did not arrive as it was sent.
type dataError struct {
	Flow  Flow
	Words int64 // of 8 bytes
	First int64 // offset in bytes
	Of    int64 // size in bytes
}

func (e *dataError) Error() string {
	return fmt.Sprintf("wrong data: %s of 8 bytes not as sent, the first at byte %d of %d", words.Count(int(e.Words), "word"), e.First, e.Of)
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
