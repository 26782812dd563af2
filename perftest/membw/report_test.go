package membw

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/perftest/judge"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// links is what a driver says of GPUs; each time it is asked, counters may have
// moved.
func links(b *bench, moved func(call int, bus sysfs.BusID, l *nvml.Links)) func() (map[sysfs.BusID]nvml.Links, error) {
	call := 0
	return func() (map[sysfs.BusID]nvml.Links, error) {
		out := map[sysfs.BusID]nvml.Links{}
		for _, g := range b.GPUs() {
			l := nvml.Links{PCIDevice: "2335", PCIeGen: 5, PCIeWidth: 16, MaxGen: 5, MaxWidth: 16, NVLinks: 18, Errors: map[string]uint64{"pcie_replay": 7, "nvlink_replay": 0}}
			if moved != nil {
				moved(call, g.Bus, &l)
			}
			out[g.Bus] = l
		}
		call++
		return out, nil
	}
}

func report(t *testing.T, b *bench, change func(*Options)) *Report {
	t.Helper()
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	o := Defaults()
	o.DB, o.Samples, o.Links = db, 3, links(b, nil)
	if change != nil {
		change(&o)
	}
	r, err := o.Run(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	r.Version, r.Host, r.Driver, r.Time, r.Seconds = "v1", "node1", "Driver 580.65.06, CUDA 13.0", time.Unix(1790000000, 0).UTC(), 3
	for i := range r.Results {
		r.Results[i].Seconds = 0.5
	}
	return r
}

// broken are GPUs of which 2 is slow with everyone, and the path from 0 to 1 is
// slow by itself; copies by kernels from 3 to 0 lose data.
func broken() *bench {
	b := h200s(4)
	plain := b.gbps
	b.gbps = func(f Flow) float64 {
		v := plain(f)
		peers := f.From.Memory == ofGPU && f.To.Memory == ofGPU && f.From.GPU != f.To.GPU
		switch {
		case peers && (f.From.GPU == 2 || f.To.GPU == 2):
			return v / 2
		case peers && f.From.GPU == 0 && f.To.GPU == 1:
			return v * 0.85
		}
		return v
	}
	b.fail = func(f Flow) error {
		if f.From == gpu(3) && f.To == gpu(0) && f.Engine == engineSM {
			return &dataError{Flow: f, Words: 2, First: 64, Of: 1 << 28}
		}
		return nil
	}
	return b
}

// TestReport: a healthy node passes; the text, the JSON and the table.
func TestReport(t *testing.T) {
	r := report(t, h200s(4), nil)
	if r.Verdict != result.Pass || r.Count[result.Pass] != len(r.Results) {
		t.Errorf("%s, %v", r.Verdict, r.Count)
	}
	for _, res := range r.Results {
		if err := res.Validate(); err != nil {
			t.Error(err)
		}
	}
	if r.GPUs[0].Model != "h200-sxm" || r.GPUs[0].Peaks != (peakRates{PCIe: 63, NVLink: 450, NVLinks: 18, Memory: 4800}) {
		t.Errorf("%+v", r.GPUs[0])
	}
	check2 := func(name string, f func(b *strings.Builder) error) {
		var b strings.Builder
		if err := f(&b); err != nil {
			t.Error(err)
		}
		golden.Check(t, name, b.String())
	}
	check2("report.txt", func(b *strings.Builder) error { return r.WriteText(b) })
	check2("report.json", func(b *strings.Builder) error {
		enc := json.NewEncoder(b)
		enc.SetIndent("", "  ")
		return enc.Encode(report(t, h200s(2), func(o *Options) { o.Families = []string{"host_to_device", "peer_write_ce"} }))
	})
	versus := report(t, h200s(2), func(o *Options) { o.Versus = true })
	check2("report.md", func(b *strings.Builder) error { return WriteMarkdown(b, []*Report{r, versus}) })
	check2("versus.txt", func(b *strings.Builder) error { return versus.WriteText(b) })
}

// TestBroken: what is slow is named, and why.
func TestBroken(t *testing.T) {
	b := broken()
	r := report(t, b, func(o *Options) {
		o.Links = links(b, func(call int, bus sysfs.BusID, l *nvml.Links) {
			if bus.Bus == 0x38 {
				l.NVLinks, l.PCIeWidth = 9, 8
				l.Errors["nvlink_replay"] = uint64(call)
			}
		})
	})
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || r.Verdict != result.Fail {
		t.Errorf("%v, %s", err, r.Verdict)
	}
	golden.Check(t, "broken.txt", text.String())
	for id, want := range map[string]string{
		"peer_write_ce": "GPU 2, with every other one: 198.2 GB/s is 44 % of 450.0; 80 % or more is expected; GPU 0 to 1 (this path alone): ",
		"peer_write_sm": "GPU 3 to 0 (this path alone): wrong data",
	} {
		if res := r.Of(id); res.Verdict != result.Fail || !strings.Contains(res.Reason, want) || res.Remedy == "" {
			t.Errorf("%s: %s, %q; want %q", id, res.Verdict, res.Reason, want)
		}
	}
	var said []string
	for _, o := range r.Of(linksID).Objects {
		said = append(said, o.Name+": "+o.Reason)
	}
	for _, want := range []string{"GPU 2: 9 of 18 NVLinks are up", "GPU 2: its PCIe link is gen 5 x8, and could be gen 5 x16", "GPU 2: counter nvlink_replay went up by 14, during 14 of 14 kinds of copies"} {
		if !slices.Contains(said, want) {
			t.Errorf("no finding %q in %q", want, said)
		}
	}
}

// TestUnknown: GPUs that nobody knows, without a driver's word on their links,
// and two of which have no peer access.
func TestUnknown(t *testing.T) {
	b := h200s(3)
	b.name, b.apart = "NVIDIA Something", [2]int{0, 2}
	r := report(t, b, func(o *Options) { o.Links = nil })
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || r.Verdict != result.Pass {
		t.Errorf("%v, %s, %+v", err, r.Verdict, r.Results)
	}
	golden.Check(t, "unknown.txt", text.String())
}

// TestPCIePeers: GPUs whose NVLinks are all down copy over PCIe, and are held
// against that.
func TestPCIePeers(t *testing.T) {
	b := h200s(3)
	plain := b.gbps
	b.gbps = func(f Flow) float64 {
		if f.From.Memory == ofGPU && f.To.Memory == ofGPU && f.From.GPU != f.To.GPU {
			return 40
		}
		return plain(f)
	}
	r := report(t, b, func(o *Options) {
		o.Links = links(b, func(_ int, _ sysfs.BusID, l *nvml.Links) { l.NVLinks = 0 })
		o.Families = []string{"peer_write_ce", "peer_both_sm"}
	})
	for name, want := range map[string]float64{"peer_write_ce": 63, "peer_both_sm": 126} {
		res := r.Of(name)
		for _, o := range res.Objects {
			if m := o.Measured; m == nil || m.Expected != want || o.Verdict != result.Pass || m.Limit.Value != 0.6*want {
				t.Errorf("%s: %+v", name, o)
			}
		}
		if len(res.Objects) == 0 {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestInterrupt: it ends between two cells.
func TestInterrupt(t *testing.T) {
	b := h200s(2)
	ctx, stop := context.WithCancel(t.Context())
	b.fail = func(f Flow) error {
		stop()
		return nil
	}
	o := Defaults()
	if _, err := o.Run(ctx, b); !errors.Is(err, context.Canceled) || len(b.asked) != 1 {
		t.Errorf("%v after %v", err, b.asked)
	}
}

func TestJudge(t *testing.T) {
	l := judge.Limits{Pass: 0.8, Fail: 0.7, MedianWarn: 0.95, MedianFail: 0.85}
	for _, c := range []struct {
		limits           judge.Limits
		value, reference float64
		others           []float64
		want             result.Verdict
	}{
		{l, 80, 100, nil, result.Pass},
		{l, 79, 100, nil, result.Warn},
		{l, 70, 100, nil, result.Warn},
		{l, 69, 100, nil, result.Fail},
		{l, 120, 100, nil, result.Pass},
		{l, 69, 0, nil, result.Pass},                       // nothing is known
		{l, 69, 0, []float64{69, 100}, result.Pass},        // two are too few for a median
		{l, 69, 0, []float64{69, 100, 100}, result.Fail},   // far behind
		{l, 90, 100, []float64{90, 100, 100}, result.Warn}, // behind
		{l, 75, 100, []float64{75, 75, 75}, result.Warn},   // all the same, and slow
		{l, 75, 100, []float64{75, 100, 100}, result.Fail}, // the worse of both
		{latencyLimits, 100, 0, []float64{100, 100, 300}, result.Pass},
		{latencyLimits, 160, 0, []float64{100, 100, 160}, result.Warn},
		{latencyLimits, 301, 0, []float64{100, 100, 301}, result.Fail},
		{contentionLimits, 30, 100, nil, result.Warn}, // shared by design
	} {
		f := family{limits: c.limits, flows: upload, reference: reference{func(*job, ends) float64 { return c.reference }, "test"}}
		figures := []figure{{ends: ends{Host, 0}, samples: []float64{c.value}}}
		others := slices.Clone(c.others)
		if i := slices.Index(others, c.value); i >= 0 { // which is the figure itself
			others = slices.Delete(others, i, i+1)
		}
		for i := range others {
			figures = append(figures, figure{ends: ends{Host, i + 1}, samples: others[i : i+1]})
		}
		j := &job{report: &Report{GPUs: make([]Subject, len(figures))}}
		o := j.judge(f, figures).Objects[0]
		if o.Verdict != c.want || (o.Reason == "") != (c.want == result.Pass) {
			t.Errorf("%g of %g among %v: %s, %q; want %s", c.value, c.reference, c.others, o.Verdict, o.Reason, c.want)
		}
	}
}

// TestBlame: a matrix's bad cells lead to those who are at fault.
func TestBlame(t *testing.T) {
	for name, c := range map[string]struct {
		n     int
		shape shape
		bad   func(from, to int) bool
		want  []string
	}{
		"none":             {4, ordered, func(f, t int) bool { return false }, nil},
		"a GPU":            {4, ordered, func(f, t int) bool { return f == 2 || t == 2 }, []string{"GPU 2, with every other one"}},
		"two GPUs":         {4, ordered, func(f, t int) bool { return f*t == 0 || f == 3 || t == 3 }, []string{"GPU 0, with every other one", "GPU 3, with every other one"}},
		"a sender":         {4, ordered, func(f, t int) bool { return f == 1 }, []string{"GPU 1, to every other one"}},
		"a receiver":       {3, ordered, func(f, t int) bool { return t == 0 }, []string{"GPU 0, from every other one"}},
		"a path":           {4, ordered, func(f, t int) bool { return f == 1 && t == 3 }, []string{"GPU 1 to 3 (this path alone)"}},
		"a GPU and a path": {4, ordered, func(f, t int) bool { return f == 2 || t == 2 || f == 0 && t == 1 }, []string{"GPU 2, with every other one", "GPU 0 to 1 (this path alone)"}},
		"all":              {4, ordered, func(f, t int) bool { return true }, []string{"all 4 GPUs, between one another"}},
		"two of two":       {2, ordered, func(f, t int) bool { return true }, []string{"GPU 0 to 1 (the path, or either GPU)", "GPU 1 to 0 (the path, or either GPU)"}},
		"unordered GPU":    {4, unordered, func(f, t int) bool { return f == 3 || t == 3 }, []string{"GPU 3, with every other one"}},
		"unordered paths":  {4, unordered, func(f, t int) bool { return f == 1 }, []string{"GPU 1 to 2 (this path alone)", "GPU 1 to 3 (this path alone)"}},
	} {
		f := family{shape: c.shape}
		var figures []figure
		var objects []result.Object
		for _, p := range c.shape.pairs(c.n) {
			o := result.Object{Verdict: result.Pass, Measured: &result.Measurement{Value: 1}}
			if c.bad(p.from, p.to) {
				o.Verdict, o.Reason = result.Warn, "slow"
			}
			figures, objects = append(figures, figure{ends: p}), append(objects, o)
		}
		var got []string
		for _, text := range blame(f, figures, objects, c.n) {
			got = append(got, strings.TrimSuffix(text, ": slow"))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

func TestPeaks(t *testing.T) {
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	bus := func(n uint8) sysfs.BusID { return sysfs.BusID{Bus: n} }
	direct := Subject{GPU: GPU{Bus: bus(1)}, Peaks: peakRates{PCIe: 31, NVLink: 300, NVLinks: 12}, Links: &nvml.Links{NVLinks: 12, Peers: map[sysfs.BusID]int{bus(2): 4}}}
	bridged := direct // a card with a bridge: the database does not know how many of its links there are
	bridged.Peaks.NVLinks = 0
	for _, c := range []struct {
		from, to Subject
		want     float64
	}{
		{direct, Subject{GPU: GPU{Bus: bus(2)}, Peaks: direct.Peaks}, 100}, // four links of twelve
		{direct, Subject{GPU: GPU{Bus: bus(3)}, Peaks: direct.Peaks}, 31},  // none: over PCIe
		{direct, Subject{GPU: GPU{Bus: bus(3)}, Peaks: peakRates{PCIe: 31}}, 31},
		{bridged, Subject{GPU: GPU{Bus: bus(2)}, Peaks: bridged.Peaks}, 300},
		{bridged, Subject{GPU: GPU{Bus: bus(3)}, Peaks: bridged.Peaks}, 31}, // of another pair
	} {
		if got := between(c.from, c.to); got != c.want {
			t.Errorf("%+v: %g; want %g", c.to, got, c.want)
		}
	}
	for rule, limits := range map[string]judge.Limits{
		"host_copy_fraction": hostLimits, "memory_traffic_fraction": localLimits, "payload_fraction_of_advertised": peerLimits,
	} {
		if want := db.Rules[rule].Low; limits.Pass != want {
			t.Errorf("cells pass from %g on; %s of the database is %g", limits.Pass, rule, want)
		}
	}
	slot := subject(GPU{Name: "?", Bus: bus(1)}, map[sysfs.BusID]nvml.Links{bus(1): {MaxGen: 4, MaxWidth: 8}}, db)
	if slot.Peaks.PCIe != 15.5 {
		t.Errorf("half of a PCIe 4 slot: %+v", slot.Peaks)
	}
}

func TestPattern(t *testing.T) {
	b := make([]byte, 64)
	fillHost(b, 5)
	if wrong, _ := checkHost(b, 61, 5); wrong != 0 {
		t.Errorf("%d wrong words", wrong)
	}
	b[62] ^= 1 // beyond
	if wrong, _ := checkHost(b, 61, 5); wrong != 0 {
		t.Errorf("%d wrong words", wrong)
	}
	b[17] ^= 1
	b[60] ^= 1
	if wrong, first := checkHost(b, 61, 5); wrong != 2 || first != 16 {
		t.Errorf("%d wrong words, the first at %d", wrong, first)
	}
	if wrong, _ := checkHost(b, 64, 6); wrong != 8 {
		t.Errorf("another seed: %d wrong words", wrong)
	}
	order := ringOrder(1000)
	if slices.IsSorted(order) {
		t.Error("a prefetcher could guess it")
	}
	slices.Sort(order)
	for i, v := range order {
		if i != v {
			t.Fatalf("no permutation: %v", order)
		}
	}
}

// TestNear: memory is allocated on the processors that were asked for, and the
// thread is free again afterwards.
func TestNear(t *testing.T) {
	for _, text := range []string{"0", "4000", ""} {
		cpus, err := sysfs.ParseCPUList(text)
		if err != nil {
			t.Fatal(err)
		}
		called := false
		if err := sysfs.Near(cpus, func() error { called = true; return errors.New("said") }); err == nil || err.Error() != "said" || !called {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestCRC: errors that links mend all the time are no finding, unless there are
// many of them.
func TestCRC(t *testing.T) {
	for _, c := range []struct {
		name string
		up   uint64
		want int
	}{{"nvlink_crc_data", 199, 0}, {"nvlink_crc_data", 200, 1}, {"nvlink_crc_flit", 5, 0}, {"nvlink_replay", 1, 1}, {"nvlink_recovery", 1, 1}} {
		j := &job{report: &Report{GPUs: make([]Subject, 1)}, seconds: 2, changes: []linkChange{{difference: map[string]uint64{c.name: c.up}}}}
		if got := j.linkResult(); len(got.Objects) != c.want {
			t.Errorf("%s went up by %d in 2 s: %+v, want %d findings", c.name, c.up, got, c.want)
		}
	}
}
