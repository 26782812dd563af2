package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/netplugin"
	"github.com/assay-hpc/assay/coll/transport/slots"
)

// A collNet is a communicator's state for a network that reduces: the network's capabilities, the
// same on all ranks, and, on the first rank of each host (its head), the connection.
type collNet struct {
	why     string               // why the network is not used; "": it is
	does    uint32               // bit set of the collectives that the network does
	reduces [elem.Avg + 1]bitSet // element types, by reduction
	heads   *netplugin.Heads     // nil on ranks that are no heads
}

type bitSet uint32

func (b bitSet) has(i uint8) bool { return b&(1<<i) != 0 }

// A headOffer describes a head's network to all ranks.
type headOffer struct {
	Name     string           `json:"name,omitempty"` // the network's
	Handle   []byte           `json:"handle,omitempty"`
	Does     uint32           `json:"does"`
	Reduces  [elem.Avg]bitSet `json:"reduces"`
	MaxBytes uint64           `json:"max_bytes"`
	Error    string           `json:"error,omitempty"` // why the head has no network
}

// openCollNet connects the hosts' heads over the plugin's network, if it is wanted. A failure is
// not an error unless NCCL_ALGO allows nothing else.
func (l *Links) openCollNet(ctx context.Context) error {
	n := &collNet{}
	l.collNet = n
	if n.why = l.unwanted(); n.why == "" {
		if err := l.connectHeads(ctx, n); err != nil {
			return err
		}
		if n.why != "" && l.cfg.Rank == 0 {
			l.cfg.Log.Warnf("COLLNET: not used: %s", n.why)
		}
	} else if l.Env.CollNetEnable && l.cfg.Rank == 0 {
		l.cfg.Log.Infof(debug.Init|debug.Net, "COLLNET: not used: %s", n.why)
	}
	for coll := range op.NumCollectives {
		if l.Env.CollNetOnly(coll) && n.why != "" {
			return l.together(ctx, l.errorOf(op.InvalidUsage, "NCCL_ALGO=%v leaves %v the network's own reductions only: %s", l.Env.Algo, coll, n.why))
		}
	}
	return nil
}

// unwanted returns why reductions are not left to the network, judged by what all ranks have in
// common; "" if they may be.
func (s *Session) unwanted() string {
	k, hosts := &s.Env, len(s.Env.Hosts)
	switch {
	case !k.CollNetEnable:
		return "NCCL_COLLNET_ENABLE is not 1"
	case k.SameBits:
		return "ASSAY_SAME_BITS is 1, and the network adds in its own order"
	case hosts == 1:
		return "all ranks are of one host"
	case hosts < k.CollNetThreshold:
		return fmt.Sprintf("there are %d hosts, fewer than NCCL_COLLNET_NODE_THRESHOLD, which is %d", hosts, k.CollNetThreshold)
	case !slices.ContainsFunc(op.InNetwork, s.mayReduce):
		return fmt.Sprintf("NCCL_ALGO=%v and NCCL_PROTO=%v leave it nothing", k.Algo, k.Proto)
	case len(s.Env.Rings) > 0:
		return "NCCL_RINGS says which rings are used"
	}
	return ""
}

// mayReduce reports whether a collective may be left to the network.
func (s *Session) mayReduce(coll op.Collective) bool {
	k := &s.Env
	return k.Algo.Allows(coll, schedule.CollNet) && k.Proto.Allows(coll, "simple") && (coll == op.AllReduce || schedule.Regular(s.Env.Hosts))
}

// connectHeads creates the heads' group. All ranks agree on whether it exists.
func (l *Links) connectHeads(ctx context.Context, n *collNet) error {
	var mine headOffer
	var table *netplugin.CollNet
	var listener *netplugin.CollListener
	index := slices.IndexFunc(l.Env.Hosts, func(g []int) bool { return g[0] == l.cfg.Rank })
	if index >= 0 {
		var err error
		if table, listener, err = l.listenCollNet(); err != nil {
			mine.Error = err.Error()
		} else {
			mine = offerOf(table, listener)
		}
	}
	all, err := ExchangeJSON(ctx, l.Session, mine)
	var handles [][netplugin.HandleSize]byte
	if err == nil {
		handles = n.agree(l.Session, all)
	}
	if err != nil || n.why != "" {
		if listener != nil {
			_ = errors.Join(listener.Close(), table.Close())
		}
		return err
	}
	failed := ""
	if index >= 0 {
		if err := n.open(ctx, l.Session, listener, handles, index); err != nil {
			failed = err.Error()
		}
	}
	ends, err := ExchangeJSON(ctx, l.Session, failed)
	if err == nil {
		if r := slices.IndexFunc(ends, func(why string) bool { return why != "" }); r >= 0 {
			n.why = fmt.Sprintf("rank %d: %s", r, ends[r])
		}
	}
	if n.heads != nil && (err != nil || n.why != "") {
		_ = n.heads.Close()
		n.heads = nil
	}
	if err == nil && n.why == "" {
		l.cfg.Log.Infof(debug.Init|debug.Net, "COLLNET: %d heads over %s", len(handles), all[0].Name)
	}
	return err
}

