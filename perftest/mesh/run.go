package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/perftest/probe"
)

// A Group is a set of processes that measure together. The Net of coll/bootstrap is one.
type Group interface {
	Rank() int
	Size() int
	// AllGather sends b to all ranks and returns the blocks of all. All ranks call it in the same
	// order. An error ends the mesh.
	AllGather(ctx context.Context, b []byte) ([][]byte, error)
}

// Alone is a group of one process.
type Alone struct{}

func (Alone) Rank() int { return 0 }
func (Alone) Size() int { return 1 }

// AllGather returns b.
func (Alone) AllGather(ctx context.Context, b []byte) ([][]byte, error) {
	return [][]byte{b}, ctx.Err()
}

// Options define a mesh, as one process sees it.
type Options struct {
	// Config is used for each measurement; its Host, Port, Device and IBPort are ignored.
	Config  probe.Config
	Pattern Pattern
	Serial  bool          // one measurement at a time
	Samples int           // per cell; 0 is 1
	Limit   time.Duration // for one measurement; 0: none
	Names   []string      // of hosts, instead of their own names
	Expect  float64       // expected rate of each port, Gb/s; 0: not known

	// The following fields are specific to this process.
	Devices []string // to use; empty: all
	IBPort  int      // to use on each device; 0: all
	Host    string   // name of the host
	HostID  string   // the same for all processes of a host, different for other hosts
	Addr    string   // at which the other processes reach this one
	Tree    sysfs.FS

	Measure  func(context.Context, probe.Config, probe.Events) (*probe.Outcome, error) // probe.Run
	Progress func(Progress)                                                            // may be nil
}

// Progress is the progress of a mesh.
type Progress struct {
	Step, Steps int
	Now         []string // the measurements: "a mlx5_0 → b mlx5_0"
}

// A UsageError is an error that the user can correct.
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

func usagef(format string, a ...any) error { return &UsageError{fmt.Sprintf(format, a...)} }

// A runner is one process's part of a mesh.
type runner struct {
	o      Options
	g      Group
	hellos []hello
	report *Report
	absent []string // hosts without a port, and the reason
	down   []downPort
	own    map[int]bool // ports that this process measures
}

// A downPort is a port that would take part if its link were up.
type downPort struct {
	host  int
	port  localPort
	asked bool // it was requested by name
}

// A hello describes a process to the others at the beginning.
type hello struct {
	Host, HostID, Addr string
	Ports              []localPort
	Asked              bool   // ports were chosen by name
	Problem            string // why there are no ports
	Options            string // must be the same on all ranks
}

// Run measures together with the other processes of the group, all of which must call it. The
// report is the same on all ranks. Errors: *UsageError; *probe.NotAvailable if there are fewer than
// two ports; the group's error if a process was lost; ctx's error. A failure of a single pair is in
// its cell.
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
	before, err := r.readLinks(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.measure(ctx, rounds); err != nil {
		return nil, err
	}
	after, err := r.readLinks(ctx)
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

// merged combines what the ranks report about different ports or flows.
func merged[V any](lists []map[int]V) map[int]V {
	out := map[int]V{}
	for _, l := range lists {
		maps.Copy(out, l)
	}
	return out
}

// meet exchanges the hellos.
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

// enlist builds the lists of hosts and ports. A port that several processes of a host offer belongs
// to the lowest rank.
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
		if other := slices.IndexFunc(r.hellos[:rank], func(o hello) bool { return o.HostID != h.HostID && sameAddress(o.Addr, h.Addr) }); other >= 0 {
			return &probe.NotAvailable{What: fmt.Sprintf("rank %d (%s) and rank %d (%s) have the same address %s: a duplicate address, or that of a bridge on each host: NCCL_SOCKET_IFNAME names the interface that reaches the others", other, r.hellos[other].Host, rank, h.Host, h.Addr)}
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

// sameAddress reports whether two hosts claim one address.
func sameAddress(a, b string) bool {
	at, err := netip.ParseAddr(a)
	return err == nil && a == b && !at.IsLoopback()
}

// distinct distinguishes hosts of the same name by a number.
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

// enough returns an error if there are too few ports for a mesh.
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

// plan builds the steps, which are the flows measured at once.
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

// A seen is the state of a port at one time.
type seen struct {
	Link     link
	Counters map[string]uint64
}

// readLinks reads the links and counters of all ports.
func (r *runner) readLinks(ctx context.Context) (map[int]seen, error) {
	mine := map[int]seen{}
	all, _ := localPorts(r.o.Tree) // on an error all ports count as gone
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

// counters reads the watched counters of a port of this process. A device without counters is still
// measured.
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

// compare records the changes of the ports.
func (r *runner) compare(before, after map[int]seen) {
	for i := range r.report.Ports {
		p := &r.report.Ports[i]
		p.Before, p.After = before[i].Link, after[i].Link
		p.Counters = increases(before[i].Counters, after[i].Counters)
	}
}
