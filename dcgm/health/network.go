package health

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// networkChecks check RDMA devices and their ports.
var networkChecks = []check{
	{
		id: "port/count", title: "all RDMA devices are there", want: "the platform's", node: checkNICs, uses: usesDevices,
		remedy: "look for the missing card on PCI and in the kernel's log (mlx5_core)",
	},
	{
		id: "port/state", title: "the port is up", want: "ACTIVE and LinkUp", node: ports(checkPort), uses: usesDevices,
		remedy: "look at cable, switch port and subnet manager",
	},
	{
		id: "port/rate", title: "the port has its full rate", want: "that of the other ports of the same kind", node: checkRates, uses: usesDevices,
		remedy: "look at cable, transceiver and the switch port's speed",
	},
	{
		id: "port/width", title: "the port has all its lanes", want: "%s", least: true, node: ports(checkLanes), uses: usesDevices,
		remedy: "clean or replace the cable",
	},
	{
		id: "port/flaps", title: "the link did not go down often", want: "at most %s", remedy: "look at cable, transceiver and the switch's log", uses: usesDevices,
		node: ports(portCounter("link_downed", "times that the link went down since the counters were cleared")),
	},
	{
		id: "port/recovery", title: "the link did not have to recover often", want: "at most %s", remedy: "clean or replace the cable", uses: usesDevices,
		node: ports(portCounter("link_error_recovery", "recoveries of the link since the counters were cleared")),
	},
	{
		id: "port/integrity", title: "the link's physical errors stay below its threshold", want: "at most %s", remedy: "clean or replace the cable", uses: usesDevices,
		node: ports(portCounter("local_link_integrity_errors", "times that the link had too many physical errors")),
	},
	{
		id: "port/overrun", title: "the port's buffers did not overrun", want: "at most %s", remedy: "look at the switch's flow control; have the card replaced if it comes back", uses: usesDevices,
		node: ports(portCounter("excessive_buffer_overrun_errors", "times that the port's buffers overran")),
	},
	{
		id: "port/rnr", title: "receivers were ready", want: "at most %s", remedy: "find the job whose receivers fall behind", uses: usesDevices,
		node: ports(portCounter("rnr_nak_retry_err", "retries given up as the receiver was not ready")),
	},
	{
		id: "port/symbol", title: "symbol errors are few", want: "at most %s", remedy: "clean or replace the cable", uses: usesDevices,
		node: ports(portCounter("symbol_error", "symbol errors since the counters were cleared")),
	},
	{
		id: "port/firmware", title: "cards of one model have one firmware", want: "one for each model", node: checkFirmware, uses: usesDevices,
		remedy: "bring the firmware of all cards to one version (mlxfwmanager)",
	},
	{
		id: "port/verbs", title: "this process has the devices' files", want: "a file in /dev/infiniband for each device", node: checkVerbs, uses: usesDevices | usesSystem,
		remedy: "start the container with --device=/dev/infiniband, and load ib_uverbs on the host",
	},
}

// rdma lists the RDMA devices. If there are none, the outcome gives the reason.
func (e *env) rdma() ([]sysfs.RDMADevice, *outcome) {
	r := e.Node.Devices.Value.RDMA
	if r.Err != nil && !errors.Is(r.Err, fs.ErrNotExist) {
		o := without(permission(r.Err))
		return nil, &o
	}
	if len(r.Value) == 0 {
		o := skipped("there are no RDMA devices")
		return nil, &o
	}
	return r.Value, nil
}

// ports makes a check of every port.
func ports(judge func(*env, string, sysfs.RDMAPort) outcome) func(*env) []outcome {
	return func(e *env) []outcome {
		devices, none := e.rdma()
		if none != nil {
			return node(*none)
		}
		var out []outcome
		for _, d := range devices {
			for _, p := range d.Ports {
				name := portName(d.Name, p.Number)
				out = append(out, judge(e, name, p).on(result.Object{Name: name}))
			}
		}
		if len(out) == 0 {
			return node(skipped("the RDMA devices have no ports"))
		}
		return out
	}
}

func checkNICs(e *env) []outcome {
	has := len(e.Node.Devices.Value.RDMA.Value)
	switch p := e.Platform; {
	case e.Ports != nil:
		has = 0
		for _, d := range e.Node.Devices.Value.RDMA.Value {
			has += len(d.Ports)
		}
		o := good(fmt.Sprint(has))
		if has != *e.Ports {
			o = bad("%d ports of RDMA devices, not %d", has, *e.Ports)
		}
		o.want, o.source = fmt.Sprint(*e.Ports), "--ports"
		return node(o)
	case p == nil:
		return node(skipped("neither --ports nor --hardware was given"))
	case p.NICs == nil || !p.NICs.Count.Known():
		return node(skipped("it is not known how many network cards a %s has", p.Name))
	default:
		want := int(p.NICs.Count.Value)
		o := good(fmt.Sprint(has))
		if has < want {
			o = bad("%d RDMA devices; a %s has %d", has, p.Name, want)
		}
		o.want, o.source = fmt.Sprintf("%d or more", want), "hardware database: "+p.NICs.Count.Source
		return node(o)
	}
}

// checkPort only warns about a port that is down if enough others are up, or if it is not known how
// many are needed: not every port of a card has a cable.
func checkPort(e *env, _ string, p sysfs.RDMAPort) outcome {
	if portUp(p) {
		return good(p.State + ", " + p.PhysState)
	}
	o := bad("the port is %s, its link %s", p.State, p.PhysState)
	o.soft = e.Platform == nil || e.Platform.NICs == nil || e.portsUp() >= int(e.Platform.NICs.Count.Value)
	return o
}

