package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/assay-hpc/assay/harness/sysfs"
	"github.com/assay-hpc/assay/perftest/probe"
)

// A Group is the processes that measure together. coll/bootstrap's Net is one.
type Group interface {
	Rank() int
	Size() int
	// AllGather gives b to all ranks and returns what each gave. All call it, in
	// the same order; an error ends the mesh.
	AllGather(ctx context.Context, b []byte) ([][]byte, error)
}

// Alone is the group of one process.
type Alone struct{}

func (Alone) Rank() int { return 0 }
func (Alone) Size() int { return 1 }

// AllGather returns b.
func (Alone) AllGather(ctx context.Context, b []byte) ([][]byte, error) {
	return [][]byte{b}, ctx.Err()
}

// Options are a mesh, from one process's side.
type Options struct {
	// Config is each measurement's; its Host, Port, Device and IBPort are not
	// used.
	Config  probe.Config
	Pattern Pattern
	Serial  bool          // one measurement at a time
	Samples int           // of each cell; 0 is 1
	Limit   time.Duration // how long one measurement may take; 0: none
	Names   []string      // of hosts, instead of their own
	Expect  float64       // what each port's rate should be, Gb/s; 0: not known

	// What follows is this process's own.
	Devices []string // which; empty: all
	IBPort  int      // which of their ports; 0: all
	Host    string   // name of the host
	HostID  string   // the same for all processes of a host, and for no other's
	Addr    string   // where the other processes reach this one
	Tree    sysfs.FS

	Measure  func(context.Context, probe.Config, probe.Events) (*probe.Outcome, error) // probe.Run
	Progress func(Progress)                                                            // may be nil
}

// Progress is how far a mesh is.
type Progress struct {
	Step, Steps int
	Now         []string // the measurements: "a mlx5_0 → b mlx5_0"
}

// A UsageError is the user's to mend.
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

func usagef(format string, a ...any) error { return &UsageError{fmt.Sprintf(format, a...)} }

// A runner is one process's part of a mesh.
type runner struct {
	o      Options
	g      Group
	hellos []hello
	report *Report
	absent []string // hosts without a port, and why
	down   []downPort
	own    map[int]bool // ports that this process measures
}

// A downPort is one that would take part if its link were up.
type downPort struct {
	host  int
	port  localPort
	asked bool // for by name
}

// A hello is what a process tells of itself at the beginning.
type hello struct {
	Host, HostID, Addr string
	Ports              []localPort
	Asked              bool   // ports were chosen by name
	Problem            string // why there are none
	Options            string // what must be the same on all
}

// Run measures with the other processes of the group, all of which call it. The
// report is the same on all. Errors: *UsageError; *probe.NotAvailable where
// fewer than two ports are to be had; the group's, when a process was lost; ctx's.
// What goes wrong with one pair stands in its cell.
func Run(ctx context.Context, o Options, g Group) (*Report, error) {
	o.Samples = max(o.Samples, 1)
	r := &runner{o: o, g: g, own: map[int]bool{}}
	if err := r.meet(ctx); err != nil {
		return nil, err
	}
	if err := r.enlist(); err != nil {
		return nil, err
	}
	rounds, err := r.plan()
	if err != nil {
		return nil, err
	}
	before, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.measure(ctx, rounds); err != nil {
		return nil, err
	}
	after, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	r.compare(before, after)
	r.missing()
	r.report.finish()
	return r.report, nil
}

// gather exchanges a value with all ranks.
func gather[T any](ctx context.Context, g Group, mine T) ([]T, error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	blocks, err := g.AllGather(ctx, b)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(blocks))
	for i, b := range blocks {
		if err := json.Unmarshal(b, &out[i]); err != nil {
			return nil, fmt.Errorf("rank %d sent what cannot be read (is it another version?): %w", i, err)
		}
	}
	return out, nil
}

