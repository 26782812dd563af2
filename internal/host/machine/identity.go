package machine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/topology"
	"github.com/assay-hpc/assay/internal/platform"
)

// Facts are what is known about a node before any measurement.
type Facts struct {
	PCI    int                  `json:"pci"`   // GPUs on PCI
	GPUs   int                  `json:"gpus"`  // GPUs that CUDA can use
	CUDA   bool                 `json:"cuda"`  // this build of the harness has code for GPUs
	Ports  int                  `json:"ports"` // ports of RDMA devices that are up
	Why    string               `json:"why"`   // the reason why CUDA has no GPU
	Expect platform.Expectation `json:"expect"`
}

// An Identity is a node as certificates describe it.
type Identity struct {
	Facts Facts            `json:"machine"`
	Node  certificate.Node `json:"node"`
	Boot  string           `json:"boot,omitempty"` // new with each boot
	// Others are the digests of the machine's other identities: a certificate that was made by a
	// user who may not read the first one has one of them.
	Others []string `json:"others,omitempty"`
	// Energy contains, by UUID, the mJ that each GPU has used since the driver started it. The
	// counter begins again when the GPU is reset or the driver loaded. A GPU without persistence
	// mode is left out: the driver starts it again for each process.
	Energy map[string]uint64 `json:"energy,omitempty"`
}

// A GPUSource describes the driver and its GPUs, numbered from 0. asking is called before each query.
type GPUSource interface {
	Driver() (nvml.Driver, error)
	GPU(index int, asking func(what string)) (nvml.GPU, error)
}

// Drivers are the sources that Identify queries about GPUs.
type Drivers struct {
	NVML GPUSource
	CUDA func() (gpus int, missing error) // the number of GPUs that CUDA can use, or the reason why there is none
}

// Identify reads files and queries drivers to describe the node. What cannot be determined is
// left out, except for the name and the processors.
func (m *Machine) Identify(d Drivers, getenv func(string) string, environ []string) (*Identity, error) {
	db, err := platform.Load()
	if err != nil {
		return nil, err
	}
	found := m.Platform()
	id := &Identity{Facts: Facts{CUDA: driver.Built, PCI: PCIGPUs(m.FS), Expect: db.Expect(found)}}
	n, missing := d.CUDA()
	if id.Facts.GPUs = n; missing != nil {
		id.Facts.Why = missing.Error()
	}
	r, out := &id.Facts.Expect.Recognition, &id.Node
	out.Name = NodeName(getenv)
	if h, err := m.FS.Host(); err == nil {
		id.Boot = h.BootID
	}
	out.Vendor, out.Product, out.Container = found.DMI.Vendor, found.DMI.Product, found.Container
	out.Cloud, out.Platform, out.Differences = r.Cloud, r.Platform, r.Differences
	if r.Cloud != "" {
		out.Instance = r.Instance
	}
	id.askDriver(d.NVML)
	id.askPorts(m.FS)
	out.Versions, out.Variables, out.Topology = moduleVersions(m.FS), variables(environ), drawing(m.System)
	all := identitiesOf(m.FS, out)
	out.Identity = all[0]
	for _, other := range all[1:] {
		id.Others = append(id.Others, certificate.NodeDigest(other))
	}
	return id, nil
}

// Unidentified describes a node of which only the name is known, and the reason: Identify did not
// end.
func Unidentified(why error) *Identity {
	name := NodeName(os.Getenv)
	id := &Identity{Facts: Facts{CUDA: driver.Built, Why: why.Error()}, Node: certificate.Node{Name: name, Identity: []string{"name " + name}}}
	if f, err := sysfs.Open("/"); err == nil {
		id.Facts.PCI = PCIGPUs(f)
	}
	return id
}

// NodeName returns the node's own name, which in a container may differ from the host name.
func NodeName(getenv func(string) string) string {
	host, _ := os.Hostname()
	return cmp.Or(getenv("NODE_NAME"), getenv("SLURMD_NODENAME"), host, "unnamed")
}

