package session

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/netplugin"
	"github.com/assay-hpc/assay/coll/transport/slots"
	"github.com/assay-hpc/assay/coll/transport/socket"
	"github.com/assay-hpc/assay/coll/transport/verbs"
	"github.com/assay-hpc/assay/internal/meet"
)

// A network connects ranks that shared memory does not reach.
type network struct {
	name  string // as NCCL_NET calls it
	limit int    // longest message in bytes; 0: no limit
	speed choose.Network
	open  func() (transport.Endpoint, error)
	drop  func() // called if it is not opened; may be nil
}

// socketNet is the name of TCP in NCCL_NET. Plugins have names of their own.
const socketNet = "Socket"

// networks returns the networks that this rank has, the preferred one first, and its offer, which
// also says why others are missing. local are the ranks of this host.
func (l *Links) networks(local []int) (list []network, o offer) {
	index := slices.Index(local, l.cfg.Rank)
	o.Forced = l.cfg.Net
	list, o.Lacks = l.pluginNetworks(index)
	if !slices.ContainsFunc(list, func(n network) bool { return strings.EqualFold(n.name, verbs.Name) }) { // a plugin may replace it
		ib, err := l.ibNetwork(index)
		if err != nil {
			o.LacksIB = err.Error()
		} else {
			list = append(list, ib)
		}
	}
	list = append(list, network{name: socketNet, open: func() (transport.Endpoint, error) { return l.openSocket(l.key("socket")) }})
	if forced := l.cfg.Net; forced != "" {
		list = slices.DeleteFunc(list, func(n network) bool {
			other := !strings.EqualFold(n.name, forced)
			if other && n.drop != nil {
				n.drop()
			}
			return other
		})
	}
	for _, n := range list {
		o.Names, o.Limits, o.Speeds = append(o.Names, n.name), append(o.Limits, n.limit), append(o.Speeds, n.speed)
	}
	return list, o
}

// pluginNetworks returns the network of the first plugin of NCCL_NET_PLUGIN that can be used.
// index is the rank's index among the ranks of its host.
func (l *Links) pluginNetworks(index int) (list []network, lacks []string) {
	if strings.EqualFold(l.cfg.Net, socketNet) {
		return nil, nil
	}
	l.logPlugins()
	for _, entry := range netplugin.Entries(l.cfg.NetPlugin) {
		n, err := l.pluginNet(entry)
		if err == nil {
			return []network{l.pluginNetwork(n, index)}, lacks
		}
		lacks = append(lacks, err.Error())
		if l.cfg.NetPlugin == "" { // no plugin was requested
			l.cfg.Log.Infof(debug.Init|debug.Net, "NET/Plugin: %v", err)
		} else {
			l.cfg.Log.Warnf("NET/Plugin: NCCL_NET_PLUGIN=%s: %v", l.cfg.NetPlugin, err)
		}
	}
	return nil, lacks
}

// pluginNet loads and initializes a plugin.
func (l *Links) pluginNet(entry string) (*netplugin.Net, error) {
	lib, err := netplugin.Load(entry)
	if err != nil {
		return nil, err
	}
	l.cfg.Log.Infof(debug.Init|debug.Net, "NET/Plugin: loaded net plugin %s (v%d) from %s", lib.Name(), lib.Version(), lib.File())
	if l.cfg.Net != "" && !strings.EqualFold(lib.Name(), l.cfg.Net) {
		return nil, fmt.Errorf("the network of %s is %s, and NCCL_NET=%s", lib.File(), lib.Name(), l.cfg.Net)
	}
	n, err := lib.Init(l.pluginID())
	if err != nil {
		return nil, err
	}
	for d, p := range n.Devices() {
		l.cfg.Log.Infof(debug.Init|debug.Net, "NET/Plugin: %s: device %d is %s, port %d, %d Mbit/s", lib.Name(), d, p.Name, p.Port, p.Speed)
	}
	if name, ok := lib.CollNetName(); ok && !l.Env.CollNetEnable {
		l.cfg.Log.Infof(debug.Init|debug.Net, "NET/Plugin: collnet plugin %s is not used: NCCL_COLLNET_ENABLE is not 1", name)
	}
	return n, nil
}

// pluginID identifies the communicator to plugins.
func (l *Links) pluginID() uint64 { return binary.LittleEndian.Uint64(l.key("net plugin id")) }