func (e *env) portsUp() int {
	n := 0
	for _, d := range e.Node.Devices.Value.RDMA.Value {
		for _, p := range d.Ports {
			if portUp(p) {
				n++
			}
		}
	}
	return n
}

func portUp(p sysfs.RDMAPort) bool {
	return p.State == "ACTIVE" && (p.PhysState == "LinkUp" || p.PhysState == "")
}

// checkRates compares every port that is up with the fastest of the same kind. It also compares it
// with the platform's rate, unless as many ports as the platform has reach that rate: others may be
// for storage or management.
func checkRates(e *env) []outcome {
	devices, none := e.rdma()
	if none != nil {
		return node(*none)
	}
	want, source := e.platformRate(devices)
	fastest := map[string]float64{}
	for i := range devices {
		for _, p := range devices[i].Ports {
			if k := kindOf(&devices[i], p); portUp(p) {
				fastest[k] = max(fastest[k], p.Rate.Gbit)
			}
		}
	}
	return ports(func(_ *env, name string, p sysfs.RDMAPort) outcome {
		if !portUp(p) {
			return skipped("the port is not up")
		}
		i := slices.IndexFunc(devices, func(d sysfs.RDMADevice) bool { return portName(d.Name, p.Number) == name })
		least := max(want, fastest[kindOf(&devices[i], p)])
		rate := p.Rate.Gbit
		o := good(amount(rate, "Gb/s"))
		if rate < least {
			o = bad("%s of %s", amount(rate, "Gb/s"), amount(least, "Gb/s"))
		}
		o.want = amount(least, "Gb/s")
		if least == want {
			o.source = source
		}
		return o
	})(e)
}

// kindOf identifies a kind of ports that should have the same rate.
func kindOf(d *sysfs.RDMADevice, p sysfs.RDMAPort) string {
	return d.HCAType + " " + d.Board + " " + p.LinkLayer
}

// platformRate is the rate that every port must have, and its source; 0 if the platform is not
// known, or if as many ports as it has reach its rate.
func (e *env) platformRate(devices []sysfs.RDMADevice) (gbit float64, source string) {
	if e.Platform == nil || e.Platform.NICs == nil || !e.Platform.NICs.GbitEach.Known() {
		return 0, ""
	}
	n := e.Platform.NICs
	fast := 0
	for _, d := range devices {
		for _, p := range d.Ports {
			if portUp(p) && p.Rate.Gbit >= n.GbitEach.Value {
				fast++
			}
		}
	}
	if n.Count.Known() && fast >= int(n.Count.Value) {
		return 0, ""
	}
	return n.GbitEach.Value, "hardware database: " + e.Platform.Name + ", " + n.GbitEach.Source
}

func checkLanes(e *env, _ string, p sysfs.RDMAPort) outcome {
	switch {
	case !portUp(p):
		return skipped("the port is not up")
	case p.LinkLayer != "InfiniBand":
		return skipped("lanes of %s are not reported", p.LinkLayer)
	case p.Rate.Lanes == 0:
		return skipped("the port does not tell its lanes")
	}
	n := float64(p.Rate.Lanes)
	return e.measured(n, n >= e.rule.limit(), fmt.Sprintf("%d lanes: the cable or a lane of it is bad", p.Rate.Lanes))
}

func portCounter(name, what string) func(*env, string, sysfs.RDMAPort) outcome {
	return func(e *env, port string, _ sysfs.RDMAPort) outcome {
		f := e.Node.Devices.Value.Ports[port]
		v, ok := f.Value[name]
		switch {
		case f.Err != nil && !errors.Is(f.Err, fs.ErrNotExist):
			return without(permission(f.Err))
		case !ok:
			return skipped("the port has no counter %s", name)
		}
		return e.atMost(float64(v), fmt.Sprintf("%s: %d", what, v))
	}
}

func checkFirmware(e *env) []outcome {
	devices, none := e.rdma()
	if none != nil {
		return node(*none)
	}
	by := map[string]map[string][]string{}
	for _, d := range devices {
		if d.Firmware == "" {
			continue
		}
		model := strings.TrimSpace(d.HCAType + " " + d.Board)
		if by[model] == nil {
			by[model] = map[string][]string{}
		}
		by[model][d.Firmware] = append(by[model][d.Firmware], d.Name)
	}
	if len(by) == 0 {
		return node(skipped("no RDMA device tells its firmware"))
	}
	var out []outcome
	for _, model := range slices.Sorted(maps.Keys(by)) {
		var parts []string
		for _, v := range slices.Sorted(maps.Keys(by[model])) {
			parts = append(parts, fmt.Sprintf("%s (%s)", v, joinWords(by[model][v])))
		}
		o := good(strings.Join(parts, "; "))
		if len(parts) > 1 {
			o = bad("%s", strings.Join(parts, "; "))
		}
		out = append(out, o.on(result.Object{Name: model}))
	}
	return out
}

func checkVerbs(e *env) []outcome {
	devices, none := e.rdma()
	if none != nil {
		return node(*none)
	}
	n := e.Node.System.Value.count("infiniband/uverbs")
	if n < len(devices) {
		return node(bad("%d RDMA devices and %d files /dev/infiniband/uverbs*", len(devices), n))
	}
	return node(good(fmt.Sprint(n)))
}
