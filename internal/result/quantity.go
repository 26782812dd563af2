package result

import (
	"regexp"
	"slices"
	"strings"
)

// Better is the direction in which values improve.
type Better uint8

// The directions. Unknown is for unregistered quantities.
const (
	Unknown Better = iota
	Higher
	Lower
)

// A Quantity is one kind of figure.
type Quantity struct {
	// Name is the name in certificates: an object's quantity or, where that is empty, the end of
	// the check's id.
	Name   string
	Unit   string
	Better Better
	// Kind is the kind of checks that measures it, as suite files name it.
	Kind string
}

// table contains all quantities except those of health, which all have a limit that gives the
// direction. A check that measures something new adds it here; tests of the checks fail until it
// does.
var table = slices.Concat(
	each("bandwidth", "GB/s", Higher, "host_to_device", "device_to_host", "host_to_device_all", "device_to_host_all", "local_ce", "local_sm",
		"peer_write_ce", "peer_read_ce", "peer_write_sm", "peer_read_sm", "peer_both_ce", "peer_both_sm"),
	each("bandwidth", "ns", Lower, "host_latency", "peer_latency"),

	each("coll", "GB/s", Higher, "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter", "sendrecv", "bus bandwidth"),
	each("coll", "%", Lower, "behind the median rank"),
	each("coll", "errors", Lower, "sums with other bits"),
	each("train", "tokens/s", Higher, "train"),
	each("train", "ms", Lower, "computing alone"),
	each("hunt", "ratio", Higher, "bandwidth, of what is usual"),

	each("diag", "GB/s", Higher, "write", "read", "copy", "triad", "verify", "verify and invert", "copy through the host",
		"h2d", "d2h", "both", "h2d, all at once", "d2h, all at once", "both, all at once"),
	each("diag", "TFLOP/s", Higher, "bf16 products, wgmma", "fp16 products, wgmma", "bf16 products, mma", "fp16 products, mma", "fp32 products, fma", "fp64 products, fma", "fp32 products"),
	each("diag", "B", Higher, "memory tested"),
	each("diag", "%", Higher, "share of all memory"),
	each("diag", "passes", Higher, "patterns verified"),
	each("diag", "pulses", Higher, "pulses"),
	each("diag", "°C", Lower, "highest temperature"),
	each("diag", "W", Higher, "highest power"), // the tests look for boards that cannot draw the power that they should
	each("diag", "MHz", Higher, "mean clock"),
	each("diag", "during the test", Lower, "PCIe replays", "PCIe errors, corrected", "PCIe errors, not fatal", "PCIe errors, fatal",
		"NVLink CRC errors, flits", "NVLink CRC errors, data", "NVLink recoveries", "NVLink replays"),

	// Two of health's quantities, for certificates without their limit: their unit gives the
	// wrong direction.
	each("health", "°C", Higher, "gpu/temperature/near", "gpu/temperature/margin"), // to the highest temperature
)

func each(kind, unit string, b Better, names ...string) (out []Quantity) {
	for _, n := range names {
		out = append(out, Quantity{Name: n, Unit: unit, Better: b, Kind: kind})
	}
	return out
}

// units are those that give the direction by themselves: rates and times. They are used for
// figures without a name, such as a mesh's pairs.
var units = map[string]Better{
	"B/s": Higher, "MB/s": Higher, "GB/s": Higher, "TB/s": Higher, "MiB/s": Higher, "GiB/s": Higher, "Mb/s": Higher, "Gb/s": Higher,
	"GFLOP/s": Higher, "TFLOP/s": Higher, "tokens/s": Higher,
	"s": Lower, "ms": Lower, "us": Lower, "µs": Lower, "μs": Lower, "ns": Lower, "seconds": Lower, "errors": Lower, "°C": Lower,
}

// BetterOf returns the direction in which a figure improves: by its name in a certificate, or
// else by the check that measured it, or else by the kind of its limit ("" if it has none), or
// else by its unit.
func BetterOf(check, name, unit string, limit LimitKind) Better {
	if q, ok := registered(check, name, unit); ok {
		return q.Better
	}
	switch limit {
	case AtLeast:
		return Higher
	case AtMost:
		return Lower
	}
	return units[unit]
}

func registered(check, name, unit string) (Quantity, bool) {
	match := func(name string) (Quantity, bool) {
		i := slices.IndexFunc(table, func(q Quantity) bool { return q.Name == name && q.Unit == unit })
		if i < 0 {
			return Quantity{}, false
		}
		return table[i], true
	}
	if q, ok := match(name); ok {
		return q, true
	}
	if q, ok := match(repeated.ReplaceAllString(name, "")); ok {
		return q, true
	}
	for end, more := check, true; more; _, end, more = strings.Cut(end, "/") {
		if q, ok := match(end); ok {
			return q, true
		}
	}
	return Quantity{}, false
}

// repeated matches the number that distinguishes a second figure of the same name and thing.
var repeated = regexp.MustCompile(` [0-9]+$`)

// Quantities returns those that a kind of checks measures.
func Quantities(kind string) (out []Quantity) {
	for _, q := range table {
		if q.Kind == kind {
			out = append(out, q)
		}
	}
	return out
}
