package probe

import (
	"errors"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// Info is the content of the header: the agreed values, and the effective values of the options.
type Info struct {
	Device       string
	Transport    string // "IB", "iWARP", …
	Link         string // "IB" or "Ethernet"
	GIDIndex     int    // -1: none
	MTU          int    // bytes
	TxDepth      int
	RxDepth      int
	CQModeration int
	Inline       int // bytes
	OutReads     int
	Relaxed      bool // memory is registered for relaxed ordering
	Local        []wire.Address
	Remote       []wire.Address
	Peer         string // address on the control channel
	PeerVersion  string // of the protocol
}

// A Row is a line of results. With --report-both it is also shown for each direction.
type Row struct {
	Bandwidth     *BandwidthResult // one of these two
	Latency       *LatencyResult
	Local, Remote *BandwidthResult         // of a bidirectional test
	Counters      map[string]counterChange // with -W
}

// A counterChange is the value of a port's counter before and after a measurement.
type counterChange struct{ Before, After uint64 }

// A progress is the progress of a measurement.
type progress struct {
	Bytes       uint64 // per message
	Done, Total uint64 // messages; Total is 0 with a duration
	Elapsed     time.Duration
	Duration    time.Duration // 0 without one
}

func (p progress) String() string {
	if p.Duration > 0 {
		return fmt.Sprintf("%d bytes, %v of %v", p.Bytes, p.Elapsed.Truncate(time.Second), p.Duration)
	}
	return fmt.Sprintf("%d bytes, %d of %d messages", p.Bytes, p.Done, p.Total)
}

// Events are callbacks during a run, called by one goroutine. Each may be nil.
type Events struct {
	Waiting  func(addr string) // a server listens at addr
	Header   func(Info)        // queue pairs are connected
	Row      func(Row)         // a line is finished
	Note     func(string)      // a remark for the user, for example that a port scanner was turned away
	Progress func(string)      // the progress, from time to time
}

// TellWaiting reports that a server listens.
func (e Events) TellWaiting(addr string) {
	if e.Waiting != nil {
		e.Waiting(addr)
	}
}

// TellHeader reports the agreed values.
func (e Events) TellHeader(i Info) {
	if e.Header != nil {
		e.Header(i)
	}
}

// TellRow reports a line of results.
func (e Events) TellRow(r Row) {
	if e.Row != nil {
		e.Row(r)
	}
}

// TellNote reports a remark.
func (e Events) TellNote(format string, a ...any) {
	if e.Note != nil {
		e.Note(fmt.Sprintf(format, a...))
	}
}

// tellProgress reports the progress.
func (e Events) tellProgress(p progress) {
	if e.Progress != nil {
		e.Progress(p.String())
	}
}

// An Outcome is the outcome of a completed test.
type Outcome struct {
	Info Info
	Rows []Row
}

// A limitError is a test result below a limit. It is an ErrFailed.
type limitError struct {
	Flag      string // "-w" or "-y"
	Got, Want float64
	Unit      string
}

func (e *limitError) Error() string {
	return fmt.Sprintf("%.6g %s at best, which is below the limit (%s) of %.6g", e.Got, e.Unit, e.Flag, e.Want)
}

func (e *limitError) Unwrap() error { return ErrFailed }

// Limits compares the best of all rows with -w and -y. Its error is an ErrFailed. It passes if
// there are no rows, as on a server without results.
func (c *Config) Limits(rows []Row) error {
	var bw, rate float64
	seen := false
	for _, r := range rows {
		if b := r.Bandwidth; b != nil {
			seen = true
			bw, rate = max(bw, b.Average/unit(c.Gbits)), max(rate, b.Rate/million)
		}
	}
	switch {
	case !seen:
		return nil
	case bw < c.LimitBW:
		return &limitError{"-w", bw, c.LimitBW, c.unitName()}
	case rate < c.LimitRate:
		return &limitError{"-y", rate, c.LimitRate, "Mpps"}
	}
	return nil
}

// unitName is the name of the unit of bandwidths.
func (c *Config) unitName() string {
	if c.Gbits {
		return "Gb/s"
	}
	return "MiB/s"
}

// ErrFailed marks, for errors.Is, a measurement that began and failed: a completion with an error,
// a peer lost during the test, a value below its limit.
var ErrFailed = errors.New("the test failed")

// NotAvailable is the error of a test that cannot run on this machine: no device, no library, no
// driver.
type NotAvailable struct{ What string }

func (e *NotAvailable) Error() string { return e.What }
