//go:build cgo && linux

package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/coll/transport/slots"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	rdma "github.com/assay-hpc/assay/internal/verbs"
)

// A Net holds the usable ports, with their devices open. An Endpoint takes ownership of
// it.
type Net struct {
	adapters []*adapter
	ports    []*port
}

// An adapter is an open device.
type adapter struct {
	ctx *rdma.Context
	pd  *rdma.PD
}

// A port is a port of an adapter, with its source address.
type port struct {
	*adapter
	rdma.Port
	gid  rdma.GIDEntry // Index -1: there is none
	down atomic.Int64  // when the link was last lost, in nanoseconds since 1970; 0: never
}

// Find opens the devices that have a port that is allowed, is up and has an address. If
// there is none, it fails with the reasons.
func Find(s Selection) (*Net, error) {
	if s.Logf == nil {
		s.Logf = func(string, ...any) {}
	}
	names, err := rdma.Names()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	n := &Net{}
	var lacks []error
	for _, name := range names {
		if err := n.add(name, &s); err != nil {
			s.Logf("%v", err)
			lacks = append(lacks, err)
		}
	}
	if len(n.ports) > 0 {
		return n, nil
	}
	n.Close()
	if len(names) == 0 {
		lacks = append(lacks, errors.New("no RDMA device: none in /sys/class/infiniband, or no provider for it (ibverbs-providers), or no /dev/infiniband in this container"))
	}
	return nil, fmt.Errorf("%w: %w", errUnavailable, slots.OneLine(lacks))
}

// add opens a device if it has a usable port, and returns why other ports are not usable.
func (n *Net) add(name string, s *Selection) error {
	ctx, err := rdma.Open(name)
	if err != nil {
		return err
	}
	a := &adapter{ctx: ctx}
	limits, err := ctx.Limits()
	if err != nil {
		return errors.Join(err, ctx.Close())
	}
	var lacks []error
	var ports []*port
	for number := 1; number <= limits.Ports; number++ {
		p, err := a.port(number, s)
		if err != nil {
			lacks = append(lacks, err)
			continue
		}
		ports = append(ports, p)
	}
	if len(ports) > 0 {
		if a.pd, err = ctx.PD(); err == nil {
			n.adapters, n.ports = append(n.adapters, a), append(n.ports, ports...)
			return slots.OneLine(lacks)
		}
		lacks = append(lacks, err)
	}
	if err := ctx.Close(); err != nil {
		lacks = append(lacks, err)
	}
	return slots.OneLine(lacks)
}

// port queries a port and its address, or returns why the port cannot be used.
func (a *adapter) port(number int, s *Selection) (*port, error) {
	if !admits(s.HCA, a.ctx.Name(), number) {
		return nil, fmt.Errorf("%s port %d is not one of NCCL_IB_HCA=%s", a.ctx.Name(), number, s.HCA)
	}
	p, err := a.ctx.Port(number)
	if err != nil {
		return nil, err
	}
	if !p.Active() {
		return nil, fmt.Errorf("%s port %d is %v, not ACTIVE", a.ctx.Name(), number, p.State)
	}
	table, err := a.ctx.GIDs(number)
	if err != nil {
		return nil, err
	}
	gid, err := s.choose(table, p.Ethernet)
	if err != nil {
		return nil, fmt.Errorf("%s port %d: %w", a.ctx.Name(), number, err)
	}
	return &port{adapter: a, Port: p, gid: gid}, nil
}

// choose selects an address from a port's GID table. On InfiniBand, where the LID is
// sufficient within a subnet, the address serves to reach other subnets through a router.
func (s *Selection) choose(table []rdma.GIDEntry, ethernet bool) (rdma.GIDEntry, error) {
	index, ok := s.GIDIndex, s.GIDIndex >= 0
	if !ok && !ethernet {
		index, ok = 0, true
	}
	if !ok {
		index, ok = rdma.DefaultGID(s.ofVersion(table), s.IPv6)
	}
	i := slices.IndexFunc(table, func(e rdma.GIDEntry) bool { return e.Index == index && !e.GID.IsZero() })
	switch {
	case ok && i >= 0:
		return table[i], nil
	case !ethernet && s.GIDIndex < 0:
		return rdma.GIDEntry{Index: -1}, nil
	case s.GIDIndex >= 0:
		return rdma.GIDEntry{}, fmt.Errorf("there is no address at NCCL_IB_GID_INDEX=%d", s.GIDIndex)
	}
	return rdma.GIDEntry{}, errors.New("it has no address (GID): has its interface one?")
}

