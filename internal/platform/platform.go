// Package platform is the hardware database: what GPUs, links, NICs and nodes can do, and values
// that people measured on them. It is stored in the files of internal/hardware; every figure there
// names its source and how far it can be trusted. coll/predict predicts from these figures.
// Recognise determines the platform of a node, and Expect what the node should reach, for suites to
// judge by. Both are pure: the caller reads the machine and describes it as a Node.
//
// Bandwidths are in GB/s (1e9 bytes) and unidirectional unless a name says otherwise; Gbit fields
// are in Gb/s.
package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/internal/hardware"
)

// A DB is a hardware database. It is read-only and may be used concurrently; callers must not
// modify the values that lookups return.
type DB struct {
	Schema          int                        `yaml:"schema"`
	Figure          string                     `yaml:"figure"` // says how figures are written
	Units           map[string]string          `yaml:"units"`
	FloorsMeaning   string                     `yaml:"floors_meaning"`
	MeasuredMeaning string                     `yaml:"measured_meaning"`
	Sources         map[string]hardware.Source `yaml:"sources"`
	GPUs            map[string]*GPU            `yaml:"gpus"`
	NICs            map[string]*NIC            `yaml:"nics"`
	Interconnects   Interconnects              `yaml:"interconnects"`
	Rules           map[string]Rule            `yaml:"rules"`
	Clouds          map[string]*Cloud          `yaml:"clouds"`
	Platforms       map[string]*Platform       `yaml:"platforms"`
	Tables          map[string]*Table          `yaml:"tables"`
}

// A GPU is a GPU model. Unpublished figures are not Known.
type GPU struct {
	Name              string       `yaml:"name"`
	Arch              string       `yaml:"arch"`
	PCIDeviceIDs      []string     `yaml:"pci_device_ids"`     // four hex digits each; the vendor is NVIDIA's or AMD's
	ComputeCapability Figure       `yaml:"compute_capability"` // as text: "9.0"
	SMCount           Figure       `yaml:"sm_count"`
	MemoryGB          Figure       `yaml:"memory_gb"`
	MemoryGBps        Figure       `yaml:"memory_gbps"`
	NVLink            *NVLink      `yaml:"nvlink"` // nil: none
	PCIe              *PCIe        `yaml:"pcie"`   // nil: not known
	C2C               string       `yaml:"c2c"`    // key of Interconnects.NVLink: the link to its processor; "": none
	TDPWatts          Figure       `yaml:"tdp_w"`
	BF16Dense         Figure       `yaml:"bf16_dense_tflops"`
	BF16Measured      Figure       `yaml:"bf16_measured_max_tflops"`
	DCGM              *DCGMTargets `yaml:"dcgm_targets"`
	// DCGMByPCI are the targets of devices of this model that differ from DCGM.
	DCGMByPCI map[string]*DCGMTargets `yaml:"dcgm_by_pci"`
	Notes     string                  `yaml:"notes"`
}

// NVLink describes all links of a GPU together.
type NVLink struct {
	Gen     Figure `yaml:"gen"`
	Links   Figure `yaml:"links"`
	UniGBps Figure `yaml:"uni_gbps"`
}

// PCIe is a GPU's slot.
type PCIe struct {
	Gen     Figure `yaml:"gen"`
	Width   Figure `yaml:"width"`
	UniGBps Figure `yaml:"uni_gbps"`
}

// DCGMTargets are the targets of DCGM's own diagnostics for the model.
type DCGMTargets struct {
	PowerWatts   float64 `yaml:"power_w"`
	StressGFLOPS float64 `yaml:"stress_gflops"`
	MemoryMBps   float64 `yaml:"membw_mbps"`
	Source       string  `yaml:"source"`
	// Suspect names the targets that are evident mistakes. They are not used to judge.
	Suspect []string `yaml:"suspect"`
}

// A NIC is a model of network adapter, or of its virtual functions.
type NIC struct {
	Name         string   `yaml:"name"`
	Vendor       string   `yaml:"vendor"`         // PCI, four hex digits
	PCIDeviceIDs []string `yaml:"pci_device_ids"` // four hex digits each
	Source       string   `yaml:"source"`         // of the numbers
	MaxGbit      Figure   `yaml:"max_gbit"`       // of a port, on the fastest board
	Notes        string   `yaml:"notes"`
}

