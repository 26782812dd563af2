package membw

import (
	"fmt"
	"strings"
)

// A testcase is a testcase of nvbandwidth.
type testcase struct {
	name, about string
	peers       bool // it needs two GPUs with access to each other
	matrices    []matrixKind
	square      bool                                 // one row per GPU instead of one row
	flows       func(t *nvTest, row, col int) []Flow // none: the cell is N/A
	total       bool                                 // all flows' bytes over the total time; otherwise those of the first flow
	latency     bool
}

// A matrixKind is one of the matrices that a testcase prints.
type matrixKind struct {
	suffix string // of the name after SUM
	title  string
	value  func(flows []float64) float64 // nil: the first value of the cell
}

// nvCases are the testcases of nvbandwidth 0.8, in the order of their indexes.
var nvCases = makeCases()

func makeCases() []testcase {
	var out []testcase
	for _, e := range []engine{engineCE, engineSM} {
		out = append(out, hostCases(e)...)
		out = append(out, peerCases(e)...)
		out = append(out, allHostCases(e)...)
		out = append(out, allPeerCases(e)...)
	}
	return append(out, testcase{
		name: "host_device_latency_sm", about: "time of one dependent load of the host's memory by a GPU", latency: true,
		matrices: one("memory latency SM CPU(row) <-> GPU(column) (ns)"),
		flows:    func(_ *nvTest, _, g int) []Flow { return []Flow{{From: place{g, pinned}, By: g}} },
	}, testcase{
		name: "device_to_device_latency_sm", about: "time of one dependent load of another GPU's memory", latency: true, peers: true, square: true,
		matrices: one("Device to Device Latency SM GPU(row) <-> GPU(column) (ns)"),
		flows:    pair(func(i, j int) []Flow { return []Flow{{From: gpu(j), By: i}} }),
	}, testcase{
		name: "device_local_copy", about: "copies within a GPU by a kernel, bytes counted once",
		matrices: one("memcpy local GPU(column) bandwidth (GB/s)"),
		flows:    func(_ *nvTest, _, g int) []Flow { return write(engineSM)(g, g) },
	})
}

func one(title string) []matrixKind { return []matrixKind{{title: title}} }

// bandwidthTitle is nvbandwidth's title of a matrix.
func bandwidthTitle(e engine, row, arrow, what string) []matrixKind {
	return one(fmt.Sprintf("memcpy %v %s(row) %s GPU(column) %sbandwidth (GB/s)", e, row, arrow, what))
}

func low(e engine) string { return strings.ToLower(e.String()) }

// pair skips the diagonal and pairs without peer access.
func pair(f func(i, j int) []Flow) func(*nvTest, int, int) []Flow {
	return func(t *nvTest, i, j int) []Flow {
		if i == j || t.Peer(i, j) != nil || t.Peer(j, i) != nil {
			return nil
		}
		return f(i, j)
	}
}

// hostFlow is a copy between host and GPU.
func hostFlow(e engine, up bool, g, scale int) Flow {
	f := Flow{From: gpu(g), To: place{g, pinned}, By: g, Engine: e, Scale: scale}
	if up {
		f.From, f.To = f.To, f.From
	}
	return f
}

// hostBoth is a copy with load in the other direction. With CE the load is a second copy of twice
// the size, so that it ends later; with SM it is the odd warps of the same kernel.
func hostBoth(e engine, up bool, g, scale int) []Flow {
	f := hostFlow(e, up, g, scale)
	if e == engineSM {
		f.Both = true
		return []Flow{f}
	}
	return []Flow{f, hostFlow(e, !up, g, 2)}
}

// hostWay returns the name of a direction, with nvbandwidth's arrow.
func hostWay(up bool) (name, arrow, about string) {
	if up {
		return "host_to_device", "->", "host to GPU"
	}
	return "device_to_host", "<-", "GPU to host"
}

func hostCases(e engine) (out []testcase) {
	for _, both := range []bool{false, true} {
		for _, up := range []bool{true, false} {
			name, arrow, about := hostWay(up)
			c := testcase{name: name + "_memcpy_" + low(e), about: about, matrices: bandwidthTitle(e, "CPU", arrow, "")}
			c.flows = func(_ *nvTest, _, g int) []Flow { return []Flow{hostFlow(e, up, g, 1)} }
			if both {
				c.name, c.about = name+"_bidirectional_memcpy_"+low(e), about+", while the other direction is busy"
				c.matrices = bandwidthTitle(e, "CPU", "<->", "")
				c.flows = func(_ *nvTest, _, g int) []Flow { return hostBoth(e, up, g, 1) }
			}
			out = append(out, c)
		}
	}
	return out
}

