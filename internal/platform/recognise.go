package platform

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A Recognition is what the database knows about a Node.
type Recognition struct {
	GPUs     []GPUGroup `json:"gpus"`
	Fabric   Fabric     `json:"fabric"`
	NICs     []NICGroup `json:"nics"`
	Cloud    string     `json:"cloud,omitempty"`    // key of DB.Clouds
	Instance string     `json:"instance,omitempty"` // DMI's product name
	// Platform is the most similar platform, key of DB.Platforms; "": no platform has these GPUs.
	Platform string `json:"platform,omitempty"`
	Name     string `json:"name,omitempty"` // of the platform
	// Differences say how the node differs from the platform, and which GPUs lack links that their
	// model has.
	Differences []string `json:"differences"`
	// Missing are the differences where the node has fewer devices than the platform: the devices
	// are broken, or this is a container with only some of them.
	Missing []Missing `json:"missing,omitempty"`
}

// A Missing describes devices that a platform has but the node lacks.
type Missing struct {
	What Device `json:"what"`
	Have int    `json:"have"` // number found, of all models and rates
	Text string `json:"text"` // as in Differences
}

// A Device is a kind of device that is counted per platform.
type Device string

// The kinds of devices.
const (
	GPUs  Device = "GPUs"
	Ports Device = "RDMA ports"
)

// A GPUGroup is the GPUs of one model.
type GPUGroup struct {
	Model  string        `json:"model,omitempty"` // key of DB.GPUs; "": unknown model
	Name   string        `json:"name"`            // the model's, else from the driver or PCI
	Device string        `json:"pci_device,omitempty"`
	Count  int           `json:"count"`
	Slot   sysfs.PCILink `json:"slot,omitzero"` // the slowest
}

// A NICGroup is the RDMA ports of one model and rate.
type NICGroup struct {
	Model     string  `json:"model,omitempty"` // key of DB.NICs; "": unknown model
	Name      string  `json:"name"`
	Count     int     `json:"count"`
	Active    int     `json:"active"`
	Gbit      float64 `json:"gbit_per_s,omitempty"`
	LinkLayer string  `json:"link_layer,omitempty"`
}

// A Fabric is how the GPUs of a node are connected.
type Fabric struct {
	Kind  string `json:"kind"`            // NVSwitch, NVLink, PCIe, one (GPU), none (no GPU), unknown (NVLinks were not read)
	Gen   string `json:"gen,omitempty"`   // of the NVLinks
	Links int    `json:"links,omitempty"` // links that are up, of the GPU with the fewest
}

// Recognise determines what a node is.
func (db *DB) Recognise(n Node) Recognition {
	r := Recognition{GPUs: db.gpuGroups(n), NICs: db.nicGroups(n), Cloud: db.cloud(n.DMI), Instance: n.DMI.Product, Differences: []string{}}
	r.Fabric = db.fabric(n, r)
	if keys := db.nearest(n, r); len(keys) > 0 {
		p := db.Platforms[keys[0]]
		r.Platform, r.Name = keys[0], p.Name
		for _, key := range keys[1:] {
			r.Differences = append(r.Differences, fmt.Sprintf("it is as much like %s (%s)", db.Platforms[key].Name, key))
		}
		r.Differences = append(r.Differences, db.differences(n, r, p)...)
		r.Missing = p.missing(n)
	}
	r.Differences = append(r.Differences, db.fewLinks(n)...)
	return r
}

func (db *DB) gpuGroups(n Node) []GPUGroup {
	out := []GPUGroup{}
	for _, g := range n.GPUs {
		key, model := db.IdentifyGPU(g.Device, g.Name)
		own := GPUGroup{Model: key, Name: g.Name, Device: g.Device, Count: 1, Slot: g.Slot}
		switch {
		case model != nil:
			own.Name = model.Name
		case own.Name == "" && g.Device != "":
			own.Name = "PCI device " + g.Device
		case own.Name == "":
			own.Name = "a GPU without a name"
		}
		i := slices.IndexFunc(out, func(o GPUGroup) bool { return o.Name == own.Name && o.Device == own.Device })
		if i < 0 {
			out = append(out, own)
			continue
		}
		out[i].Count++
		if slotGBps(db, own.Slot) < slotGBps(db, out[i].Slot) {
			out[i].Slot = own.Slot
		}
	}
	return out
}

