package platform

import (
	"cmp"
	"fmt"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// An Expectation is the performance that a node should reach.
type Expectation struct {
	Recognition Recognition `json:"recognition"`
	Figures     []Expected  `json:"figures"`
}

// An Expected is one quantity: its peak, its typical value, and the floor from which it passes. A
// nil field is not known. Without a Floor the quantity is measured but not judged.
type Expected struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
	GPU   string `json:"gpu,omitempty"` // model; "" if it is not about a GPU
	// For a collective: the number of nodes and GPUs, the message size (0: not stated), and the
	// algorithm ("": not stated).
	Nodes     int    `json:"nodes,omitempty"`
	GPUs      int    `json:"gpus,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`

	Peak    *Cited `json:"peak,omitempty"`    // of the hardware
	Typical *Cited `json:"typical,omitempty"` // of a healthy node
	Floor   *Floor `json:"floor,omitempty"`   // least value that passes
}

// A Cited is a value with its source.
type Cited struct {
	Value      float64    `json:"value"`
	Source     string     `json:"source"` // key of DB.Sources
	Confidence Confidence `json:"confidence"`
	Note       string     `json:"note,omitempty"`
}

// Of returns the peak or the typical value with its source; 0 if it is not known.
func (e Expected) Of(what string) (value float64, source string) {
	c := e.Peak
	if what == "typical" {
		c = e.Typical
	}
	if c == nil {
		return 0, ""
	}
	return c.Value, c.Source
}

// A Floor is the least value that passes: a shipped one, or a fraction of what is expected.
type Floor struct {
	Cited
	Fraction float64 `json:"fraction,omitempty"` // 0: a shipped value
	Of       string  `json:"of,omitempty"`       // peak, typical or target
}

// Expect returns what a node should reach, from its GPU models, its links, and the most similar
// platform.
func (db *DB) Expect(n Node) Expectation {
	x := expecting{db: db, node: n, Expectation: Expectation{Recognition: db.Recognise(n), Figures: []Expected{}}}
	x.platform = db.Platforms[x.Recognition.Platform]
	for _, g := range x.Recognition.GPUs {
		x.gpu(g)
	}
	if len(n.GPUs) > 1 {
		x.allReduce()
	}
	x.otherCollectives()
	for _, c := range x.Recognition.NICs {
		x.nic(c)
	}
	return x.Expectation
}

type expecting struct {
	Expectation
	db       *DB
	node     Node
	platform *Platform // nil: none
}

func (x *expecting) add(e Expected) { x.Figures = append(x.Figures, e) }

// gpu adds what each GPU of a model should reach.
func (x *expecting) gpu(group GPUGroup) {
	m := x.db.GPUs[group.Model]
	if m == nil {
		m = &GPU{}
	}
	of := func(name, title, unit string) Expected {
		return Expected{Name: name, Title: title, Unit: unit, GPU: cmp.Or(group.Model, group.Name)}
	}
	targets := m.DCGM
	if own := m.DCGMByPCI[group.Device]; own != nil {
		targets = own
	}
	memory := of("memory_bandwidth", "memory bandwidth", "GB/s")
	memory.Peak = cited(m.MemoryGBps)
	memory.Floor = cmp.Or(targets.memory(), x.share("memory_traffic_fraction", "peak", memory.Peak))
	x.add(memory)
	x.add(x.localCopy(of, memory.Peak))
	for _, way := range [][2]string{{"h2d", "host to device"}, {"d2h", "device to host"}} {
		x.add(x.hostCopy(of(way[0], way[1], "GB/s"), m, group))
	}
	if group.Count > 1 {
		x.peers(of, m)
	}
	x.identity(of, m)
	compute := of("bf16", "BF16 matrix product, dense", "TFLOP/s")
	compute.Peak, compute.Typical = cited(m.BF16Dense), cited(m.BF16Measured)
	compute.Floor = x.share("measured_fraction", "typical", compute.Typical)
	x.add(compute)
	stress := of("dcgm_stress", "targeted stress, as DCGM's", "GFLOP/s")
	power := of("power", "power under load", "W")
	power.Peak = cited(m.TDPWatts)
	if targets != nil {
		stress.Floor = x.share("dcgm_stress_fraction", "target", targets.cited(targets.StressGFLOPS))
		power.Floor = x.share("dcgm_power_fraction", "target", targets.cited(targets.PowerWatts))
	}
	x.add(stress)
	x.add(power)
}

type of = func(name, title, unit string) Expected

// localCopy counts the copied bytes; each is read and written.
func (x *expecting) localCopy(of of, memory *Cited) Expected {
	e := of("local_copy", "copy within the GPU", "GB/s")
	if memory != nil {
		half := *memory
		half.Value /= 2
		half.Note = "half of the memory bandwidth"
		e.Peak = &half
	}
	e.Floor = x.share("memory_traffic_fraction", "peak", e.Peak)
	return e
}

