// Package tuning knows what collectives cost.
//
// It has three parts. The simulator runs a schedule on a Topology, window by
// window, with links that serve one message after another, and says how long
// it takes (Simulate). The predictor builds the topology of a GPU platform
// from the hardware data base and from the latencies of NCCL's own cost model,
// and simulates what NCCL would run there (Predict); docs/predict.md has each
// parameter with its source, and the errors against published tables. The
// tuner picks algorithm, protocol, channels and window for the CPU engine by a
// model of latency and bandwidth per transport, corrected by measurements and
// overridden by NCCL's knobs (Tuner).
//
// Nothing here moves data or measures time: measurements come from coll/perf.
package tuning

// Sizes in bytes.
const (
	kib = 1 << 10
	mib = 1 << 20
)

// BytesPerSec is a bandwidth. GBps is the unit of the hardware data base.
type BytesPerSec float64

// GBps is 1e9 bytes a second.
const GBps BytesPerSec = 1e9