// pluginNetwork returns the network of a plugin that was initialized.
func (l *Links) pluginNetwork(n *netplugin.Net, index int) network {
	limit := uint64(0)
	devices := n.Devices()
	speed := choose.Network{Mbit: devices[0].Speed}
	for _, d := range devices {
		if limit == 0 || d.MaxBytes < limit {
			limit = d.MaxBytes
		}
		speed = speed.Slower(choose.Network{Mbit: d.Speed, Latency: float64(d.Latency)})
	}
	speed.Devices = len(devices)
	return network{
		name:  n.Library().Name(),
		limit: netplugin.LongestMessage(limit),
		speed: speed,
		drop:  func() { _ = n.Close() },
		open: func() (transport.Endpoint, error) {
			return netplugin.Open(netplugin.Options{Net: n, Options: l.slotOptions("net plugin", index)})
		},
	}
}

// slotOptions returns the options of a network that passes messages through registered slots,
// except the network itself. kind keeps its keys apart from those of other networks.
func (l *Links) slotOptions(kind string, index int) slots.Options {
	return slots.Options{
		Rank: l.cfg.Rank, Comm: l.key(kind + " name"), Key: l.key(kind), Fault: l.cfg.Fault,
		Addrs: addrs(l.cfg.Boot.Addrs()), First: index, MaxMessage: l.Env.Slot, Logf: l.logf,
	}
}

// logPlugins makes plugins log to this communicator's log. They have one log per process: that of
// the newest communicator.
func (s *Session) logPlugins() {
	log := s.cfg.Log
	level := netplugin.Level(0)
	switch {
	case log.Enabled(debug.Trace, debug.All):
		level = netplugin.Trace
	case log.Enabled(debug.Info, debug.All):
		level = netplugin.Info
	case log.Enabled(debug.Warn, 0):
		level = netplugin.Warn
	default:
		return
	}
	netplugin.Log(level, func(l netplugin.Line) {
		about := pluginSubsystems(l.Subsystems)
		switch {
		case l.Level <= netplugin.Warn:
			log.Warnf("%s", l.Text)
		case l.Level == netplugin.Info:
			log.Infof(about, "%s", l.Text)
		default:
			log.Tracef(about, "%s", l.Text)
		}
	})
}

// pluginBits are the subsystems of a plugin's log line, by NCCL's bits from the lowest.
var pluginBits = []debug.Subsystems{
	debug.Init, debug.Coll, debug.P2P, debug.SHM, debug.Net, debug.Graph, debug.Tuning, debug.Env,
	debug.Alloc, debug.Call, debug.Proxy, debug.NVLS, debug.Bootstrap, debug.Reg, debug.Profile, debug.RAS, debug.Destroy,
}

func pluginSubsystems(bits uint64) (s debug.Subsystems) {
	for i, sub := range pluginBits {
		if bits&(1<<i) != 0 {
			s |= sub
		}
	}
	return s
}

// familiesAfter is how many interfaces come before their addresses of the other family. Streams use the
// first addresses in turn, so that all interfaces carry as much; hosts with more interfaces have networks
// of containers.
const familiesAfter = 8

// addrs returns this host's addresses, one per interface and family: a second one uses the same wire. Of
// an interface's two families that comes first by which the rank has reached the root, which another rank
// may have reached by the other one.
func addrs(all []meet.Interface) []netip.Addr {
	type wire struct {
		name string
		v4   bool
	}
	var first, second []netip.Addr
	named, seen := map[string]bool{}, map[wire]bool{}
	for _, i := range all {
		w := wire{i.Name, i.Addr.Is4()}
		switch {
		case !named[i.Name]:
			first = append(first, i.Addr)
		case !seen[w] && !i.Addr.IsLinkLocalUnicast():
			second = append(second, i.Addr)
		}
		named[i.Name], seen[w] = true, true
	}
	return slices.Insert(first, min(len(first), familiesAfter), second...)
}