// merged puts together what ranks have of different ports, or flows.
func merged[V any](lists []map[int]V) map[int]V {
	out := map[int]V{}
	for _, l := range lists {
		maps.Copy(out, l)
	}
	return out
}

// meet exchanges who is there.
func (r *runner) meet(ctx context.Context) (err error) {
	h := hello{Host: r.o.Host, HostID: r.o.HostID, Addr: r.o.Addr, Asked: len(r.o.Devices) > 0}
	same := r.o.Config
	same.Device, same.Source = "", ""
	b, err := json.Marshal([]any{same, r.o.Pattern, r.o.Serial, r.o.Samples, r.o.Names, r.o.Expect})
	if err != nil {
		return err
	}
	h.Options = string(b)
	all, err := localPorts(r.o.Tree)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(all) == 0:
		var a *probe.NotAvailable
		c := r.o.Config
		c.Device = ""
		if h.Problem = "it has no RDMA device"; errors.As(c.Available(r.o.Tree), &a) && r.g.Size() == 1 {
			h.Problem = a.What
		}
	case err != nil:
		h.Problem = err.Error()
	default:
		if h.Ports, err = choose(all, r.o.Devices, r.o.IBPort); err != nil {
			h.Problem = err.Error()
		} else if len(h.Ports) == 0 {
			h.Problem = fmt.Sprintf("its devices have no port %d", r.o.IBPort)
		}
	}
	r.hellos, err = gather(ctx, r.g, h)
	return err
}

// enlist makes the lists of hosts and ports. A port that several processes of a
// host offer is the lowest rank's.
func (r *runner) enlist() error {
	c := &r.o.Config
	r.report = &Report{
		Tool: c.Tool(), Pattern: r.o.Pattern, Serial: r.o.Serial, Both: c.Bidirectional, Bytes: c.LargestSize(0), QPs: c.QPs, Samples: r.o.Samples,
		Latency: c.Measure == probe.Latency, Ports: []Port{}, Cells: []Cell{}, Findings: []Finding{},
	}
	var ids []string
	for rank, h := range r.hellos {
		if h.Options != r.hellos[0].Options {
			return usagef("rank %d (%s) was started with other options than rank 0 (%s)", rank, h.Host, r.hellos[0].Host)
		}
		if !slices.Contains(ids, h.HostID) {
			ids = append(ids, h.HostID)
			r.report.Hosts = append(r.report.Hosts, h.Host)
		}
	}
	switch n := len(r.o.Names); {
	case n > 0 && n != len(ids):
		return usagef("--hosts names %d hosts, and there are %d: %v", n, len(ids), r.report.Hosts)
	case n > 0:
		r.report.Hosts = slices.Clone(r.o.Names)
	default:
		r.report.Hosts = distinct(r.report.Hosts)
	}
	for host, id := range ids {
		r.enlistHost(host, id)
	}
	return r.enough()
}

// distinct tells hosts of the same name apart by a number.
func distinct(names []string) []string {
	out := slices.Clone(names)
	n := map[string]int{}
	for i, name := range names {
		if n[name]++; n[name] > 1 {
			out[i] = fmt.Sprintf("%s#%d", name, n[name])
		}
	}
	return out
}

func (r *runner) enlistHost(host int, id string) {
	type offer struct {
		localPort
		rank  int
		asked bool
	}
	var offers []offer
	problem := ""
	for rank, h := range r.hellos {
		if h.HostID != id {
			continue
		}
		if h.Problem != "" && problem == "" {
			problem = h.Problem
		}
		for _, p := range h.Ports {
			if !slices.ContainsFunc(offers, func(o offer) bool { return o.Device == p.Device && o.Port == p.Port }) {
				offers = append(offers, offer{p, rank, h.Asked})
			}
		}
	}
	if len(offers) == 0 {
		r.absent = append(r.absent, fmt.Sprintf("%s: %s", r.report.Hosts[host], problem))
	}
	rail := 0
	for _, o := range offers {
		if o.Link.State != "ACTIVE" && o.Link.State != "" {
			r.down = append(r.down, downPort{host, o.localPort, o.asked})
			continue
		}
		r.own[len(r.report.Ports)] = o.rank == r.g.Rank()
		r.report.Ports = append(r.report.Ports, Port{
			Host: host, Rank: o.rank, Device: o.Device, Port: o.Port, Rail: rail, LinkType: o.LinkType, Hardware: o.Hardware, Expected: r.o.Expect,
			Before: o.Link, After: o.Link, Counters: map[string]uint64{},
		})
		rail++
	}
}