// A Cloud is recognised by DMI values. An empty field matches all.
type Cloud struct {
	Name     string `yaml:"name"`
	Vendor   string `yaml:"sys_vendor"`
	Product  string `yaml:"product_name"`
	AssetTag string `yaml:"chassis_asset_tag"`
	Source   string `yaml:"source"`
}

// Interconnects are the links by kind and generation.
type Interconnects struct {
	PCIe struct {
		PerLaneGBps map[int]float64 `yaml:"per_lane_gbps"`
		X16UniGBps  map[int]Figure  `yaml:"x16_uni_gbps"` // by generation
		Note        string          `yaml:"note"`
	} `yaml:"pcie"`
	NVLink             map[string]Link       `yaml:"nvlink"` // by generation: "4"
	NVLinkRawToNominal Figure                `yaml:"nvlink_raw_to_nominal"`
	InfiniBand         map[string]InfiniBand `yaml:"infiniband"` // by name: "NDR"
	InfiniBandLatency  map[string]Figure     `yaml:"infiniband_latency_us"`
	RoCE               struct {
		Note          string  `yaml:"note"`
		Example400GbE float64 `yaml:"example_400gbe_uni_gbps"`
	} `yaml:"roce"`
	EFA       map[string]Link `yaml:"efa"`
	Slingshot map[string]Link `yaml:"slingshot"`
	OmniPath  map[string]Link `yaml:"omni_path"`
	GCP       map[string]Link `yaml:"gcp"`
	XGMI      map[string]Link `yaml:"amd_xgmi"`
	Gaudi     map[string]Link `yaml:"gaudi"`
}

// A Link is one kind of interconnect. Unknown fields are zero.
type Link struct {
	Name             string   `yaml:"name"`
	UniGBps          Figure   `yaml:"uni_gbps"` // of all links of an accelerator
	Links            int      `yaml:"links"`
	PerGPU           string   `yaml:"per_gpu"` // which models
	RawLinkGBps      float64  `yaml:"raw_link_gbps"`
	NICs             *int     `yaml:"nics"`
	Gbit             *float64 `yaml:"gbit"` // of a NIC
	TotalUniGBps     Figure   `yaml:"total_uni_gbps"`
	PerPeerGBps      float64  `yaml:"per_peer_gbps"`
	Peers            int      `yaml:"peers"`
	InterNodeUniGBps Figure   `yaml:"inter_node_uni_gbps"`
	Note             string   `yaml:"note"`
}

// InfiniBand is one generation of InfiniBand.
type InfiniBand struct {
	LaneGbit Figure `yaml:"lane_gbit"`
	X1       Width  `yaml:"x1"`
	X4       Width  `yaml:"x4"`
	X8       Width  `yaml:"x8"`
	X12      Width  `yaml:"x12"`
}

// A Width is the bandwidth of a number of lanes.
type Width struct {
	Gbit    float64 `yaml:"gbit"`
	UniGBps float64 `yaml:"uni_gbps"`
}

// A Platform is a node or a rack, as sold.
type Platform struct {
	Name          string   `yaml:"name"`
	GPU           string   `yaml:"gpu"`             // key of DB.GPUs; "": any
	OtherGPUs     []string `yaml:"other_gpus"`      // keys of DB.GPUs that are sold under the same name
	Aliases       []string `yaml:"aliases"`         // what else people call it
	Cloud         string   `yaml:"cloud"`           // key of DB.Clouds: exists only in that cloud
	Products      []string `yaml:"products"`        // prefixes of DMI's product name; a match decides
	ProductsFrom  string   `yaml:"products_source"` // key of DB.Sources
	Reference     bool     `yaml:"reference"`       // only results to compare with: no node is recognised as it
	GPUsPerNode   Counts   `yaml:"gpus_per_node"`
	GPUsPerDomain int      `yaml:"gpus_per_domain"` // of an NVLink domain; 0: as for a node
	NICs          *NICs    `yaml:"nics"`            // nil: not known
	NVSwitch      *Switch  `yaml:"nvswitch"`
	Floors        []Result `yaml:"floors"`
	Measured      []Result `yaml:"measured"`
	Notes         string   `yaml:"notes"`

	own bool // from a file of one's own
}

