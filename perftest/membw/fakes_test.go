package membw

import (
	"cmp"
	"context"
	"fmt"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A bench is a Machine with results that are fixed: a copy takes as long as gbps
// says, or does what fail says.
type bench struct {
	n     int
	name  string
	gbps  func(f Flow) float64
	fail  func(f Flow) error
	apart [2]int // these two have no peer access, if they differ
	on    map[[2]int]bool
	asked []string // what was measured
}

func (b *bench) GPUs() (out []GPU) {
	for i := range b.n {
		out = append(out, GPU{Index: i, Name: b.name, Bus: sysfs.BusID{Bus: uint8(0x18 + 0x10*i)}, Node: i / 2, CPUs: fmt.Sprintf("%d-%d", 32*(i/2), 32*(i/2)+31)})
	}
	return out
}

func (b *bench) CUDA() int    { return 13000 }
func (b *bench) Close() error { return nil }

func (b *bench) Peer(i, j int) error {
	if i == j || b.apart[0] != b.apart[1] && (b.apart == [2]int{i, j} || b.apart == [2]int{j, i}) {
		return errPeer
	}
	return nil
}

func (b *bench) SetPeer(i, j int, on bool) error {
	if b.on == nil {
		b.on = map[[2]int]bool{}
	}
	b.on[[2]int{i, j}], b.on[[2]int{j, i}] = on, on
	return nil
}

func (b *bench) Measure(ctx context.Context, flows []Flow, p Plan) (Outcome, error) {
	out := Outcome{Flows: make([][]float64, len(flows))}
	b.asked = append(b.asked, fmt.Sprintf("%v %d×%d %d", flows, p.Bytes, p.Copies, p.Timing))
	var failed error
	for s := range p.Samples {
		slowest := 0.0
		for i, f := range flows {
			if b.fail != nil {
				failed = cmp.Or(failed, b.fail(f))
			}
			// Samples differ a little: the median is the second of three.
			t := float64(p.Bytes*p.Copies*max(1, f.Scale)) / b.gbps(f) / 1e9 * (1 + 0.01*float64(s-p.Samples/2))
			if p.Bytes < 100 {
				t += float64(p.Copies) * 1.5e-6
			}
			out.Flows[i] = append(out.Flows[i], t)
			slowest = max(slowest, t)
		}
		out.Total, out.Enqueue = append(out.Total, slowest), append(out.Enqueue, float64(p.Copies)*2.5e-6)
	}
	return out, failed
}

func (b *bench) Latency(_ context.Context, l Latency) (out []float64, _ error) {
	for range l.Samples {
		out = append(out, 1/b.gbps(Flow{From: l.At, To: gpu(l.By), By: l.By})*1e-6)
	}
	return out, nil
}

// h200s are GPUs that reach what is known of H200s.
func h200s(n int) *bench {
	return &bench{n: n, name: "NVIDIA H200", gbps: func(f Flow) float64 {
		host, local := f.From.Memory != ofGPU || f.To.Memory != ofGPU, f.From.GPU == f.To.GPU
		switch {
		case f.From.Memory == pageable || f.To.Memory == pageable:
			return 12.5
		case host:
			return 55.4
		case local:
			return 2081
		case f.Engine == engineSM:
			return 370.25
		}
		return 396.4
	}}
}
