package health

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// noGPUs takes the GPUs away from PCI and driver.
func noGPUs(n *fakeNode, err error) {
	n.GPUs, n.Driver = nil, sysfs.Unknown[nvml.Driver](err)
	n.d.PCI.Value = slices.DeleteFunc(n.d.PCI.Value, func(p sysfs.PCIDevice) bool { return p.Vendor == sysfs.VendorNVIDIA })
	for i := range 8 {
		delete(n.d.Errors, bus(i))
	}
}

// onlyOne leaves one GPU, whose NVLinks are down.
func (n *fakeNode) onlyOne() {
	n.GPUs, n.Driver.Value.GPUs, n.d.PCI.Value = n.GPUs[:1], 1, n.d.PCI.Value[:1]
	for i := range n.GPUs[0].Links.Value {
		n.GPUs[0].Links.Value[i].Up = false
	}
}

// TestSituations: what comes of a check where more than one thing is other
// than in the healthy node.
func TestSituations(t *testing.T) {
	for _, tt := range []struct {
		name, check string
		inject      func(*fakeNode)
		want        result.Verdict
		says        string // in reason or value
	}{
		{"no driver and no GPU", "driver/nvml", func(n *fakeNode) { noGPUs(n, nvml.ErrNoLibrary) }, result.Skip, "no GPU on PCI"},
		{"no driver and no GPU", "gpu/ecc/mode", func(n *fakeNode) { noGPUs(n, nvml.ErrNoLibrary) }, result.Skip, "no GPU on PCI"},
		{"no driver and no GPU", "gpu/count", func(n *fakeNode) { noGPUs(n, nvml.ErrNoLibrary) }, result.Skip, "no GPU on PCI"},
		{"no driver and no GPU", "gpu/xid", func(n *fakeNode) { noGPUs(n, nvml.ErrNoLibrary) }, result.Skip, "no device"},
		{"no GPU where some must be", "gpu/count", func(n *fakeNode) { noGPUs(n, nvml.ErrNoLibrary); n.x.Count = count(8) }, result.Fail, "PCI has 0 GPUs, not 8"},
		{"no GPU where none must be", "gpu/count", func(n *fakeNode) { noGPUs(n, nvml.ErrNoLibrary); n.x.Count = count(0) }, result.Pass, "0"},
		{"driver without GPUs", "gpu/ecc/mode", func(n *fakeNode) { noGPUs(n, nil) }, result.Skip, "neither PCI nor the driver"},
		{"no library", "driver/nvml", func(n *fakeNode) { n.GPUs, n.Driver.Err = nil, nvml.ErrNoLibrary }, result.Fail, "PCI has 8 GPUs"},
		{"no library", "gpu/ecc/mode", func(n *fakeNode) { n.GPUs, n.Driver.Err = nil, nvml.ErrNoLibrary }, result.Error, "PCI has 8 GPUs"},
		{"no binding", "driver/nvml", func(n *fakeNode) { n.GPUs, n.Driver.Err = nil, nvml.ErrNoBinding }, result.Error, "no binding"},
		{"no binding", "gpu/count", func(n *fakeNode) { n.GPUs, n.Driver.Err, n.x.Count = nil, nvml.ErrNoBinding, count(8) }, result.Error, "cannot be asked"},
		{"another machine", "gpu/mig", func(n *fakeNode) { n.GPUs, n.Driver.Err = nil, ErrElsewhere }, result.Skip, "another machine"},
		{"another machine", "driver/nvml", func(n *fakeNode) { n.GPUs, n.Driver.Err = nil, ErrElsewhere }, result.Skip, "another machine"},
		{"another machine", "gpu/count", func(n *fakeNode) { n.GPUs, n.Driver.Err, n.x.Count = nil, ErrElsewhere, count(8) }, result.Pass, "8 on PCI"},
		{"another machine", "gpu/count", func(n *fakeNode) { n.GPUs, n.Driver.Err, n.x.Count = nil, ErrElsewhere, count(7) }, result.Fail, "8 GPUs, not 7"},
		{"driver hangs", "gpu/mig", func(n *fakeNode) { n.GPUs, n.Driver.Err = nil, errNoAnswer }, result.Error, "no answer in time"},
		{"driver has lost all", "gpu/count", func(n *fakeNode) { n.GPUs, n.Driver.Value.GPUs = nil, 0 }, result.Fail, "0 GPUs, not 8"},
		{"driver has lost all", "gpu/mig", func(n *fakeNode) { n.GPUs, n.Driver.Value.GPUs = nil, 0 }, result.Error, "the driver none"},

		{"container with some", "gpu/count", func(n *fakeNode) {
			n.GPUs, n.Driver.Value.GPUs, n.s.Dev = n.GPUs[:2], 2, []string{"nvidia0", "nvidia1"}
			n.s.Container = true
		}, result.Pass, "2 of the machine's 8"},
		{"container with some lost", "gpu/count", func(n *fakeNode) { n.GPUs, n.Driver.Value.GPUs, n.s.Container = n.GPUs[:2], 2, true }, result.Fail, "2 GPUs, not 8"},
		{"platform of eight", "gpu/count", func(n *fakeNode) { n.x.Platform = db(n.t, "hgx-h100-ndr400") }, result.Pass, "8"},
		{"platform of eight, seven there", "gpu/count", func(n *fakeNode) {
			n.x.Platform, n.GPUs, n.Driver.Value.GPUs = db(n.t, "hgx-h100-ndr400"), n.GPUs[:7], 7
		}, result.Fail, "7 GPUs, not 8"},
		{"another model", "gpu/platform", func(n *fakeNode) { n.x.Platform = db(n.t, "hgx-h100-ndr400") }, result.Fail, "it is device 2335"},
		{"too few cards", "port/count", func(n *fakeNode) { n.x.Platform = db(n.t, "hgx-h100-ndr400") }, result.Fail, "2 RDMA devices"},
		{"as many ports as were said", "port/count", func(n *fakeNode) { n.x.Ports = count(2) }, result.Pass, "2"},
		{"fewer ports than were said", "port/count", func(n *fakeNode) { n.x.Ports = count(8) }, result.Fail, "2 ports of RDMA devices, not 8"},
		{"a part of a platform's ports, as was said", "port/count", func(n *fakeNode) { n.x.Platform, n.x.Ports = db(n.t, "hgx-h100-ndr400"), count(2) }, result.Pass, "2"},
		{"down where all are needed", "port/state", func(n *fakeNode) { n.x.Platform, n.port().State = db(n.t, "hgx-h100-ndr400"), "INIT" }, result.Fail, "INIT"},
		{"slower than the platform", "port/rate", func(n *fakeNode) {
			n.x.Platform = db(n.t, "hgx-h100-ndr400")
			n.d.RDMA.Value[0].Ports[0].Rate.Gbit, n.port().Rate.Gbit = 200, 200
		}, result.Fail, "200 Gb/s of 400 Gb/s"},

		{"a slow port of another kind", "port/rate", func(n *fakeNode) { n.d.RDMA.Value[1].HCAType, n.port().Rate.Gbit = "MT4117", 25 }, result.Pass, "25 Gb/s"},
		{"a slow port that is down", "port/rate", func(n *fakeNode) { n.port().State, n.port().Rate.Gbit = "DOWN", 10 }, result.Skip, "not up"},
		{"one lane of a port that is down", "port/width", func(n *fakeNode) { n.port().State, n.port().Rate.Lanes = "DOWN", 1 }, result.Skip, "not up"},
		{"enough fast ports for the platform", "port/rate", func(n *fakeNode) {
			n.x.Platform = db(n.t, "hgx-h100-ndr400")
			for range 7 {
				n.d.RDMA.Value = append(n.d.RDMA.Value, rdma("mlx5_9", sysfs.BusID{Bus: 0x49}))
			}
			n.d.RDMA.Value[1].HCAType, n.port().Rate.Gbit = "MT4117", 25
		}, result.Pass, "25 Gb/s"},
		{"no permission", "gpu/recovery", func(n *fakeNode) { n.g.Recovery = sysfs.Unknown[string](nvml.ErrNoPermission) }, result.Skip, "root"},
		{"not supported", "gpu/recovery", func(n *fakeNode) { n.g.Recovery = sysfs.Unknown[string](nvml.ErrNotSupported) }, result.Skip, "not supported"},
		{"odd answer", "gpu/recovery", func(n *fakeNode) { n.g.Recovery = sysfs.Unknown[string](errOdd) }, result.Error, "Unknown Error"},
		{"lost GPU", "gpu/ecc/mode", func(n *fakeNode) { n.g.Err = nvml.ErrLost }, result.Error, "lost"},
		{"lost GPU", "gpu/same/vbios", func(n *fakeNode) { n.g.Err = nvml.ErrLost }, result.Error, "GPU 3"},
		{"counters denied", "gpu/nvlink/crc", func(n *fakeNode) { n.g.Before.Err = nvml.ErrNoPermission }, result.Skip, "root"},
		{"counters read once", "gpu/pcie/replay", func(n *fakeNode) { n.Window = 0 }, result.Skip, "--window 0"},
		{"no such counter", "gpu/nvlink/errors", func(n *fakeNode) { delete(n.g.After.Value, "nvlink_replay") }, result.Skip, "does not count"},

		{"too hot", "gpu/temperature/gpu", func(n *fakeNode) { n.g.Heat = known(87) }, result.Fail, "87 °C"},
		{"capped", "gpu/power/cap", func(n *fakeNode) { n.g.Power.Value.Limit = 500 }, result.Warn, "500 W"},
		{"capped", "gpu/same/power", func(n *fakeNode) { n.g.Power.Value.Limit = 500 }, result.Warn, "500 W (GPU 3)"},
		{"link rests", "gpu/pcie/generation", func(n *fakeNode) { n.g.PCIe.Value.Generation, n.g.Pstate = 1, known(8) }, result.Skip, "may rest"},
		{"bridged pair", "gpu/nvlink/links", func(n *fakeNode) {
			n.g.ID = "ffff"
			n.g.Links = known([]nvml.Link{{Up: true, To: "GPU"}, {Number: 1}})
		}, result.Pass, "1"},
		{"no NVLink", "gpu/nvlink/links", func(n *fakeNode) { n.g.Links = sysfs.Unknown[[]nvml.Link](nvml.ErrNotSupported) }, result.Skip, "not supported"},
		{"one GPU of a board", "gpu/nvlink/links", func(n *fakeNode) { n.onlyOne() }, result.Skip, "the only GPU"},
		{"one GPU of a board", "gpu/fabric/state", func(n *fakeNode) { n.onlyOne(); n.GPUs[0].Fabric.Value.State = 1 }, result.Skip, "the only GPU"},
		{"no fabric", "gpu/fabric/state", func(n *fakeNode) { n.g.Fabric.Value.State = 0 }, result.Skip, "no fabric"},
		{"two cliques", "gpu/fabric/clique", func(n *fakeNode) {
			for i := range n.GPUs {
				n.GPUs[i].Fabric.Value.Cluster = "11223344-5566-7788-99aa-bbccddeeff00"
			}
			n.g.Fabric.Value.Clique = 1
		}, result.Fail, "(GPU 3)"},
		{"no channel", "node/imex", func(n *fakeNode) { n.g.Fabric.Value.Cluster = "11223344-5566-7788-99aa-bbccddeeff00" }, result.Fail, "no channel"},
		{"channel", "node/imex", func(n *fakeNode) {
			n.g.Fabric.Value.Cluster = "11223344-5566-7788-99aa-bbccddeeff00"
			n.s.Dev = append(n.s.Dev, "nvidia-caps-imex-channels/channel0")
		}, result.Pass, "1 channels"},
		{"manager outside", "node/fabric-manager", func(n *fakeNode) { n.s.Processes.Value, n.s.Container = nil, true }, result.Skip, "container"},
		{"CUDA with compatibility", "driver/cuda", func(n *fakeNode) { n.s.CUDA, n.s.Compat = known("14.0"), true }, result.Pass, "forward compatibility"},
		{"memlock without RDMA", "node/memlock", func(n *fakeNode) {
			n.d.RDMA = sysfs.Unknown[[]sysfs.RDMADevice](fs.ErrNotExist)
			n.s.Limits.Value["Max locked memory"] = sysfs.Limit{Soft: 65536}
		}, result.Warn, "64 KiB"},
		{"memlock with the capability", "node/memlock", func(n *fakeNode) {
			n.s.Limits.Value["Max locked memory"] = sysfs.Limit{Soft: 65536}
			n.s.Caps = known(uint64(1 << sysfs.CapIPCLock))
		}, result.Pass, "64 KiB, and CAP_IPC_LOCK"},
		{"waits for a disk", "node/stuck", func(n *fakeNode) {
			n.s.Processes.Value = append(n.s.Processes.Value, sysfs.Process{PID: 4711, Name: "gcc", State: 'D'})
			n.s.Later.Value = append(n.s.Later.Value, sysfs.Process{PID: 4711, Name: "gcc", State: 'R'}, sysfs.Process{PID: 4712, Name: "gcc", State: 'D'})
		}, result.Pass, "0 processes"},
		{"stuck, seen once", "node/stuck", func(n *fakeNode) {
			n.s.Processes.Value = append(n.s.Processes.Value, sysfs.Process{PID: 4711, Name: "gcc", State: 'D'})
			n.s.Later = sysfs.Unknown[[]sysfs.Process](errNoAnswer)
		}, result.Warn, "4711 (gcc)"},
		{"ACS only for root", "pci/acs", func(n *fakeNode) { n.d.Access[sysfs.BusID{Bus: 1}] = sysfs.Unknown[sysfs.ACS](fs.ErrPermission) }, result.Skip, "root"},
		{"bridge without ACS", "pci/acs", func(n *fakeNode) { n.d.Access[sysfs.BusID{Bus: 1}] = sysfs.Unknown[sysfs.ACS](sysfs.ErrNoACS) }, result.Pass, "1 lack it"},

		{"old Xid", "gpu/xid", func(n *fakeNode) { n.log(3*time.Hour, "NVRM: Xid (PCI:0000:13:00): 79, gone") }, result.Pass, "none in 2h"},
		{"old Xid, all count", "gpu/xid", func(n *fakeNode) { n.x.Since = 0; n.log(3*time.Hour, "NVRM: Xid (PCI:0000:13:00): 79, gone") }, result.Fail, "79"},
		{"Xid without a time", "gpu/xid", func(n *fakeNode) { n.l.Uptime = 0; n.log(0, "NVRM: Xid (PCI:0000:13:00): 79, gone") }, result.Fail, "79"},
		{"job's Xid", "gpu/xid", func(n *fakeNode) {
			n.log(time.Hour, "NVRM: Xid (PCI:0000:13:00): 31, pid=1", "NVRM: Xid (PCI:0000:13:00): 31, pid=2")
		}, result.Pass, "Xid 31 ×2"},
		{"recovered", "gpu/xid", func(n *fakeNode) {
			n.log(time.Hour, "NVRM: Xid (PCI:0000:13:00): 119, Timeout", "NVRM: Xid (PCI:0000:13:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
		}, result.Pass, "Xid 154"},
		{"unknown Xid", "gpu/xid", func(n *fakeNode) { n.log(time.Hour, "NVRM: Xid (PCI:0000:13:00): 999, ?") }, result.Warn, "not described"},
		{"NVLink 5, nonfatal", "gpu/xid", func(n *fakeNode) {
			n.log(time.Hour, "NVRM: Xid (PCI:0000:13:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 02")
		}, result.Warn, "NVLink 5"},
		{"SXid that is not fatal", "nvswitch/sxid", func(n *fakeNode) {
			n.log(time.Hour, "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error")
		}, result.Pass, "SXid 12028"},
		{"log only for root", "gpu/xid", func(n *fakeNode) { n.Node.Log = sysfs.Unknown[logState](nvml.ErrNoPermission) }, result.Skip, "root"},
		{"no log", "gpu/xid", func(n *fakeNode) { n.Node.Log = sysfs.Unknown[logState](fs.ErrNotExist) }, result.Skip, "no kernel log"},
		{"files hang", "gpu/xid", func(n *fakeNode) { n.Node.Log = sysfs.Unknown[logState](errNoAnswer) }, result.Error, "kernel's log"},
		{"files hang", "node/memlock", func(n *fakeNode) { n.Node.System = sysfs.Unknown[systemState](errNoAnswer) }, result.Error, "/proc"},
		{"files hang", "port/state", func(n *fakeNode) { n.Node.Devices = sysfs.Unknown[deviceState](errNoAnswer) }, result.Error, "/sys"},
		{"files hang", "driver/denylist", func(n *fakeNode) { n.Node.System = sysfs.Unknown[systemState](errNoAnswer) }, result.Error, "/proc"},
	} {
		t.Run(tt.name+"/"+tt.check, func(t *testing.T) {
			n := newNode(t)
			tt.inject(n)
			rows := toldOf(Run(n.State, *n.x, func(id string) bool { return id == tt.check }))
			i := 0 // the only one, or that of GPU 3
			for k, r := range rows {
				if strings.Contains(r.object, "3") || r.object == "mlx5_1/1" {
					i = k
				}
			}
			if r := rows[i]; r.verdict != tt.want || !strings.Contains(r.says, tt.says) {
				t.Errorf("%v; want %s and %q", r, tt.want, tt.says)
			}
		})
	}
}

// TestRead: what is read is what the sources have; one GPU that never answers
// costs its own checks alone, and the time limit.
func TestRead(t *testing.T) {
	n := newNode(t)
	src := &source{state: n.State, hang: map[int]string{5: "remapped rows"}, never: make(chan struct{})}
	t.Cleanup(func() { close(src.never) })
	f, err := sysfs.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := Read(t.Context(), src, f, ReadOptions{Timeout: time.Second, Window: time.Millisecond, Now: n.Time, Getenv: func(string) string { return "" }})
	if len(s.GPUs) != 8 || s.GPUs[4].Err != nil || s.GPUs[4].UUID != n.GPUs[4].UUID || s.GPUs[4].After.Value["pcie_replay"] != 3 {
		t.Fatalf("%+v", s.GPUs)
	}
	if err := s.GPUs[5].Err; !errors.Is(err, errNoAnswer) || !strings.Contains(err.Error(), "remapped rows") {
		t.Errorf("GPU 5: %v; want no answer, and what was asked", err)
	}
	if !errors.Is(s.Node.System.Value.Limits.Err, fs.ErrNotExist) {
		t.Errorf("limits of an empty tree: %v", s.Node.System.Value.Limits.Err)
	}
	for _, r := range toldOf(Run(s, *n.x, func(id string) bool { return id == "gpu/ecc/mode" || id == "gpu/answers" })) {
		want := result.Pass
		if r.object == "GPU 5" {
			want = result.Error
		}
		if r.verdict != want {
			t.Errorf("%v; want %s", r, want)
		}
	}
}

// TestOverride: a file changes limits, severities and sources, and nothing
// else.
func TestOverride(t *testing.T) {
	n := newNode(t)
	n.g.DRAM.Value.Uncorrectable, n.GPUs[0].Heat = 1, known(40)
	none := func(id string) bool {
		return id == "gpu/ecc/dram/uncorrectable" || id == "gpu/temperature/spread" || id == "node/hugepages"
	}
	if got := wrong(Run(n.State, *n.x, none)); len(got) > 0 {
		t.Errorf("what is only told is wrong: %v", got)
	}
	err := n.x.Rules.Override("site.yaml", strings.NewReader(`schema: 1
thresholds:
  gpu/ecc/dram/uncorrectable: {severity: fail}
  gpu/temperature/spread: {limit: 8, severity: warn, source: our hall}
`))
	if err != nil {
		t.Fatal(err)
	}
	got := wrong(Run(n.State, *n.x, none))
	if len(got) != 2 || got[0].verdict != result.Fail || !strings.HasSuffix(got[0].of.Wanted, "(site.yaml)") || got[1].verdict != result.Warn || got[1].of.Wanted != "at most 8 °C between the coolest and the warmest (our hall)" {
		t.Errorf("%+v", got)
	}
	fresh, err := LoadRules()
	if err != nil || fresh["gpu/temperature/spread"].Severity != severityInfo {
		t.Errorf("the program's own rules have changed: %v, %v", fresh["gpu/temperature/spread"], err)
	}
	for text, says := range map[string]string{
		"schema: 2": "schema 2",
		"":          `begin it with "schema: 1"`,
		"thresholds: {gpu/mig: {severity: info}}":                             `begin it with "schema: 1"`,
		"schema: 1\nthresholds: {gpu/mig: }":                                  "gpu/mig: it changes nothing",
		"schema: 1\nthresholds: {gpu/mig: {limit: null}}":                     "gpu/mig: it changes nothing",
		"schema: 1\n---\nschema: 1\nthresholds: {gpu/mig: {severity: fail}}":  "behind its first YAML document",
		"{\"schema\": 1} {\"schema\": 1}":                                     "behind its first YAML document",
		"schema: 1\nthresholds: {gpu/mig: {severity: info}}\n...\nand: {more": "behind its first YAML document",
		"schema: 1\nthreshold: {}":                                            "threshold",
		"schema: 1\nthresholds: {gpu/none: {limit: 1}}":                       `no check "gpu/none"`,
		"schema: 1\nthresholds: {gpu/mig: {limit: 1}}":                        "no limit",
		"schema: 1\nthresholds: {gpu/mig: {severity: bad}}":                   "want fail, warn or info",
		"schema: 1\nthresholds: {gpu/ecc/volatile: {limit: -1}}":              "from 0 on",
		"schema: 1\nthresholds: {gpu/ecc/volatile: {limit: .nan}}":            "from 0 on",
		"schema: 1\nthresholds: {gpu/ecc/volatile: {limit: 1, unit: a week}}": `in "errors"`,
	} {
		if err := n.x.Rules.Override("site.yaml", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "site.yaml") {
			t.Errorf("Override(%q) = %v; want it to name site.yaml and %q", text, err, says)
		}
	}
}

// FuzzOverride: what is refused changes nothing that cannot be changed, and
// nothing makes it panic.
func FuzzOverride(f *testing.F) {
	f.Add("schema: 1\nthresholds: {gpu/ecc/volatile: {limit: 1, severity: warn, source: us}}")
	f.Add("schema: 1\nthresholds: {gpu/mig: {limit: 1}}")
	f.Add("schema: 1\n---\nschema: 2")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := LoadRules()
		if err != nil {
			t.Fatal(err)
		}
		n := len(rules)
		err = rules.Override("f", strings.NewReader(text))
		for id, r := range rules {
			if r.Source == "" || (r.Unit != "") != (r.Limit != nil) || r.Limit != nil && !(*r.Limit >= 0) {
				t.Errorf("Override(%q) = %v leaves %s with %+v", text, err, id, r)
			}
		}
		if len(rules) != n {
			t.Errorf("Override(%q) makes %d rules of %d", text, len(rules), n)
		}
	})
}

// TestRules: every check has a rule, every rule a check, and a limit is there
// exactly where the check has a number to hold against it.
func TestRules(t *testing.T) {
	rules := expect(t).Rules
	ids := IDs()
	for _, id := range ids {
		r, ok := rules[id]
		if !ok || r.Source == "" || r.Severity == "" || (r.Unit != "") != (r.Limit != nil) {
			t.Errorf("%s: %+v", id, r)
		}
	}
	for id := range rules {
		if !slices.Contains(ids, id) {
			t.Errorf("there is no check %s", id)
		}
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != len(rules) {
		t.Errorf("%d IDs for %d rules", n, len(rules))
	}
}

// TestSides: of every check with a number, the renderers find the side that it is better on.
func TestSides(t *testing.T) {
	rules := expect(t).Rules
	for _, c := range checks {
		r := rules[c.id]
		if r.Limit == nil {
			continue
		}
		want := map[result.LimitKind]result.Better{result.AtLeast: result.Higher, result.AtMost: result.Lower}[c.side()]
		if got := result.BetterOf("after/"+c.id, "", r.Unit, c.side()); got != want {
			t.Errorf("%s in %s is better on side %v; its limit says %v", c.id, r.Unit, got, want)
		}
	}
}