func (db *DB) nicGroups(n Node) []NICGroup {
	out := []NICGroup{}
	for _, c := range n.NICs {
		key, model := db.NICByPCI(c.Vendor, c.Device)
		own := NICGroup{Model: key, Name: "PCI device " + c.Vendor + ":" + c.Device, Gbit: c.Gbit, LinkLayer: c.LinkLayer}
		switch {
		case model != nil:
			own.Name = model.Name
		case c.Vendor == "":
			own.Name = "a NIC without a model" // not on PCI, or of a file that does not say
		}
		i := slices.IndexFunc(out, func(o NICGroup) bool {
			return o.Name == own.Name && o.Gbit == own.Gbit && o.LinkLayer == own.LinkLayer
		})
		if i < 0 {
			i, out = len(out), append(out, own)
		}
		out[i].Count++
		if c.State == "" || c.State == "ACTIVE" {
			out[i].Active++
		}
	}
	return out
}

func (db *DB) fabric(n Node, r Recognition) Fabric {
	switch {
	case len(n.GPUs) == 0:
		return Fabric{Kind: "none"}
	case !n.LinksKnown:
		return Fabric{Kind: "unknown"}
	}
	f := Fabric{Kind: "PCIe", Links: n.GPUs[0].NVLinks}
	for _, g := range n.GPUs {
		f.Links = min(f.Links, g.NVLinks)
		if g.NVLinks > 0 && g.Switched {
			f.Kind = "NVSwitch"
		} else if g.NVLinks > 0 && f.Kind == "PCIe" {
			f.Kind = "NVLink"
		}
	}
	if m := db.GPUs[r.GPUs[0].Model]; f.Kind != "PCIe" && m != nil && m.NVLink != nil {
		f.Gen = m.NVLink.Gen.Text
	}
	if len(n.GPUs) == 1 {
		f.Kind = "one"
	}
	return f
}

// model returns the single model of a node's GPUs; "" if there are several, or it is not known.
func (r Recognition) model() string {
	key := ""
	for i, g := range r.GPUs {
		if i > 0 && g.Model != key {
			return ""
		}
		key = g.Model
	}
	return key
}

// nearest finds the platforms that are most similar to the node. The criteria in order of weight:
// a file of one's own, DMI's product name, the cloud, the number of GPUs, the NICs, and whether the GPU is the
// platform's main one. A cloud's platform is a candidate only in that cloud, or if DMI has no
// values at all.
func (db *DB) nearest(n Node, r Recognition) (best []string) {
	model := r.model()
	if model == "" {
		return nil
	}
	most := 0
	for _, key := range slices.Sorted(maps.Keys(db.Platforms)) {
		p := db.Platforms[key]
		if p.Reference || p.GPU != model && !slices.Contains(p.OtherGPUs, model) {
			continue
		}
		if p.Cloud != "" && p.Cloud != r.Cloud && n.DMI != (sysfs.DMI{}) {
			continue
		}
		if score := p.score(n, r, model); score > most {
			best, most = []string{key}, score
		} else if score == most {
			best = append(best, key)
		}
	}
	return best
}

func (p *Platform) score(n Node, r Recognition, model string) int {
	score := 17 // more than 0 even for a platform with too few GPUs
	for _, has := range []struct {
		yes    bool
		weight int
	}{
		{p.own, 200},
		{p.hasProduct(r.Instance), 100},
		{p.Cloud != "" && p.Cloud == r.Cloud, 40},
		{p.Cloud == "", 20},
		{slices.Contains(p.GPUsPerNode, len(n.GPUs)), 8},
		{p.NICs != nil && p.NICs.ports() > 0 && p.NICs.ports() == n.portsAt(p.NICs.GbitEach.Value), 4},
		{p.NICs != nil && p.NICs.GbitEach.Known() && n.portsAt(p.NICs.GbitEach.Value) > 0, 2},
		{p.GPU == model, 1},
	} {
		if has.yes {
			score += has.weight
		}
	}
	if most := p.GPUsPerNode.Max(); most > 0 && len(n.GPUs) > most {
		score -= 16
	}
	return score
}