// NICs are the NICs of a node.
type NICs struct {
	Count     Figure `yaml:"count"`
	GbitEach  Figure `yaml:"gbit_each"`
	TotalGbit Figure `yaml:"total_gbit"`
	Kind      string `yaml:"kind"`
}

// A Switch describes the NVSwitches of a node or rack.
type Switch struct {
	Count Figure `yaml:"count"`
	Gen   Figure `yaml:"gen"`
}

// Parse reads a database. Keys outside the schema, entries that are in two files, sources and GPUs
// that are not listed, and impossible figures are errors.
func Parse(files fs.FS) (*DB, error) {
	db := new(DB)
	err := hardware.Read(files, func(f *databaseFile) error { return db.add(&f.DB) })
	if err == nil {
		err = db.check()
	}
	if err != nil {
		return nil, fmt.Errorf("hardware database: %w", err)
	}
	return db, nil
}

// databaseFile is the schema of one file.
type databaseFile struct {
	DB       `yaml:",inline"`
	Sets     yaml.Node `yaml:"sets"` // for build/jobs
	Profiles yaml.Node `yaml:"profiles"`
}

// add merges one file into the database.
func (db *DB) add(f *DB) error {
	if f.Schema != 0 {
		db.Schema, db.Figure, db.Units, db.FloorsMeaning, db.MeasuredMeaning = f.Schema, f.Figure, f.Units, f.FloorsMeaning, f.MeasuredMeaning
	}
	if !reflect.ValueOf(f.Interconnects).IsZero() {
		db.Interconnects = f.Interconnects
	}
	return errors.Join(hardware.Unite("sources", &db.Sources, f.Sources), hardware.Unite("gpus", &db.GPUs, f.GPUs), hardware.Unite("nics", &db.NICs, f.NICs), hardware.Unite("rules", &db.Rules, f.Rules),
		hardware.Unite("clouds", &db.Clouds, f.Clouds), hardware.Unite("platforms", &db.Platforms, f.Platforms), hardware.Unite("tables", &db.Tables, f.Tables))
}

// GPU returns a model by its key ("h100-sxm").
func (db *DB) GPU(key string) (*GPU, error) {
	if g := db.GPUs[key]; g != nil {
		return g, nil
	}
	return nil, unknown("GPU", key, slices.Sorted(maps.Keys(db.GPUs)))
}

// GPUByPCI returns the model with a PCI device id (four hex digits), and its key; nil if there is
// none.
func (db *DB) GPUByPCI(id string) (key string, g *GPU) {
	id = strings.ToLower(strings.TrimPrefix(id, "0x"))
	for _, key := range slices.Sorted(maps.Keys(db.GPUs)) {
		if slices.Contains(db.GPUs[key].PCIDeviceIDs, id) {
			return key, db.GPUs[key]
		}
	}
	return "", nil
}

// Platform returns a platform by its key ("gb200-nvl72") or another name that Key knows.
func (db *DB) Platform(name string) (*Platform, error) {
	key, err := db.Key(name)
	return db.Platforms[key], err
}

// Table returns a published sweep by its key ("a100-8").
func (db *DB) Table(key string) (*Table, error) {
	if t := db.Tables[key]; t != nil {
		return t, nil
	}
	return nil, unknown("table", key, slices.Sorted(maps.Keys(db.Tables)))
}

func unknown(what, key string, all []string) error {
	return fmt.Errorf("there is no %s %q; there are: %s", what, key, strings.Join(all, ", "))
}

// Gbit returns the total bandwidth of a node's NICs in Gb/s, with the figure it is based on; 0 if
// it is not known.
func (n *NICs) Gbit() (float64, Figure) {
	switch {
	case n == nil:
	case n.TotalGbit.Known():
		return n.TotalGbit.Value, n.TotalGbit
	case n.Count.Known() && n.GbitEach.Known():
		return n.Count.Value * n.GbitEach.Value, n.GbitEach
	}
	return 0, Figure{}
}

// PortGbit returns the rate of a platform's RDMA ports in Gb/s.
func (db *DB) PortGbit(name string) (float64, error) {
	p, err := db.Platform(name)
	switch {
	case err != nil:
		return 0, err
	case p.NICs == nil || p.NICs.GbitEach.Value == 0:
		return 0, fmt.Errorf("the rate of %s's ports is not known: use --expect", name)
	}
	return p.NICs.GbitEach.Value, nil
}