func (id *Identity) askDriver(src GPUSource) {
	d, err := src.Driver()
	if err != nil {
		return
	}
	n := &id.Node
	n.Driver = d.Version
	if d.CUDA > 0 {
		n.CUDA = fmt.Sprintf("%d.%d", d.CUDA/1000, d.CUDA%1000/10)
	}
	for i := range d.GPUs {
		g, err := src.GPU(i, func(string) {})
		if err != nil {
			n.GPUs = append(n.GPUs, certificate.GPU{Index: i, Name: "does not answer: " + err.Error()})
			continue
		}
		n.GPUs = append(n.GPUs, certificate.GPU{
			Index: i, Name: g.Name.Value, UUID: g.UUID, Bus: g.Bus.String(), VBIOS: g.VBIOS.Value, Memory: int64(g.MemoryBytes.Value),
		})
		if g.Energy.Err == nil && g.Persistence.Err == nil && g.Persistence.Value {
			if id.Energy == nil {
				id.Energy = map[string]uint64{}
			}
			id.Energy[g.UUID] = g.Energy.Value
		}
	}
}

func (id *Identity) askPorts(fs sysfs.FS) {
	devices, _ := fs.RDMADevices()
	for _, d := range devices {
		for _, p := range d.Ports {
			if p.State == "ACTIVE" {
				id.Facts.Ports++
			}
			id.Node.Ports = append(id.Node.Ports, certificate.Port{
				Name: fmt.Sprintf("%s/%d", d.Name, p.Number), Device: d.HCAType, GUID: d.NodeGUID, Firmware: d.Firmware,
				LinkLayer: p.LinkLayer, State: p.State, Gbit: p.Rate.Gbit,
			})
		}
	}
}

// moduleVersions returns the versions of the kernel modules that measurements depend on.
func moduleVersions(fs sysfs.FS) map[string]string {
	out := map[string]string{}
	for _, name := range []string{"nvidia", "nvidia_peermem", "gdrdrv", "mlx5_core", "efa"} {
		if v, err := fs.Text("sys/module/" + name + "/version"); err == nil && strings.TrimSpace(v) != "" {
			out["module "+name] = strings.TrimSpace(v)
		}
	}
	return none(out)
}

// none returns nil for an empty map, as certificates require.
func none(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

// telling are the prefixes of environment variables that affect measurements.
var telling = []string{"NCCL_", "UCX_", "FI_", "OMPI_MCA_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_", "CUDA_LAUNCH_BLOCKING", "NVIDIA_VISIBLE_DEVICES", "SHARP_", "ASSAY_", "SLURM_JOB_ID", "OMP_"}

// variables returns the environment variables that affect measurements, without possible secrets.
func variables(environ []string) map[string]string {
	out := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		begins := slices.ContainsFunc(telling, func(p string) bool { return strings.HasPrefix(name, p) })
		secret := slices.ContainsFunc([]string{"TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL"}, func(s string) bool { return strings.Contains(strings.ToUpper(name), s) })
		if begins && !secret {
			out[name] = strings.ToValidUTF8(value, "?")
		}
	}
	return none(out)
}

// identitiesOf returns what distinguishes the machine from others, the best first. It must not
// change when a GPU falls off the bus. So each consists of ids of one kind. Users who may not read
// one of a kind get the next: the product's UUID is for root alone.
func identitiesOf(fs sysfs.FS, n *certificate.Node) (all [][]string) {
	if id, err := fs.Text("sys/class/dmi/id/product_uuid"); err == nil && strings.Trim(id, " \n0-fF") != "" {
		all = append(all, []string{"dmi " + strings.ToLower(strings.TrimSpace(id))})
	}
	var out []string
	for _, p := range n.Ports {
		if p.GUID != "" {
			out = append(out, "port "+p.GUID)
		}
	}
	for _, g := range n.GPUs {
		if len(n.Ports) == 0 && g.UUID != "" {
			out = append(out, g.UUID)
		}
	}
	if len(out) > 0 {
		slices.Sort(out)
		all = append(all, slices.Compact(out))
	}
	// The id itself must not be published: machine-id(5) requires a hash.
	if id, err := fs.Text("etc/machine-id"); err == nil && strings.TrimSpace(id) != "" {
		sum := sha256.Sum256([]byte("assay " + strings.TrimSpace(id)))
		all = append(all, []string{"machine-id " + hex.EncodeToString(sum[:16])})
	}
	if all == nil {
		all = [][]string{{"name " + n.Name}}
	}
	return all
}

