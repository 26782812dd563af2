package judge

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/internal/platform"
)

//go:embed reach.yaml
var reachFile []byte

// A span is what healthy machines reach.
type span struct{ low, typical, high float64 }

// UnmarshalYAML reads [low, typical, high].
func (s *span) UnmarshalYAML(n *yaml.Node) error {
	var v [3]float64
	if err := n.Decode(&v); err != nil {
		return err
	}
	*s = span{v[0], v[1], v[2]}
	if !(0 < s.low && s.low <= s.typical && s.typical <= s.high) {
		return fmt.Errorf("line %d: %v is not [low, typical, high]", n.Line, v)
	}
	return nil
}

func (s span) times(f float64) span { return span{s.low * f, s.typical * f, s.high * f} }

// A gpu is an entry of reach.yaml, which says what the fields mean.
type gpu struct {
	Name        string  `yaml:"name"`
	Match       string  `yaml:"match"`
	GPUs        int     `yaml:"gpus"`
	Domain      int     `yaml:"domain"`
	Link        string  `yaml:"link"`
	Slots       bool    `yaml:"slots"`
	ThroughHost bool    `yaml:"through_host"` // no peer access
	AMD         bool    `yaml:"amd"`
	Mesh        bool    `yaml:"mesh"` // no switch: a pair has one or two links
	Uni         float64 `yaml:"uni"`
	Ring        span    `yaml:"ring"`
	Switch      span    `yaml:"switch"`
	Pair        span    `yaml:"pair"` // a bridge's
	Copy        span    `yaml:"copy"`
	PCIe        float64 `yaml:"pcie"`
	Memory      float64 `yaml:"memory"`
	Host        [2]span `yaml:"host"` // to the device, from it
	NICs        int     `yaml:"nics"`
	Gbit        float64 `yaml:"gbit"`
	Port        float64 `yaml:"port"` // Gb/s that the slot of a port carries, where that is less than its rate
	Kind        string  `yaml:"kind"`
	Source      string  `yaml:"source"`

	name *regexp.Regexp
}

var gpus = sync.OnceValues(func() ([]*gpu, error) {
	var f struct {
		GPUs []*gpu `yaml:"gpus"`
	}
	d := yaml.NewDecoder(strings.NewReader(string(reachFile)))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("reach.yaml: %w", err)
	}
	for _, g := range f.GPUs {
		var err error
		if g.name, err = regexp.Compile(g.Match); err != nil || g.Source == "" || g.GPUs == 0 {
			return nil, fmt.Errorf("reach.yaml: %s: match, source or gpus: %v", g.Name, err)
		}
	}
	return f.GPUs, nil
})

// findGPU finds a GPU by the driver's name, or in what somebody wrote; nil if it is none that is known.
func findGPU(name string) *gpu {
	all, err := gpus()
	if err != nil {
		panic(err) // the file is part of the program, and a test reads it
	}
	name = strings.ToLower(name)
	for _, g := range all {
		if g.name.MatchString(name) {
			return g
		}
	}
	return nil
}

// reachOf derives what a GPU reaches that reach.yaml lacks from its figures, by the shares of them that H100 and A100
// reach; nil if there are no figures.
func reachOf(g *platform.GPU) *gpu {
	d := &gpu{Name: g.Name, GPUs: 8, Source: "derived from its figures in the hardware database, by the shares that H100 reaches"}
	if p := g.PCIe; p != nil {
		d.Link, d.Slots, d.PCIe = "PCIe "+p.Gen.Text, true, p.UniGBps.Value
		d.Host = [2]span{{d.PCIe * 0.71, d.PCIe * 0.86, d.PCIe * 0.94}, {d.PCIe * 0.67, d.PCIe * 0.84, d.PCIe * 0.94}}
	}
	if l := g.NVLink; l != nil && l.UniGBps.Known() {
		d.Link, d.Slots, d.Uni = "NVLink "+l.Gen.Text, false, l.UniGBps.Value
		d.Ring, d.Copy = span{0.74, 0.8, 0.84}.times(d.Uni), span{0.76, 0.88, 0.95}.times(d.Uni)
		if g.Arch != "volta" && g.Arch != "ampere" {
			d.Switch = span{0.85, 1, 1.09}.times(d.Uni)
		}
	}
	d.Memory = g.MemoryGBps.Value
	if d.PCIe == 0 && d.Uni == 0 {
		return nil
	}
	return d
}
