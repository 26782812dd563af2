package netenv

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// A Kind is the transport of the data between hosts.
type Kind string

// The kinds.
const (
	InfiniBand Kind = "InfiniBand"
	RoCE       Kind = "RoCE"
	EFA        Kind = "EFA"
	Sockets    Kind = "sockets"
)

// VendorAmazon is the PCI vendor of EFA.
const VendorAmazon = "1d0f"

// Data is the transport of the data between hosts, and the ports that it uses.
type Data struct {
	Kind  Kind     `json:"kind"`
	Why   string   `json:"why"`
	Ports []Choice `json:"ports"` // all ports of the node, in its order
	// GID is the address that all used ports have in common, for RoCE.
	GID *Address `json:"gid,omitempty"`
}

// A Choice is a port, and whether it is used.
type Choice struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	Used   bool   `json:"used"`
	Why    string `json:"why,omitempty"`  // reason why it is left out
	GPUs   []int  `json:"gpus,omitempty"` // for which no port is nearer
	Path   string `json:"path,omitempty"` // path to the nearest of those
	GID    int    `json:"gid_index"`      // for RoCE; -1: none
}

// used returns the ports that carry data.
func (d Data) used() []Choice {
	return slices.DeleteFunc(slices.Clone(d.Ports), func(c Choice) bool { return !c.Used })
}

// chooseData sorts the ports into those that carry data and those that do not.
func (m *maker) chooseData() Data {
	s := &sorter{m: m, ports: m.n.Ports, out: make([]Choice, len(m.n.Ports))}
	for i, p := range s.ports {
		s.out[i] = Choice{Device: p.Device, Port: p.Number, Used: true, GID: -1}
	}
	d := Data{Kind: Sockets, Ports: s.out}
	switch {
	case m.opt.NoIB:
		s.drop(s.all, "sockets were asked for (--no-ib)")
		d.Why = "sockets were asked for (--no-ib)"
		return d
	case len(s.ports) == 0:
		d.Why = "there is no RDMA device here"
		if m.n.Container != "" {
			d.Why += ", or the container hides it"
		}
		return d
	case m.n.Modules.DevKnown && !m.n.Modules.Verbs:
		s.drop(s.all, "/dev/infiniband has no device to open")
		d.Why = "/dev/infiniband is not here, so that no RDMA device can be opened"
		m.warn("the RDMA devices "+some(s.devices())+" are in /sys, and /dev/infiniband is not here: NCCL goes over TCP",
			"docker --device=/dev/infiniband; Kubernetes: ask for the device plugin's resource (rdma/ib, vpc.amazonaws.com/efa); pyxis passes it on by itself; on a host: modprobe ib_uverbs")
		return d
	}
	if s.any(s.isEFA) {
		s.drop(func(i int) bool { return !s.isEFA(i) }, "EFA carries the data")
		s.dropDown()
		s.sortByDistance()
		d.Kind, d.Why = EFA, words.Count(len(s.left()), "device")
	} else {
		s.dropNameless()
		s.drop(func(i int) bool { return !s.ports[i].OnPCI }, "it is made of software (soft RoCE or the like)")
		s.dropControl()
		s.dropLayer()
		s.sortByDistance()
		s.dropFar()
		s.dropDown()
		s.dropSlow()
		d.GID = s.addresses()
		d.Kind, d.Why = s.kind()
	}
	if len(d.used()) == 0 {
		d.Kind, d.GID, d.Why = Sockets, nil, "no RDMA port can carry data"
	}
	return d
}

// A sorter removes ports, one rule after the other.
type sorter struct {
	m     *maker
	ports []Port
	out   []Choice
}

func (s *sorter) all(int) bool { return true }

func (s *sorter) isEFA(i int) bool { return s.ports[i].Vendor == VendorAmazon }

func (s *sorter) any(is func(i int) bool) bool {
	return slices.ContainsFunc(s.left(), is)
}

// left returns the ports that no rule has removed.
func (s *sorter) left() []int {
	var out []int
	for i, c := range s.out {
		if c.Used {
			out = append(out, i)
		}
	}
	return out
}

func (s *sorter) drop(is func(i int) bool, why string, a ...any) {
	for _, i := range s.left() {
		if is(i) {
			s.out[i].Used, s.out[i].Why = false, fmt.Sprintf(why, a...)
		}
	}
}