// hostCopy is for one GPU alone, over its slot or its link to the processor.
func (x *expecting) hostCopy(e Expected, m *GPU, g GPUGroup) Expected {
	switch slot := slotGBps(x.db, g.Slot); {
	case m.C2C != "":
		e.Peak = cited(x.db.Interconnects.NVLink[m.C2C].UniGBps)
	case m.PCIe != nil && m.PCIe.UniGBps.Known():
		e.Peak = cited(m.PCIe.UniGBps)
	case slot > 0:
		c := cited(x.db.Interconnects.PCIe.X16UniGBps[generation(g.Slot)])
		c.Value, c.Note = slot, fmt.Sprintf("PCIe %d x%d, as its slot says", generation(g.Slot), g.Slot.Width)
		e.Peak = c
	}
	e.Typical = x.measured(e.Name)
	e.Floor = cmp.Or(x.shipped(e.Name), x.share("host_copy_fraction", "peak", e.Peak))
	if e.Typical != nil && e.Floor != nil && e.Floor.Value > e.Typical.Value { // a value that passed elsewhere must not fail here
		e.Floor = x.share("measured_fraction", "typical", e.Typical)
	}
	return e
}

// slotGBps returns the bandwidth of a slot in one direction; 0 if it is not known.
func slotGBps(db *DB, l sysfs.PCILink) float64 {
	return db.Interconnects.PCIe.X16UniGBps[generation(l)].Value * float64(l.Width) / 16
}

// generation returns the PCIe generation for a signalling rate; 0 if it is not known.
func generation(l sysfs.PCILink) int {
	return map[float64]int{8: 3, 16: 4, 32: 5, 64: 6, 128: 7}[l.GTs]
}

// peers is for a pair of GPUs and a copy by a copy engine. Over PCIe the bandwidth depends on the
// path between them, and no expected values are published.
func (x *expecting) peers(of of, m *GPU) {
	for _, way := range [][2]string{{"p2p_write", "write to a peer"}, {"p2p_read", "read from a peer"}} {
		e := of(way[0], way[1], "GB/s")
		switch kind := x.Recognition.Fabric.Kind; {
		case kind == "NVLink" && len(x.node.GPUs) == 2 && (m.NVLink == nil || !m.NVLink.Links.Known()): // a bridge: all links of both GPUs
			if m.NVLink != nil {
				e.Peak = cited(m.NVLink.UniGBps)
			}
			e.Floor = cmp.Or(x.shipped("p2p"), x.share("payload_fraction_of_advertised", "peak", e.Peak))
		case m.NVLink != nil && kind == "NVLink":
			e.Peak = cited(m.NVLink.UniGBps)
			e.Peak.Note = "all links of a GPU; a pair has those between the two"
		case m.NVLink != nil && (kind == "NVSwitch" || kind == "unknown" && m.NVLink.Links.Known()): // there may be a bridge
			e.Peak = cited(m.NVLink.UniGBps)
			e.Typical = cmp.Or(x.measured(way[0]), x.measured("p2p"))
			e.Floor = cmp.Or(x.shipped("p2p"), x.share("payload_fraction_of_advertised", "peak", e.Peak))
		}
		x.add(e)
	}
}

// identity adds the expected links of a GPU.
func (x *expecting) identity(of of, m *GPU) {
	if m.NVLink != nil && m.NVLink.Links.Known() {
		x.add(exactly(of("nvlinks", "NVLinks that are up", ""), m.NVLink.Links))
	}
	if m.PCIe != nil && m.PCIe.Gen.Known() {
		x.add(exactly(of("pcie_gen", "PCIe generation", ""), m.PCIe.Gen))
		x.add(exactly(of("pcie_width", "PCIe lanes", ""), m.PCIe.Width))
	}
}

// exactly expects the full count.
func exactly(e Expected, f Figure) Expected {
	e.Peak = cited(f)
	if e.Peak != nil {
		e.Floor = &Floor{Cited: *e.Peak, Fraction: 1, Of: "peak"}
	}
	return e
}

// nic adds the expected performance of a port.
func (x *expecting) nic(g NICGroup) {
	e := Expected{Name: "nic_bandwidth", Title: g.Name + ", write", Unit: "Gb/s"}
	latency := Expected{Name: "nic_latency", Title: g.Name + ", adapter's latency", Unit: "us"}
	switch {
	case x.platform != nil && x.platform.NICs != nil && x.platform.NICs.GbitEach.Known() && x.platform.NICs.GbitEach.Value == g.Gbit:
		e.Peak = cited(x.platform.NICs.GbitEach)
		e.Typical = x.measured("ib_write_bw")
		e.Floor = x.shipped("ib_write_bw")
	case g.Gbit > 0:
		e.Peak = &Cited{Value: g.Gbit, Source: FromNode, Confidence: High, Note: "the port's rate"}
	}
	e.Floor = cmp.Or(e.Floor, x.share("payload_fraction_of_advertised", "peak", e.Peak))
	x.add(e)
	if m := x.db.NICs[g.Model]; m != nil && m.MaxGbit.Known() {
		x.add(Expected{Name: "nic_rate", Title: g.Name + ", rate of a port at most", Unit: "Gb/s", Peak: cited(m.MaxGbit)})
	}
	if g.LinkLayer == "InfiniBand" {
		for gen, figure := range x.db.Interconnects.InfiniBandLatency { // the rates of four lanes differ between generations
			if x.db.Interconnects.InfiniBand[gen].X4.Gbit == g.Gbit {
				latency.Typical = cited(figure)
				latency.Typical.Note = fmt.Sprintf("of %s, if %g Gb/s are four lanes", gen, g.Gbit)
			}
		}
	}
	x.add(latency)
}
