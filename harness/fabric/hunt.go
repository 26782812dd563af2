package fabric

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/harness/hunt"
)

// A Tool is the method by which a hunt measures.
type Tool string

// The tools.
const (
	Auto Tool = ""     // RDMA where the machines have it, else TCP
	TCP  Tool = "tcp"  // TCP between the machines' addresses
	RDMA Tool = "rdma" // RDMA reads and writes between ports of the same name, with a separate hunt for each name
	Coll Tool = "coll" // all-reduce among the GPUs of groups
)

// HuntOptions are the options of a hunt. Those of the first machine apply.
type HuntOptions struct {
	hunt.Options
	Tool     Tool
	Duration time.Duration // of a measurement, per direction; 0: 200 ms with TCP, 500 ms with the other tools
	Bytes    string        // size of the all-reduce
	Coll     []string      // further flags of harness coll on this machine: the number of GPUs
	// Ports are the names of this machine's ports that RDMA measures; unused if RDMA is nil.
	Ports []string
	RDMA  Prober
	// At is the switch or rack of this machine; "": not known.
	At string
	// For is how long to measure at least: when all is decided, with small packets alone.
	For time.Duration
	// Progress, if not nil, is called on the first machine before each round.
	Progress func(round, undecided int)
}

// A Prober measures RDMA between ports.
type Prober interface {
	// Listen waits for one peer at a port of this machine and returns the TCP ports that the peer
	// connects to. wait returns when that measurement has ended.
	Listen(ctx context.Context, port string, m Measurement) (at Doors, wait func() (Ends, error), err error)
	// Measure measures small reads, and both directions between a port of this machine and the
	// listening port.
	Measure(ctx context.Context, port string, host string, at Doors, m Measurement) (Measured, error)
}

// A Measurement is what is to be measured between two ports.
type Measurement struct {
	Duration time.Duration // of each direction
	Quiet    bool          // small reads alone, for longer
}

// Doors are TCP ports where a machine waits for the other one of its pair.
type Doors struct {
	Small int `json:"small,omitempty"` // for reads
	Large int `json:"large,omitempty"` // for writes; 0: none
}

// Measured is a result of RDMA between two ports.
type Measured struct {
	There, Back float64 // B/s; 0 if it was quiet
	Trips       Trips
	Ends        Ends // of this machine
}

// Trips are the round trips of small reads.
type Trips struct {
	Count        int
	Median, Tail time.Duration // Tail: the slowest hundredth took longer
	Late         time.Duration // the longest, over the shortest
	Held         int           // how many took heldBy longer than the shortest
	Broken       bool          // the connection broke: nothing came through for longer than it repeats
}

// setup is sent by each machine before a hunt; plan is the answer.
type (
	setup struct {
		Addr  string   `json:"addr"` // of the TCP server, with its port
		Host  string   `json:"host"` // address of the machine
		Ports []string `json:"ports,omitempty"`
		At    string   `json:"at,omitempty"` // switch
	}
	plan struct {
		Tool     Tool          `json:"tool"`
		Duration time.Duration `json:"duration"`
		Bytes    string        `json:"bytes,omitempty"`
	}
)

// A task is the work of a machine in a round.
type task struct {
	End  bool  `json:"end,omitempty"`
	Jobs []job `json:"jobs,omitempty"`
}

// A job is a machine's part in measuring one group.
type job struct {
	Hunt  int    `json:"hunt"`            // number of the hunt
	Group int    `json:"group"`           // number in the round
	Me    int    `json:"me"`              // position in the group
	Size  int    `json:"size"`            // of the group
	Port  string `json:"port,omitempty"`  // RDMA
	Quiet bool   `json:"quiet,omitempty"` // small packets alone
	Peer  string `json:"peer,omitempty"`  // address of the other machine of a pair
	First string `json:"first,omitempty"`
	Token string `json:"token,omitempty"`
}

// A found is one result of a machine in a round.
type found struct {
	Hunt  int        `json:"hunt"`
	Group int        `json:"group"`
	Me    int        `json:"me"`
	There *hunt.Flow `json:"there,omitempty"`
	Back  *hunt.Flow `json:"back,omitempty"`
	Error string     `json:"error,omitempty"`

	RTT   time.Duration `json:"rtt,omitempty"`
	Tail  time.Duration `json:"tail,omitempty"`
	Tries int           `json:"tries,omitempty"`
	Ends  Ends          `json:"ends,omitzero"`  // RDMA: what this machine's port counted
	Held  int           `json:"held,omitempty"` // RDMA: reads that were held up
}

// Hunt finds the machines that are slower than the rest. All machines call it, within Together. On
// the first machine it returns a report of the results so far even with an error.
func (f *Fabric) Hunt(ctx context.Context, o HuntOptions) (*HuntReport, error) {
	begun := time.Now()
	p, err := newProbes(ctx, f, o)
	if err != nil {
		return nil, err
	}
	defer p.close()
	var d *driver
	b, err := json.Marshal(p.setup)
	if err != nil {
		return nil, err
	}
	b, err = f.ask(b, func(all [][]byte) ([]byte, error) {
		setups, err := decoded[setup](all)
		if err != nil {
			return nil, err
		}
		if d, err = newDriver(ctx, f, o, setups); err != nil {
			return nil, err
		}
		return json.Marshal(d.plan)
	})
	if err != nil {
		return nil, err
	}
	if d != nil {
		defer d.stop()
	}
	if err := json.Unmarshal(b, &p.plan); err != nil {
		return nil, err
	}
	err = f.rounds(ctx, p, d)
	if d == nil {
		return nil, err
	}
	d.stop()
	r, failed := d.report()
	r.Time, r.Seconds = begun.UTC().Truncate(time.Second), time.Since(begun).Seconds()
	return r, cmp.Or(err, failed, r.conclude())
}

// rounds runs the tasks of each round until the first machine ends the hunt.
func (f *Fabric) rounds(ctx context.Context, p *probes, d *driver) error {
	results := []found{}
	for {
		b, err := json.Marshal(results)
		if err != nil {
			return err
		}
		b, err = f.exchangeWithin(p.patience(), b, func(all [][]byte) ([][]byte, error) { return d.next(all) })
		if err != nil {
			return err
		}
		var t task
		if err := json.Unmarshal(b, &t); err != nil {
			return fmt.Errorf("the next round: %w", err)
		}
		if t.End {
			return nil
		}
		together, stop := f.untilLost(ctx)
		results, err = p.measure(together, f, t.Jobs, d)
		stop()
		if err != nil {
			return err
		}
	}
}