func peerCases(e engine) (out []testcase) {
	for _, both := range []bool{false, true} {
		for _, reads := range []bool{true, false} {
			verb, arrow, by := "write", "<-", write(e)
			if reads {
				verb, arrow, by = "read", "->", func(i, j int) []Flow { return read(e)(j, i) }
			}
			c := testcase{
				name: "device_to_device_memcpy_" + verb + "_" + low(e), about: "GPU to GPU, by the one that " + verb + "s",
				peers: true, square: true, matrices: bandwidthTitle(e, "GPU", arrow, ""), flows: pair(by),
			}
			if both {
				c.name, c.about = "device_to_device_bidirectional_memcpy_"+verb+"_"+low(e), c.about+", both ways at once"
				c.flows = pair(func(i, j int) []Flow { return append(by(i, j), by(j, i)...) })
				c.matrices = threeMatrices(e, verb)
			}
			out = append(out, c)
		}
	}
	return out
}

// threeMatrices are the matrices of both directions and of their sum.
func threeMatrices(e engine, verb string) []matrixKind {
	name := strings.ToUpper(verb[:1]) + verb[1:]
	kind := func(suffix, what string, value func([]float64) float64) matrixKind {
		return matrixKind{suffix, bandwidthTitle(e, "GPU", "<->", what+" ")[0].title, value}
	}
	return []matrixKind{
		kind("_"+verb+"1", name+"1", func(f []float64) float64 { return f[0] }),
		kind("_"+verb+"2", name+"2", func(f []float64) float64 { return f[1] }),
		kind("_total", "Total", func(f []float64) float64 { return f[0] + f[1] }),
	}
}

func allHostCases(e engine) (out []testcase) {
	for _, up := range []bool{false, true} {
		for _, both := range []bool{false, true} {
			_, arrow, about := hostWay(up)
			name := map[bool]string{true: "host_to_all", false: "all_to_host"}[up]
			c := testcase{name: name + "_memcpy_" + low(e), about: about + ", while all others do the same", matrices: bandwidthTitle(e, "CPU", arrow, "")}
			c.flows = func(t *nvTest, _, g int) []Flow {
				flows := []Flow{hostFlow(e, up, g, 1)}
				for o := range t.others(g) {
					flows = append(flows, hostFlow(e, up, o, 2))
				}
				return flows
			}
			if both {
				c.name, c.about = name+"_bidirectional_memcpy_"+low(e), about+", while all are busy in both directions"
				c.matrices = bandwidthTitle(e, "CPU", "<->", "")
				c.flows = func(t *nvTest, _, g int) []Flow {
					flows := hostBoth(e, up, g, 1)
					for o := range t.others(g) {
						flows = append(flows, hostBoth(e, up, o, 2)...)
					}
					return flows
				}
			}
			out = append(out, c)
		}
	}
	return out
}

// allPeerCases are the testcases between one GPU and all others; column g is the one GPU. As in
// nvbandwidth, "all read from one" is outbound traffic of the one.
func allPeerCases(e engine) (out []testcase) {
	for _, c := range []struct {
		name, arrow, about string
		flow               func(g, o int) []Flow
	}{
		{"all_to_one_write", "<-", "all others write to one GPU, total", func(g, o int) []Flow { return write(e)(o, g) }},
		{"all_to_one_read", "->", "all others read from one GPU, total", func(g, o int) []Flow { return read(e)(g, o) }},
		{"one_to_all_write", "->", "one GPU writes to all others, total", func(g, o int) []Flow { return write(e)(g, o) }},
		{"one_to_all_read", "<-", "one GPU reads from all others, total", func(g, o int) []Flow { return read(e)(o, g) }},
	} {
		out = append(out, testcase{
			name: c.name + "_" + low(e), about: c.about, peers: true, total: true, matrices: bandwidthTitle(e, "GPU", c.arrow, ""),
			flows: func(t *nvTest, _, g int) (flows []Flow) {
				for o := range t.others(g) {
					if t.Peer(g, o) == nil && t.Peer(o, g) == nil {
						flows = append(flows, c.flow(g, o)...)
					}
				}
				return flows
			},
		})
	}
	return out
}