// drawing converts a topology to that of a certificate.
func drawing(sys *topology.System) *certificate.Topology {
	t := new(certificate.Topology)
	cpus := map[int]string{}
	for _, c := range sys.CPUs {
		id := fmt.Sprintf("cpu%d", c.ID)
		cpus[c.ID] = id
		label := fmt.Sprintf("NUMA %d", c.ID)
		if c.ID < 0 {
			label = "processors"
		}
		t.Parts = append(t.Parts, certificate.Part{ID: id, Kind: certificate.PartCPU, Label: label})
	}
	drawn := map[string]bool{}
	under := func(p *topology.PCI) string {
		above := cpus[p.NUMA]
		for _, s := range p.Switches {
			id := "switch " + s.String()
			if !drawn[id] {
				drawn[id] = true
				t.Parts = append(t.Parts, certificate.Part{ID: id, Kind: certificate.PartSwitch, Label: "PCIe switch", Under: above})
			}
			above = id
		}
		return above
	}
	ends := map[sysfs.BusID]string{}
	for i := range sys.GPUs {
		g := &sys.GPUs[i]
		id := fmt.Sprintf("gpu%d", i)
		ends[g.BusID] = id
		t.Parts = append(t.Parts, certificate.Part{ID: id, Kind: certificate.PartGPU, Label: fmt.Sprintf("GPU %d", i), Under: under(&g.PCI), Link: slot(g.Link)})
	}
	for i := range sys.NICs {
		c := &sys.NICs[i]
		if !c.RDMA {
			continue
		}
		p := certificate.Part{ID: fmt.Sprintf("nic%d", i), Kind: certificate.PartNIC, Label: sys.Label(i)}
		if c.OnPCI {
			p.Under, p.Link = under(&c.PCI), slot(c.Link)
		}
		t.Parts = append(t.Parts, p)
	}
	nvlinks(t, sys, ends)
	return t
}

// nvlinks adds the links between GPUs, once per pair, and to switches.
func nvlinks(t *certificate.Topology, sys *topology.System, ends map[sysfs.BusID]string) {
	for i := range sys.GPUs {
		g := &sys.GPUs[i]
		own, toSwitch := ends[g.BusID], 0
		for _, l := range g.NVLinks {
			switch l.To {
			case topology.ToSwitch:
				toSwitch += l.Count
			case topology.ToGPU:
				if other := ends[l.Target]; other != "" && own < other {
					t.Links = append(t.Links, certificate.Link{A: own, B: other, Kind: "NVLink", Count: l.Count})
				}
			}
		}
		if toSwitch > 0 {
			if !slices.ContainsFunc(t.Parts, func(p certificate.Part) bool { return p.Kind == certificate.PartNVSwitch }) {
				t.Parts = append(t.Parts, certificate.Part{ID: "nvswitch", Kind: certificate.PartNVSwitch, Label: "NVSwitch"})
			}
			t.Links = append(t.Links, certificate.Link{A: own, B: "nvswitch", Kind: "NVLink", Count: toSwitch})
		}
	}
}

// slot describes the slot of a function.
func slot(l sysfs.PCILink) string {
	gen := map[float64]int{2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6, 128: 7}[l.GTs]
	if gen == 0 || l.Width == 0 {
		return ""
	}
	return fmt.Sprintf("PCIe %d x%d", gen, l.Width)
}
