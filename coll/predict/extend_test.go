package predict

import (
	"math"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/internal/platform"
)

func figure(t *testing.T) *platform.DB {
	t.Helper()
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func predictorOf(t *testing.T, j Job) *Predictor {
	t.Helper()
	p, err := NewPredictor(figure(t), j, DefaultFitted)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRacks: several racks are NVLink domains of 72 that an uplink joins, held
// against times worked out by hand; one flat domain of all GPUs, and nodes of 4
// as domains, would be far off.
func TestRacks(t *testing.T) {
	for _, tt := range []struct {
		gpus, nodes, domains int
		bytes                int64
		want                 float64 // microseconds
	}{
		// One rack: operation 8.4; a block of 1/72 in 3 windows of at
		// most 48 MiB, each of which makes 71 steps of 3.4+5; 71/72 of the bytes at
		// 18 links of 40.1 GB/s.
		{72, 18, 1, 8 << 30, 8.4 + 3*71*8.4 + 8589934592*71/72/721.8e3},
		// Two: the uplink is always busy, and the last message arrives 14+5 later.
		{144, 36, 2, 8 << 30, 8.4 + 19 + 8589934592*143/144/426e3},
		// Twenty: small blocks spend more time on 1,419 steps within racks and 20
		// between them than it takes the uplink to move all of them; large ones do not.
		{1440, 360, 20, 8 << 30, 8.4 + 1419*(8589934592/1440/721.8e3+8.4) + 20*(8589934592/1440/426e3+19)},
		{1440, 360, 20, 64 << 30, 8.4 + 19 + 68719476736*1439/1440/426e3},
	} {
		p := predictorOf(t, Job{Platform: "gb200-nvl72", GPUs: tt.gpus, Nodes: tt.nodes, Collective: op.AllGather, Algorithm: "Ring"})
		if got := p.sys.t.domains(); got != tt.domains || p.sys.t.domain() != 72 {
			t.Errorf("%d GPUs on %d nodes: %d domains of %d", tt.gpus, tt.nodes, got, p.sys.t.domain())
		}
		for _, w := range p.ways {
			if w.protocol != simple {
				continue
			}
			d, err := w.simulate(tt.bytes)
			if err != nil {
				t.Fatal(err)
			}
			if got := micros(d); math.Abs(got-tt.want) > 1e-4*tt.want {
				t.Errorf("%d GPUs, %d bytes: %.1f us; by hand %.1f", tt.gpus, tt.bytes, got, tt.want)
			}
		}
	}
}

func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }

// TestExtent: what is extended from few domains is what all of them give.
func TestExtent(t *testing.T) {
	const platform = "hgx-h100-ndr400"
	for _, tt := range []struct {
		collective op.Collective
		gpus       int
		within     float64
	}{
		{op.AllGather, 37 * 8, 1e-4},
		{op.AllGather, 64 * 8, 1e-4},
		{op.ReduceScatter, 50 * 8, 1e-4},
		{op.AllReduce, 48 * 8, 1e-4},
		{op.Broadcast, 61 * 8, 1e-4},
		{op.Reduce, 40 * 8, 1e-4},
		{op.AllReduce, 72 * 8, 0.09},
		{op.AllReduce, 128 * 8, 0.09},
		{op.AllReduce, 200 * 8, 0.09},
	} {
		p := predictorOf(t, Job{Platform: platform, GPUs: tt.gpus, Collective: tt.collective})
		for _, w := range p.ways {
			ring := w.algorithm == "Ring"
			if ring != (tt.within < 0.01) || w.gpus == tt.gpus {
				continue
			}
			for _, bytes := range []int64{8, 1 << 20, 48 << 20, 512 << 20} {
				whole := direct(t, p, w, bytes)
				got, err := w.simulate(bytes)
				if err != nil {
					t.Fatal(err)
				}
				if off := float64(got-whole) / float64(whole); math.Abs(off) > tt.within {
					t.Errorf("%v by %s %v, %d GPUs, %d bytes: %v from %d GPUs, %v from all (%+.4f)", tt.collective, w.algorithm, w.protocol, tt.gpus, bytes, got, w.gpus, whole, off)
				}
			}
		}
	}
}

// direct simulates a way with all domains.
func direct(t *testing.T, p *Predictor, w way, bytes int64) time.Duration {
	t.Helper()
	var d time.Duration
	var err error
	base := w.protocol
	switch w.algorithm {
	case "Ring":
		var s *schedule.Schedule
		s, err = schedule.New(p.job.Collective, schedule.Ring, schedule.Options{Ranks: p.sys.t.Ranks})
		if err != nil {
			t.Fatal(err)
		}
		d, err = Simulate(s, p.sys.ring(base, p.fit), Run{Bytes: bytes, Window: ringChannels * base.chunk()})
		d += times(ringBase[base], p.sys.arch.local[base])
	case "Tree":
		var s *schedule.Schedule
		if s, err = treeSchedule(p.sys.t); err != nil {
			t.Fatal(err)
		}
		d, err = Simulate(s, p.sys.tree(base, p.fit), Run{Bytes: bytes, Window: ringChannels * min(base.chunk(), treeChunk) / int64(s.Channels)})
		d += times(treeBase[base], p.sys.arch.local[base])
	default:
		tt := p.sys.t
		tt.UplinkLatency = nvlsTreeNet
		sw := Switch{Rate: tt.Port * BytesPerSec(p.sys.arch.nvlsTree*nvlsShare), Window: int64(p.sys.arch.nvlsChannels) * int64(tt.domain()) * nvlsTreeChunk}
		d, err = inSwitch(tt, sw, bytes)
		d += p.sys.arch.nvlsBase
	}
	if err != nil {
		t.Fatal(err)
	}
	return d + p.job.launch()
}

// TestHundredThousand: sizes of a machine that cannot be simulated whole.
func TestHundredThousand(t *testing.T) {
	for _, name := range Collectives() {
		c, _ := CollectiveOf(name)
		p := predictorOf(t, Job{Platform: "hgx-h100-ndr400", GPUs: 100_000, Collective: c})
		last := time.Duration(0)
		for _, bytes := range []int64{1, 1 << 20, 1 << 26, 1 << 30, 1 << 34} {
			r, err := p.Predict(bytes)
			if err != nil {
				t.Fatal(err)
			}
			// A chain of all ranks, as in Broadcast, costs what its windows cost,
			// which are not alike.
			if r.Simulated > 1000 && !exchanged(c) || inParts(c) && r.Time < last || r.BusBW > p.sys.t.Uplink {
				t.Errorf("%s, %d bytes: %+v; the time of less is %v, an uplink %v", name, bytes, r, last, p.sys.t.Uplink)
			}
			last = r.Time
		}
	}
}