// ofVersion returns a table's addresses of the wanted RoCE version, or the whole table if
// it has none.
func (s *Selection) ofVersion(table []rdma.GIDEntry) []rdma.GIDEntry {
	want := cmp.Or(s.RoCEVersion, 2)
	of := slices.DeleteFunc(slices.Clone(table), func(e rdma.GIDEntry) bool { return int(e.RoCE) != want || e.GID.IsZero() })
	if len(of) == 0 {
		return table
	}
	return of
}

// Ports describes the ports, in the order in which channels use them.
func (n *Net) Ports() (list []PortInfo) {
	speeds := speeds()
	for _, p := range n.ports {
		i := PortInfo{Device: p.ctx.Name(), Port: p.Number, Layer: p.layer(), MTU: p.MTU.Bytes()}
		i.Mbit = speeds[p.String()]
		if p.Ethernet {
			i.GID = fmt.Sprintf("GID %d %v %v", p.gid.Index, p.gid.GID, p.gid.RoCE)
		} else {
			i.GID = fmt.Sprintf("LID 0x%04x", p.LID)
		}
		list = append(list, i)
	}
	return list
}

// speeds returns the speed of each port in Mbit/s, where it is known.
func speeds() map[string]int {
	all := map[string]int{}
	fs, err := sysfs.Open("/")
	if err != nil {
		return all
	}
	devices, _ := fs.RDMADevices() // without devices there are no speeds
	for _, d := range devices {
		for _, p := range d.Ports {
			all[portName(d.Name, p.Number)] = int(p.Rate.Gbit * 1000)
		}
	}
	return all
}

func portName(device string, port int) string { return fmt.Sprintf("%s port %d", device, port) }

func (p *port) layer() string {
	if p.Ethernet {
		return "RoCE"
	}
	return "IB"
}

func (p *port) String() string { return portName(p.ctx.Name(), p.Number) }

// Close closes the devices. Everything created with them must be closed first.
func (n *Net) Close() error {
	errs := make([]error, len(n.adapters))
	var wg sync.WaitGroup
	for i, a := range n.adapters { // closing takes the kernel a while
		wg.Go(func() { errs[i] = cmp.Or(a.pd.Close(), a.ctx.Close()) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// listen logs and records the events of the ports, and reports dead devices to fatal.
func (n *Net) listen(logf func(string, ...any), fatal func(error)) {
	for _, a := range n.adapters {
		err := a.ctx.Events(func(e rdma.Event) {
			if e.Established() { // arrives for each connection
				return
			}
			logf("%s: event: %v", a.ctx.Name(), e)
			if e.Dead() {
				fatal(fmt.Errorf("the RDMA device %s has failed (%v): see the kernel's log", a.ctx.Name(), e.Type))
			}
			for _, p := range n.ports {
				if p.adapter == a && p.Number == e.Port {
					p.note(e)
				}
			}
		})
		if err != nil { // requests to a dead device still fail
			logf("%v", err)
		}
	}
}

// note records when the link was lost.
func (p *port) note(e rdma.Event) {
	if e.Down() {
		p.down.Store(time.Now().UnixNano())
	}
}

// trouble returns what is known about a port that may explain why requests fail, or "".
func (p *port) trouble() string {
	at := p.down.Load()
	if at == 0 {
		return ""
	}
	s := fmt.Sprintf("; %v lost its link %v ago", p, time.Since(time.Unix(0, at)).Round(time.Millisecond))
	if now, err := p.ctx.Port(p.Number); err == nil {
		s += fmt.Sprintf(", and is %v now", now.State)
	}
	return s
}