// enough refuses what is no mesh.
func (r *runner) enough() error {
	n := len(r.report.Ports)
	if n >= 2 || n == 1 && r.o.Pattern == Self {
		return nil
	}
	switch {
	case len(r.hellos) == 1 && r.hellos[0].Problem != "":
		return &probe.NotAvailable{What: r.hellos[0].Problem}
	case n == 0 && len(r.absent) > 0:
		return &probe.NotAvailable{What: fmt.Sprintf("no host has an RDMA port that is up; %s", r.absent[0])}
	case n == 0:
		d := r.down[0]
		return &probe.NotAvailable{What: fmt.Sprintf("no RDMA port is up: %s port %d of %s is %s", d.port.Device, d.port.Port, r.report.Hosts[d.host], d.port.Link.State)}
	}
	return &probe.NotAvailable{What: fmt.Sprintf("a mesh takes two ports, and only %s is there and up: start it on several hosts, with mpirun, srun or torchrun", r.report.Name(0))}
}

// plan makes the steps: what is measured at once.
func (r *runner) plan() ([][]flow, error) {
	var hosts []int
	for _, p := range r.report.Ports {
		hosts = append(hosts, p.Host)
	}
	rounds, err := Schedule(r.o.Pattern, hosts)
	if err != nil {
		return nil, usagef("%v", err)
	}
	if len(rounds) == 0 {
		return nil, usagef("the pattern %s has no pair among the ports that there are", r.o.Pattern)
	}
	r.report.Rounds = len(rounds)
	for i, round := range rounds {
		for _, s := range steps([][]Pair{round}, false, false) {
			for _, f := range s {
				r.report.Cells = append(r.report.Cells, Cell{From: f.From, To: f.To, Round: i, Samples: []float64{}})
			}
		}
	}
	r.report.sortCells()
	return steps(rounds, r.o.Config.Bidirectional, r.o.Serial), nil
}

// A seen is a port as it is at a time.
type seen struct {
	Link     link
	Counters map[string]uint64
}

// look reads links and counters of all ports.
func (r *runner) look(ctx context.Context) (map[int]seen, error) {
	mine := map[int]seen{}
	all, _ := localPorts(r.o.Tree) // without them all ports are gone
	for i := range r.report.Ports {
		if !r.own[i] {
			continue
		}
		p := &r.report.Ports[i]
		s := seen{Link: link{State: "gone"}, Counters: r.counters(i)}
		for _, l := range all {
			if l.Device == p.Device && l.Port == p.Port {
				s.Link = l.Link
			}
		}
		mine[i] = s
	}
	lists, err := gather(ctx, r.g, mine)
	return merged(lists), err
}

// counters reads those of an own port that are watched. A device that has none,
// or does not tell them, is no reason not to measure.
func (r *runner) counters(port int) map[string]uint64 {
	p := &r.report.Ports[port]
	all, _ := r.o.Tree.Counters(p.Device, p.Port)
	out := map[string]uint64{}
	for name, v := range all {
		if _, ok := watched(name); ok {
			out[name] = v
		}
	}
	return out
}

// compare notes what has changed of the ports.
func (r *runner) compare(before, after map[int]seen) {
	for i := range r.report.Ports {
		p := &r.report.Ports[i]
		p.Before, p.After = before[i].Link, after[i].Link
		p.Counters = increases(before[i].Counters, after[i].Counters)
	}
}