func (s *sorter) devices() []string {
	var out []string
	for _, p := range s.ports {
		if name := p.name(); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// dropNameless removes the ports of a topology file that does not name them: no variable can.
func (s *sorter) dropNameless() {
	nameless := func(i int) bool { return s.ports[i].Device == "" }
	n := len(slices.DeleteFunc(s.left(), func(i int) bool { return !nameless(i) }))
	if n == 0 {
		return
	}
	s.drop(nameless, "its name is not known: the topology is from a file that has none")
	s.m.warn(fmt.Sprintf("the topology is from a file that does not name its RDMA devices (%s), so that nothing is set for them", words.Count(n, "port")),
		"run this on the node itself, where the kernel names them, or read a file that harness show topology --dump wrote there")
}

func (s *sorter) active(i int) bool { return s.ports[i].State == "" || s.ports[i].State == "ACTIVE" }

// dropControl removes the ports under the control plane's interface if other ports can carry data.
func (s *sorter) dropControl() {
	c := s.m.Control.Interface
	if c == "" {
		return
	}
	under := s.m.n.below(c)
	shared := func(i int) bool {
		return slices.ContainsFunc(s.ports[i].Netdevs, func(d string) bool { return slices.Contains(under, d) })
	}
	if s.any(func(i int) bool { return !shared(i) && s.active(i) }) {
		s.drop(shared, "it carries the control plane")
	}
}

// pathOrder lists the PCI path types, shortest first.
var pathOrder = []string{"PIX", "PXB", "PHB", "NODE", "SYS"}

// sortByDistance records for each GPU the ports nearest to it. Ports that are down count too: an unplugged
// cable must not turn a far card into the nearest one.
func (s *sorter) sortByDistance() {
	for g := range s.m.n.GPUs {
		best := len(pathOrder)
		for _, i := range s.left() {
			best = min(best, s.distance(i, g))
		}
		for _, i := range s.left() {
			if best < len(pathOrder) && s.distance(i, g) == best {
				s.out[i].GPUs, s.out[i].Path = append(s.out[i].GPUs, g), s.nearest(i, pathOrder[best])
			}
		}
	}
}

// nearest returns the shorter of the port's path so far and the given path.
func (s *sorter) nearest(i int, path string) string {
	have := s.out[i].Path
	if have == "" || slices.Index(pathOrder, path) < slices.Index(pathOrder, have) {
		return path
	}
	return have
}

func (s *sorter) distance(port, gpu int) int {
	if gpu < len(s.ports[port].Paths) {
		if d := slices.Index(pathOrder, s.ports[port].Paths[gpu]); d >= 0 {
			return d
		}
	}
	return len(pathOrder)
}

// dropFar removes the ports that are not the nearest of any GPU, if the position of some GPU is
// known.
func (s *sorter) dropFar() {
	served := func(i int) bool { return len(s.out[i].GPUs) > 0 }
	if s.any(served) {
		s.drop(func(i int) bool { return !served(i) }, "every GPU has a nearer one: it is for storage or management")
	}
}

// dropLayer keeps only one link layer, since NCCL would use both. It removes the one with ports
// farther from the GPUs, or with less bandwidth if both are equally near.
func (s *sorter) dropLayer() {
	type weight struct{ far, gbit float64 }
	layers := map[string]weight{}
	for _, i := range s.left() {
		if p := s.ports[i]; s.active(i) {
			w := layers[p.Layer]
			w.gbit += p.Gbit
			layers[p.Layer] = w
		}
	}
	for layer, w := range layers {
		for g := range s.m.n.GPUs {
			nearest := len(pathOrder)
			for _, i := range s.left() {
				if s.ports[i].Layer == layer {
					nearest = min(nearest, s.distance(i, g))
				}
			}
			w.far += float64(nearest)
		}
		layers[layer] = w
	}
	if len(layers) == 0 { // all are down
		return
	}
	best := slices.SortedFunc(maps.Keys(layers), func(a, b string) int {
		return cmp.Or(cmp.Compare(layers[a].far, layers[b].far), cmp.Compare(layers[b].gbit, layers[a].gbit), cmp.Compare(b, a)) // InfiniBand if they are equal
	})[0]
	for _, i := range s.left() {
		if l := s.ports[i].Layer; l != best {
			s.out[i].Used, s.out[i].Why = false, fmt.Sprintf("it is on %s, and the GPUs' network is %s", l, best)
		}
	}
}

// dropDown removes the ports that are not active. A port that is down on a card with an active port
// is just not cabled; otherwise it causes a warning.
func (s *sorter) dropDown() {
	for _, i := range s.left() {
		if s.active(i) {
			continue
		}
		p := s.ports[i]
		s.out[i].Used, s.out[i].Why = false, "it is "+p.State
		second := slices.ContainsFunc(s.ports, func(o Port) bool { return o.Device == p.Device && (o.State == "" || o.State == "ACTIVE") })
		if !second {
			s.m.warn(fmt.Sprintf("%s port %d%s is %s, not ACTIVE", p.Device, p.Number, gpuText(" of ", s.out[i].GPUs), p.State),
				"look at cable and switch port; on InfiniBand at the subnet manager, too: harness health names the fault")
		}
	}
}

// dropSlow removes slower ports of another model. A slower port of the same model stays, with a
// warning: its link is degraded.
func (s *sorter) dropSlow() {
	most, model := 0.0, ""
	for _, i := range s.left() {
		if s.ports[i].Gbit > most {
			most, model = s.ports[i].Gbit, s.ports[i].Vendor+s.ports[i].Model
		}
	}
	slow := func(i int) bool { return s.ports[i].Gbit < most }
	other := func(i int) bool { return s.ports[i].Vendor+s.ports[i].Model != model }
	for _, i := range s.left() {
		if slow(i) && !other(i) {
			s.m.warn(fmt.Sprintf("%s port %d runs at %g Gb/s where others of its model run at %g", s.ports[i].Device, s.ports[i].Number, s.ports[i].Gbit, most),
				"look at cable and switch port: all of a ring goes as slowly as this link")
		}
	}
	for _, i := range s.left() {
		if slow(i) && other(i) {
			s.out[i].Used, s.out[i].Why = false, fmt.Sprintf("it is another model with %g of %g Gb/s", s.ports[i].Gbit, most)
		}
	}
}

// kind returns the kind of the remaining ports, and their description.
func (s *sorter) kind() (Kind, string) {
	left := s.left()
	if len(left) == 0 {
		return Sockets, ""
	}
	p := s.ports[left[0]]
	text := words.Count(len(left), "port")
	if p.Gbit > 0 {
		text += fmt.Sprintf(" of %g Gb/s", p.Gbit)
	}
	if p.Layer == "Ethernet" {
		return RoCE, text
	}
	return InfiniBand, text
}

// gpuText names GPUs: "GPU0" or "GPUs 0-3,5".
func gpuText(before string, gpus []int) string {
	if len(gpus) == 0 {
		return ""
	}
	if len(gpus) == 1 {
		return fmt.Sprintf("%sGPU %d", before, gpus[0])
	}
	return before + "GPUs " + strings.Join(words.Ranges(gpus), ",")
}
