package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/perftest/probe"
)

// An rdmaProber measures RDMA writes between ports, in both directions at once.
type rdmaProber struct {
	tree  sysfs.FS
	ports map[string]rdmaPort
}

type rdmaPort struct {
	device string
	number int
	rate   float64 // B/s
}

// rdmaMessage is the size of a message.
const rdmaMessage = 64 << 10

// RDMAPorts returns the names of this machine's active ports and their prober, or nil if there are
// none.
func RDMAPorts() ([]string, Prober) {
	tree, err := sysfs.Open("/")
	if err != nil {
		return nil, nil
	}
	devices, err := tree.RDMADevices()
	if err != nil {
		return nil, nil
	}
	p := &rdmaProber{tree: tree, ports: map[string]rdmaPort{}}
	for _, d := range devices {
		for _, port := range d.Ports {
			if port.State == "ACTIVE" {
				p.ports[fmt.Sprintf("%s/%d", d.Name, port.Number)] = rdmaPort{d.Name, port.Number, port.Rate.Gbit / 8 * 1e9}
			}
		}
	}
	if len(p.ports) == 0 {
		return nil, nil
	}
	return slices.Sorted(maps.Keys(p.ports)), p
}

// config returns the configuration of a measurement that takes d at the port's rate.
func (p *rdmaProber) config(name string, d time.Duration) (rdmaPort, probe.Config, error) {
	port, ok := p.ports[name]
	if !ok {
		return port, probe.Config{}, fmt.Errorf("there is no port %s", name)
	}
	c := probe.Default(probe.Write, probe.Bandwidth)
	c.Device, c.IBPort, c.Bidirectional, c.Port = port.device, port.number, true, 0
	c.Size, c.Iterations = rdmaMessage, max(20, uint64(port.rate*d.Seconds()/rdmaMessage))
	return port, c, nil
}

// Listen implements Prober.
func (p *rdmaProber) Listen(ctx context.Context, name string, d time.Duration) (at int, wait func() (Side, error), err error) {
	port, c, err := p.config(name, d)
	if err != nil {
		return 0, nil, err
	}
	before := p.counters(port)
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		_, err := probe.Run(ctx, c, probe.Events{Waiting: func(addr string) { ready <- addr }})
		done <- err
	}()
	select {
	case addr := <-ready:
		to, err := netip.ParseAddrPort(addr)
		return int(to.Port()), func() (Side, error) {
			err := <-done
			return p.side(port, before), err
		}, err
	case err := <-done:
		if err == nil {
			err = errors.New("it ended without a peer")
		}
		return 0, nil, err
	}
}

// Measure implements Prober.
func (p *rdmaProber) Measure(ctx context.Context, name, host string, at int, d time.Duration) (there, back float64, own Side, err error) {
	port, c, err := p.config(name, d)
	if err != nil {
		return 0, 0, own, err
	}
	c.Host, c.Port = host, at
	before := p.counters(port)
	out, err := probe.Run(ctx, c, probe.Events{})
	if err != nil {
		return 0, 0, own, err
	}
	if len(out.Rows) == 0 || out.Rows[0].Local == nil || out.Rows[0].Remote == nil {
		return 0, 0, own, errors.New("the measurement has no result for each direction")
	}
	row := out.Rows[len(out.Rows)-1]
	return row.Local.Average, row.Remote.Average, p.side(port, before), nil
}

// counters returns a port's counters, nil if they cannot be read.
func (p *rdmaProber) counters(port rdmaPort) map[string]uint64 {
	c, err := p.tree.Counters(port.device, port.number)
	if err != nil {
		return nil
	}
	return c
}

// resent are the sender's counters of retransmitted packets, by their names in mlx5 and
// soft RoCE.
var resent = []string{"packet_seq_err", "local_ack_timeout_err", "roce_adp_retrans", "rcvd_seq_err", "completer_retry_err"}

// side returns the packet loss that a port has seen since before. Each event is at least
// one packet.
func (p *rdmaProber) side(port rdmaPort, before map[string]uint64) (s Side) {
	after := p.counters(port)
	up := func(name string) uint64 {
		if was, is := before[name], after[name]; is > was {
			return is - was
		}
		return 0
	}
	for _, name := range resent {
		s.Resent = max(s.Resent, up(name))
	}
	s.Sent = max(up("port_xmit_packets"), up("sent_pkts"))
	return s
}
