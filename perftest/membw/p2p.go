package membw

import (
	"cmp"
	"context"
	"fmt"
	"io"
)

// Parameters of p2pBandwidthLatencyTest, from NVIDIA's cuda-samples 13.0.
const (
	p2pCopies        = 5
	p2pLatencyCopies = 100
	p2pLatencyBytes  = 16
	intBytes         = 4
)

// P2POptions are the options of p2pBandwidthLatencyTest.
type P2POptions struct {
	Elements int  // 4-byte integers per copy
	Read     bool // also measure copies that the receiving GPU makes
	SM       bool // copy by kernel between GPUs that have peer access
}

// Run measures and prints like p2pBandwidthLatencyTest. Pairs without peer access are measured
// through the host.
func (o P2POptions) Run(ctx context.Context, m Machine, w io.Writer) error {
	if err := connect(m, false); err != nil {
		return err
	}
	t := p2pTest{ctx: ctx, Machine: m, P2POptions: o, w: w, n: len(m.GPUs())}
	t.header()
	var failed error // the first
	const uni, both = "Unidirectional P2P=%s Bandwidth%s Matrix (GB/s)\n", "Bidirectional P2P=%s Bandwidth Matrix (GB/s)\n"
	for _, matrix := range []struct {
		title string
		skip  bool
		print func() error
	}{
		{fmt.Sprintf(uni, "Disabled", ""), false, func() error { return t.bandwidth(false, t.write) }},
		{fmt.Sprintf(uni, "Enabled", " (P2P Writes)"), false, func() error { return t.bandwidth(true, t.write) }},
		{fmt.Sprintf(uni, "Enabled", " (P2P Reads)"), !o.Read, func() error { return t.bandwidth(true, t.read) }},
		{fmt.Sprintf(both, "Disabled"), false, func() error { return t.bandwidth(false, t.both) }},
		{fmt.Sprintf(both, "Enabled"), false, func() error { return t.bandwidth(true, t.both) }},
		{"P2P=Disabled Latency Matrix (us)\n", false, func() error { return t.latency(false, t.write) }},
		{"P2P=Enabled Latency (P2P Writes) Matrix (us)\n", false, func() error { return t.latency(true, t.write) }},
		{"P2P=Enabled Latency (P2P Reads) Matrix (us)\n", !o.Read, func() error { return t.latency(true, t.read) }},
	} {
		if matrix.skip {
			continue
		}
		fmt.Fprint(w, matrix.title)
		failed = cmp.Or(failed, matrix.print())
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, sampleNote)
	return cmp.Or(failed, err)
}

type p2pTest struct {
	Machine
	P2POptions
	ctx context.Context
	w   io.Writer
	n   int // GPUs
}

func (t *p2pTest) header() {
	fmt.Fprint(t.w, "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n")
	for _, g := range t.GPUs() {
		fmt.Fprintf(t.w, "Device: %d, %s, pciBusID: %x, pciDeviceID: %x, pciDomainID:%x\n", g.Index, g.Name, g.Bus.Bus, g.Bus.Device, g.Bus.Domain)
	}
	for i := range t.n {
		for j := range t.n {
			if i == j {
				continue
			}
			can := "CAN"
			if t.Peer(i, j) != nil {
				can = "CANNOT"
			}
			fmt.Fprintf(t.w, "Device=%d %s Access Peer Device=%d\n", i, can, j)
		}
	}
	fmt.Fprint(t.w, "\n***NOTE: In case a device doesn't have P2P access to other one, it falls back to normal memcopy procedure.\n"+
		"So you can see lesser Bandwidth (GB/s) and unstable Latency (us) in those cases.\n\nP2P Connectivity Matrix\n     D\\D")
	for j := range t.n {
		fmt.Fprintf(t.w, "%6d", j)
	}
	fmt.Fprintln(t.w)
	for i := range t.n {
		fmt.Fprintf(t.w, "%6d\t", i)
		for j := range t.n {
			reach := 0
			if i == j || t.Peer(i, j) == nil {
				reach = 1
			}
			fmt.Fprintf(t.w, "%6d", reach)
		}
		fmt.Fprintln(t.w)
	}
}