// openSocket opens the TCP endpoint.
func (l *Links) openSocket(key []byte) (transport.Endpoint, error) {
	o := socket.Options{
		Rank: l.cfg.Rank, Comm: l.key("socket name"), Key: key, Fault: l.cfg.Fault,
		Addrs: addrs(l.cfg.Boot.Addrs()), MaxMessage: l.Env.Slot, Logf: l.logf,
	}
	if n := l.cfg.SocketThreads; n >= 0 {
		o.Threads = n
	}
	if n := l.cfg.SocketsPerThread; n >= 0 {
		o.PerThread = n
	}
	e, err := socket.Open(o)
	if err != nil {
		return nil, err // e is no nil in an interface
	}
	return e, nil
}

// An offer describes a rank's networks to the others.
type offer struct {
	Forced string           `json:"forced,omitempty"` // NCCL_NET
	Names  []string         `json:"names"`            // the preferred one first
	Limits []int            `json:"limits"`           // of messages, in bytes; 0: none
	Speeds []choose.Network `json:"speeds"`
	Lacks  []string         `json:"lacks,omitempty"` // why there is no plugin network

	LacksIB string `json:"lacks_ib,omitempty"` // why there is no InfiniBand
}

// openNetwork opens the network that the ranks have agreed on. The first call agrees on it.
func (l *Links) openNetwork(ctx context.Context, local []int) error {
	list, mine := l.networks(local)
	var err error
	if l.network == "" {
		l.network, err = l.agreeNetwork(ctx, mine)
	}
	for _, n := range list {
		if err == nil && n.name == l.network {
			l.cfg.Log.Infof(debug.Init|debug.Net, "Using network %s", n.name)
			l.netName = n.name
			l.net, err = n.open()
		} else if n.drop != nil {
			n.drop()
		}
	}
	return err
}

// agreeNetwork makes all ranks choose the same network, and a message length that all of them
// support.
func (s *Session) agreeNetwork(ctx context.Context, mine offer) (name string, err error) {
	all, err := ExchangeJSON(ctx, s, mine)
	if err != nil {
		return "", err
	}
	if r := slices.IndexFunc(all, func(o offer) bool { return len(o.Names) != len(o.Limits) || len(o.Names) != len(o.Speeds) }); r >= 0 {
		return "", s.errorOf(op.InternalError, "rank %d sent a damaged list of networks", r)
	}
	name, without, err := commonNetwork(all)
	if err != nil {
		return "", s.together(ctx, &op.Error{Code: op.InvalidUsage, Rank: s.cfg.Rank, Op: "CommInitRank", Peer: without, Err: err})
	}
	if without >= 0 && s.cfg.Rank == 0 {
		s.cfg.Log.Warnf("NET: rank %d has no network %s (%s); all ranks use %s", without, all[0].Names[0], all[without].why(all[0].Names[0]), name)
	}
	speed := all[0].Speeds[slices.Index(all[0].Names, name)]
	for _, o := range all {
		i := slices.Index(o.Names, name)
		if limit := o.Limits[i]; limit > 0 {
			s.Env.Slot = min(s.Env.Slot, limit&^63)
		}
		speed = speed.Slower(o.Speeds[i])
	}
	s.Env.NetCost = choose.Socket
	if name != socketNet {
		s.Env.NetCost = speed.Transport(name)
	}
	return name, nil
}

// why returns why an offer lacks a network.
func (o offer) why(name string) string {
	if strings.EqualFold(name, verbs.Name) {
		return o.LacksIB
	}
	return cmp.Or(strings.Join(o.Lacks, "; "), "no plugin was asked for")
}

// commonNetwork returns the first of rank 0's networks that all ranks have. without is a rank
// that lacks a preferred one, or that has no network in common with the others; op.NoPeer if there
// is no such rank.
func commonNetwork(all []offer) (name string, without int, err error) {
	without = op.NoPeer
	for r, o := range all {
		if len(o.Names) == 0 {
			return "", r, fmt.Errorf("rank %d has no network of the name that NCCL_NET says, %s: %s", r, o.Forced, o.why(o.Forced))
		}
	}
	for _, name := range all[0].Names {
		lacking := slices.IndexFunc(all, func(o offer) bool { return !slices.Contains(o.Names, name) })
		if lacking < 0 {
			return name, without, nil
		}
		if without == op.NoPeer {
			without = lacking
		}
	}
	o := all[without]
	return "", without, fmt.Errorf("rank %d has the networks %s, and rank 0 has %s: %s", without, strings.Join(o.Names, ", "), strings.Join(all[0].Names, ", "), o.why(all[0].Names[0]))
}
