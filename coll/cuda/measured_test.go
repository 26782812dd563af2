package cuda

import (
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/tuning"
)

// TestMeasured: measured rules go before the table, as far as they reach and
// settings allow.
func TestMeasured(t *testing.T) {
	ll, chunks := choice{reduceLL, 2, 64, 0}, choice{allReduceSimple, 8, 256, 16 << 10}
	ch := testChooser(2)
	ch.measured[op.AllReduce] = []rule{{64, ll}, {1 << 20, chunks}}
	plain := testChooser(2)
	for _, tt := range []struct {
		coll  op.Collective
		bytes int
		want  choice
	}{
		{op.AllReduce, 1, ll}, {op.AllReduce, 64, ll}, {op.AllReduce, 65, chunks}, {op.AllReduce, 1 << 20, chunks},
		{op.AllReduce, 1<<20 + 1, plain.choose(op.AllReduce, 1<<20+1)}, {op.Reduce, 64, plain.choose(op.Reduce, 64)},
	} {
		if got := ch.choose(tt.coll, tt.bytes); got != tt.want {
			t.Errorf("%v of %d bytes: %v; want %v", tt.coll, tt.bytes, got, tt.want)
		}
	}
	ch.measured[op.AllReduce] = []rule{{maxMessage, ll}}
	if got := ch.choose(op.AllReduce, 1<<30); got != plain.choose(op.AllReduce, 1<<30) {
		t.Errorf("1 GB do not fit into packets: %v", got)
	}
	ch.allows, plain.allows = proto(t, "Simple"), proto(t, "Simple")
	if got := ch.choose(op.AllReduce, 64); got != plain.choose(op.AllReduce, 64) {
		t.Errorf("LL is not allowed: %v", got)
	}
	ch.force = choice{allReduceLL128, 7, 96, 0}
	if got := ch.choose(op.AllReduce, 64); got != ch.force {
		t.Errorf("forced: %v", got)
	}
}

// TestMeasuredFor: the user's file goes before what came with the program, for
// the GPU and the number of ranks only.
func TestMeasuredFor(t *testing.T) {
	if _, err := builtIn(); err != nil {
		t.Fatal(err)
	}
	was := builtIn
	defer func() { builtIn = was }()
	known := new(tuning.Measurements)
	builtIn = func() (*tuning.Measurements, error) { return known, nil }
	rules := func(choice string) []tuning.GPURule {
		return []tuning.GPURule{{UpTo: 8, Choice: choice, Micros: 1}, {Choice: choice, Micros: 9}}
	}
	known.SetGPU(tuning.GPUTable{GPU: "H", Ranks: 2, Collective: "AllReduce", Rules: rules("reduce_ll:1")})
	known.SetGPU(tuning.GPUTable{GPU: "H", Ranks: 2, Collective: "Reduce", Rules: rules("reduce_ll:1")})
	own := new(tuning.Measurements)
	own.SetGPU(tuning.GPUTable{GPU: "H", Ranks: 2, Collective: "AllReduce", Rules: rules("reduce_ll:2:64:0")})
	own.SetGPU(tuning.GPUTable{GPU: "I", Ranks: 2, Collective: "AllReduce", Rules: rules("ring")})
	own.SetGPU(tuning.GPUTable{GPU: "I", Ranks: 3, Collective: "AllReduce", Rules: rules("exchange_ll")})
	m, err := measuredFor(own, "H", 2)
	if err != nil || len(m[op.AllReduce]) != 2 || m[op.AllReduce][1] != (rule{maxMessage, choice{reduceLL, 2, 64, 0}}) || len(m[op.Reduce]) != 2 || m[op.AllGather] != nil {
		t.Errorf("%v, %v", m, err)
	}
	b, err := measuredFor(nil, "H", 2)
	if err != nil || b[op.AllReduce][0].channels != 1 || b.sum() == m.sum() {
		t.Errorf("without a file: %v, %v", b, err)
	}
	if again, err := measuredFor(own, "H", 2); err != nil || again.sum() != m.sum() {
		t.Errorf("once more: %v, %v", again, err)
	}
	wider := m
	wider[op.AllReduce] = []rule{{16, m[op.AllReduce][0].choice}, m[op.AllReduce][1]}
	if wider.sum() == m.sum() {
		t.Error("rules for other lengths have the same sum")
	}
	if none, err := measuredFor(own, "H", 4); err != nil || none.sum() != new(measured).sum() {
		t.Errorf("4 ranks: %v, %v", none, err)
	}
	for ranks, want := range map[int]string{2: `measured rules for AllReduce among 2 GPUs "I": "ring" is no kernel`, 3: "exchange_ll does no AllReduce"} {
		if _, err := measuredFor(own, "I", ranks); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