// direct reports whether a pair is measured with peer access.
func (t *p2pTest) direct(p2p bool, i, j int) bool { return p2p && i != j && t.Peer(i, j) == nil }

func (t *p2pTest) engine(direct bool) engine {
	if t.SM && direct {
		return engineSM
	}
	return engineCE
}

// write, read and both return the copies of a cell.

func (t *p2pTest) write(direct bool, i, j int) []Flow { return write(t.engine(direct))(i, j) }
func (t *p2pTest) read(direct bool, i, j int) []Flow  { return read(t.engine(direct))(j, i) }
func (t *p2pTest) both(direct bool, i, j int) []Flow  { return bothWays(t.engine(direct))(i, j) }

// cell measures a pair. If requested and possible, peer access is enabled during the measurement.
func (t *p2pTest) cell(p2p bool, i, j int, flows func(bool, int, int) []Flow, p Plan) (_ Outcome, n int, err error) {
	direct := t.direct(p2p, i, j)
	if direct {
		if err := t.SetPeer(i, j, true); err != nil {
			return Outcome{}, 0, err
		}
		defer func() { err = cmp.Or(err, t.SetPeer(i, j, false)) }()
	}
	p.Short = !direct
	f := flows(direct, i, j)
	out, err := t.Measure(t.ctx, f, p)
	return out, len(f), err
}

// bandwidth prints a matrix in GB/s. Within a GPU bytes count twice, because they are read and
// written.
func (t *p2pTest) bandwidth(p2p bool, flows func(bool, int, int) []Flow) error {
	p := Plan{Bytes: t.Elements * intBytes, Samples: 1, Copies: p2pCopies, Launches: true}
	return t.matrices([]string{"   D\\D"}, func(i, j int) ([]float64, error) {
		out, n, err := t.cell(p2p, i, j, flows, p)
		if err != nil {
			return nil, err
		}
		bytes := float64(p.Bytes * p.Copies * n)
		if i == j {
			bytes *= 2
		}
		return rates(bytes, out.Total[:1]), nil
	})
}

// latency prints matrices in microseconds per copy: GPU time, and host time to enqueue it.
func (t *p2pTest) latency(p2p bool, flows func(bool, int, int) []Flow) error {
	p := Plan{Bytes: p2pLatencyBytes, Samples: 1, Copies: p2pLatencyCopies, Launches: true}
	return t.matrices([]string{"   GPU", "\n   CPU"}, func(i, j int) ([]float64, error) {
		out, _, err := t.cell(p2p, i, j, flows, p)
		if err != nil {
			return nil, err
		}
		return []float64{out.Total[0] * 1e6 / p2pLatencyCopies, out.Enqueue[0] * 1e6 / p2pLatencyCopies}, nil
	})
}

// matrices measures all pairs and prints a matrix for each value of a cell. A failed cell shows N/A
// instead of its number, and the remaining cells are still measured.
func (t *p2pTest) matrices(headings []string, measure func(i, j int) ([]float64, error)) error {
	text := make([][][]string, len(headings))
	var failed error
	for i := range t.n {
		for k := range text {
			text[k] = append(text[k], nil)
		}
		for j := range t.n {
			values, err := measure(i, j)
			if err := context.Cause(t.ctx); err != nil {
				return err
			}
			failed = cmp.Or(failed, err)
			for k := range text {
				cell := "   N/A"
				if err == nil {
					cell = fmt.Sprintf("%6.02f", values[k])
				}
				text[k][i] = append(text[k][i], cell)
			}
		}
	}
	for k, heading := range headings {
		fmt.Fprint(t.w, heading)
		for j := range t.n {
			fmt.Fprintf(t.w, "%6d ", j)
		}
		fmt.Fprintln(t.w)
		for i := range t.n {
			fmt.Fprintf(t.w, "%6d ", i)
			for _, cell := range text[k][i] {
				fmt.Fprintf(t.w, "%s ", cell)
			}
			fmt.Fprintln(t.w)
		}
	}
	return failed
}
