package fabric

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/harness/hunt"
)

// A Tool is what a hunt measures with.
type Tool string

// The tools.
const (
	Auto Tool = ""     // RDMA where machines have it, else TCP
	TCP  Tool = "tcp"  // TCP between the machines' addresses
	RDMA Tool = "rdma" // RDMA writes between ports of one name, each name by itself
	Coll Tool = "coll" // all-reduce among the GPUs of groups
)

// HuntOptions of a hunt; the first machine's count.
type HuntOptions struct {
	hunt.Options
	Tool     Tool
	Duration time.Duration // of a measurement, in each direction; 0: 200 ms of TCP, else 500
	Bytes    string        // of the all-reduce
	Coll     []string      // flags of harness coll on this machine besides: how many GPUs
	// Ports are this machine's by name, which RDMA measures. Without it there are none.
	Ports []string
	RDMA  Prober
	// At is the switch or rack that this machine is at; "": not known.
	At string
	// Progress, if not nil, is called before each round at the first machine.
	Progress func(round, undecided int)
}

// A Prober measures RDMA between ports.
type Prober interface {
	// Listen waits for one peer at a port of this machine, and says at which TCP
	// port it may come. Wait returns when that measurement has ended.
	Listen(ctx context.Context, port string, d time.Duration) (at int, wait func() (Side, error), err error)
	// Measure measures both ways, from a port of this machine to the one that listens.
	Measure(ctx context.Context, port string, host string, at int, d time.Duration) (there, back float64, own Side, err error)
}

// A Side is what one end of a measurement saw of loss: how many packets it sent
// again, and how many it sent; 0 if that is not known.
type Side struct {
	Resent, Sent uint64
}

// setup is what each machine says before a hunt, plan the answer.
type (
	setup struct {
		Addr  string   `json:"addr"` // of the TCP server, with its port
		Host  string   `json:"host"` // where it is reached
		Ports []string `json:"ports,omitempty"`
		At    string   `json:"at,omitempty"` // switch
	}
	plan struct {
		Tool     Tool          `json:"tool"`
		Duration time.Duration `json:"duration"`
		Bytes    string        `json:"bytes,omitempty"`
	}
)

// A task is what a machine has to do in a round.
type task struct {
	End  bool  `json:"end,omitempty"`
	Jobs []job `json:"jobs,omitempty"`
}

// A job is a machine's part in the measurement of one group.
type job struct {
	Hunt  int    `json:"hunt"`           // by number
	Group int    `json:"group"`          // of the round
	Me    int    `json:"me"`             // place in the group
	Size  int    `json:"size"`           // of the group
	Port  string `json:"port,omitempty"` // RDMA
	Peer  string `json:"peer,omitempty"` // where the other one of a pair is
	First string `json:"first,omitempty"`
	Token string `json:"token,omitempty"`
}

// A found is what a machine found out in a round.
type found struct {
	Hunt   int        `json:"hunt"`
	Group  int        `json:"group"`
	Me     int        `json:"me"`
	There  *hunt.Flow `json:"there,omitempty"`
	Back   *hunt.Flow `json:"back,omitempty"`
	Resent float64    `json:"resent,omitempty"` // of what this end sent
	Error  string     `json:"error,omitempty"`
}

// Hunt finds the machines that are slower than the rest: all call it. At the first
// machine it returns the report, also with an error, of what was found until then.
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
	b, err = f.Ask(b, func(all [][]byte) ([]byte, error) {
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

// rounds measures as it is told, until the first machine has enough.
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
		together, stop := f.UntilGone(ctx)
		results, err = p.measure(together, f, t.Jobs, d)
		stop()
		if err != nil {
			return err
		}
	}
}