// open connects this head to the others.
func (n *collNet) open(ctx context.Context, s *Session, l *netplugin.CollListener, handles [][netplugin.HandleSize]byte, index int) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.cfg.Broken, func() { cancel(context.Cause(s.cfg.Broken)) })()
	ctx, stop := context.WithTimeout(ctx, openDeadline)
	defer stop()
	n.heads, err = netplugin.OpenHeads(ctx, netplugin.HeadsOptions{
		Listener: l, Handles: handles, Rank: index, MaxMessage: s.Env.Slot, Fault: s.cfg.Fault, Logf: s.logf,
	})
	return err
}

// listenCollNet makes this rank a head, using the first plugin with a network that reduces.
func (l *Links) listenCollNet() (*netplugin.CollNet, *netplugin.CollListener, error) {
	l.logPlugins()
	var lacks []string
	for _, entry := range netplugin.Entries(l.cfg.NetPlugin) {
		lib, err := netplugin.Load(entry)
		if err != nil {
			lacks = append(lacks, err.Error())
			continue
		}
		n, err := lib.CollNet(l.pluginID())
		if err != nil {
			lacks = append(lacks, err.Error())
			continue
		}
		l.cfg.Log.Infof(debug.Init|debug.Net, "COLLNET: collnet plugin %s (v%d) from %s, device %s", n.Name(), n.Version(), lib.File(), n.Devices()[0].Name)
		listener, err := n.Listen(0)
		if err == nil {
			return n, listener, nil
		}
		lacks = append(lacks, err.Error())
		_ = n.Close()
	}
	return nil, nil, errors.New(cmp.Or(strings.Join(lacks, "; "), "NCCL_NET_PLUGIN is none, so that there is no network that reduces"))
}

func offerOf(n *netplugin.CollNet, l *netplugin.CollListener) headOffer {
	o := headOffer{Name: n.Name(), Handle: l.Handle[:], MaxBytes: n.Devices()[0].MaxBytes}
	for _, coll := range op.InNetwork {
		if n.Does(coll) {
			o.Does |= 1 << coll
		}
	}
	for op := range o.Reduces {
		for _, t := range elem.Types {
			if n.Reduces(t, elem.Op(op)) {
				o.Reduces[op] |= 1 << t
			}
		}
	}
	return o
}

// agree reduces the heads' offers to what all of them can do.
func (n *collNet) agree(s *Session, all []headOffer) (handles [][netplugin.HandleSize]byte) {
	n.does = ^uint32(0)
	for op := range n.reduces {
		n.reduces[op] = ^bitSet(0)
	}
	first := all[s.Env.Hosts[0][0]]
	for _, g := range s.Env.Hosts {
		o := all[g[0]]
		switch {
		case o.Error != "":
			n.why = fmt.Sprintf("rank %d: %s", g[0], o.Error)
		case o.Name != first.Name:
			n.why = fmt.Sprintf("rank %d has the network %s, rank 0 has %s", g[0], o.Name, first.Name)
		case len(o.Handle) != netplugin.HandleSize:
			n.why = fmt.Sprintf("rank %d sent a damaged handle", g[0])
		case o.MaxBytes > 0 && o.MaxBytes < uint64(s.Env.Slot): // 0: the plugin names no limit
			n.why = fmt.Sprintf("rank %d: collnet plugin %s takes %d bytes at once, and messages are of %d; a lower NCCL_BUFFSIZE makes them shorter", g[0], o.Name, o.MaxBytes, s.Env.Slot)
		}
		if n.why != "" {
			return nil
		}
		handles = append(handles, [netplugin.HandleSize]byte(o.Handle))
		n.does &= o.Does
		for op, types := range o.Reduces {
			n.reduces[op] &= types
		}
	}
	n.reduces[elem.Avg] = n.reduces[elem.Sum]
	for _, coll := range op.InNetwork {
		if !s.mayReduce(coll) {
			n.does &^= 1 << coll
		}
	}
	return handles
}

// can reports whether the network can do an operation.
func (n *collNet) can(o *op.Op) bool {
	if n.why != "" || !bitSet(n.does).has(uint8(o.Coll)) {
		return false
	}
	return !o.Coll.Reduces() || n.reduces[o.Red].has(uint8(o.Type))
}

// Pick returns how a collective is done. The network does what it can, in as many windows as can be
// in flight at once, but no shorter ones than minWindow.
func (l *Links) Pick(o *op.Op) choose.Choice {
	if !l.collNet.can(o) {
		return l.Tuner.Pick(o.Coll, o.Bytes())
	}
	window := minWindow
	for window < o.Bytes()/slots.N {
		window *= 2
	}
	return choose.Choice{Algorithm: schedule.CollNet, Protocol: choose.Simple, Channels: 1, Window: int64(window)}
}

// minWindow is the shortest window on a network that reduces, in bytes.
const minWindow = 16 << 10

func (n *collNet) close() error {
	if n == nil || n.heads == nil {
		return nil
	}
	return n.heads.Close()
}

// Network implements host.Links.
func (l *Links) Network() (transport.Reducer, transport.Rx, error) {
	if l.collNet == nil || l.collNet.heads == nil {
		return nil, nil, errNoCollNet
	}
	return l.collNet.heads.Tx(), l.collNet.heads.Rx(), nil
}

var errNoCollNet = errors.New("this rank is no head in a network that reduces")