// ports returns the number of NICs of a node; 0: not known.
func (n *NICs) ports() int { return int(n.Count.Value) }

// portsAt counts the ports with a rate in Gb/s, or all ports if gbit is 0.
func (n Node) portsAt(gbit float64) int {
	count := 0
	for _, c := range n.NICs {
		if gbit == 0 || c.Gbit == gbit {
			count++
		}
	}
	return count
}

// differences lists how a node differs from a platform.
func (db *DB) differences(n Node, r Recognition, p *Platform) (out []string) {
	say := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	if p.Cloud != "" && p.Cloud != r.Cloud {
		say("nothing says that this is %s", db.Clouds[p.Cloud].Name)
	}
	if text := p.gpuDifference(n); text != "" {
		say("%s", text)
	}
	if m := db.GPUs[r.model()]; p.GPU != r.model() {
		say("the GPUs are %s; figures of the node are those with %s", m.Name, db.GPUs[p.GPU].Name)
	}
	if text := p.nicDifference(n); text != "" {
		say("%s", text)
	}
	return out
}

// missing returns the devices of which the node has too few. NICs for TCPX and its successors are
// not RDMA devices, so they do not count as missing when no RDMA port is found.
func (p *Platform) missing(n Node) (out []Missing) {
	if text := p.gpuDifference(n); text != "" && len(n.GPUs) < p.GPUsPerNode.Max() {
		out = append(out, Missing{GPUs, len(n.GPUs), text})
	}
	if text := p.nicDifference(n); text != "" && !strings.HasPrefix(p.NICs.Kind, "TCPX") {
		out = append(out, Missing{Ports, len(n.NICs), text})
	}
	return out
}

// gpuDifference returns a text if the platform has another number of GPUs, else "".
func (p *Platform) gpuDifference(n Node) string {
	if len(p.GPUsPerNode) == 0 || slices.Contains(p.GPUsPerNode, len(n.GPUs)) {
		return ""
	}
	return fmt.Sprintf("%d GPUs of %s", len(n.GPUs), anyOf(p.GPUsPerNode))
}

// fewLinks lists the GPUs with fewer NVLinks than their model has, or in a slot with less
// bandwidth.
func (db *DB) fewLinks(n Node) (out []string) {
	for i, g := range n.GPUs {
		_, m := db.IdentifyGPU(g.Device, g.Name)
		if m == nil {
			continue
		}
		if n.LinksKnown && m.NVLink != nil && float64(g.NVLinks) < m.NVLink.Links.Value {
			out = append(out, fmt.Sprintf("GPU %d: %d of %g NVLinks are up", i, g.NVLinks, m.NVLink.Links.Value))
		}
		if slot := slotGBps(db, g.Slot); m.PCIe != nil && m.C2C == "" && slot > 0 && slot < m.PCIe.UniGBps.Value {
			out = append(out, fmt.Sprintf("GPU %d: its slot is PCIe %d x%d; the model takes PCIe %s x%s", i, generation(g.Slot), g.Slot.Width, m.PCIe.Gen.Text, m.PCIe.Width.Text))
		}
	}
	return out
}

// nicDifference returns a text if the platform has more ports, else "".
func (p *Platform) nicDifference(n Node) string {
	if p.NICs == nil {
		return ""
	}
	want, each := p.NICs.ports(), p.NICs.GbitEach.Value
	have := n.portsAt(each)
	kind := cmp.Or(p.NICs.Kind, "RDMA")
	switch {
	case len(n.NICs) == 0 && want > 0:
		return fmt.Sprintf("no RDMA port of %d (%s)", want, kind)
	case want > 0 && have < want && each > 0:
		return fmt.Sprintf("%d RDMA ports of %g Gb/s, not %d (%s)", have, each, want, kind)
	case want > 0 && have < want:
		return fmt.Sprintf("%d RDMA ports, not %d (%s)", have, want, kind)
	}
	return ""
}

// anyOf joins counts: "8", "1, 2 or 4".
func anyOf(c Counts) string {
	var texts []string
	for _, v := range c {
		texts = append(texts, fmt.Sprint(v))
	}
	if last := len(texts) - 1; last > 0 {
		return strings.Join(texts[:last], ", ") + " or " + texts[last]
	}
	return strings.Join(texts, "")
}
