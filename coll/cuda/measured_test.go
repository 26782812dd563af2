package cuda

import (
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
)

// TestMeasured: measured rules go before the table, as far as they reach and
// settings allow.
func TestMeasured(t *testing.T) {
	ll, chunks := choice{reduceLL128, 2, 64, 0}, choice{allReduceSimple, 8, 256, 12 << 10}
	ch := testChooser(2)
	ch.measured[op.AllReduce] = []choose.Rule[choice]{{UpTo: 64, C: ll}, {UpTo: 1 << 20, C: chunks}}
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
	ch.measured[op.AllReduce] = []choose.Rule[choice]{{UpTo: maxMessage, C: ll}}
	if got := ch.choose(op.AllReduce, 1<<30); got != plain.choose(op.AllReduce, 1<<30) {
		t.Errorf("1 GB do not fit into packets: %v", got)
	}
	ch.env.Proto, plain.env.Proto = proto(t, "Simple"), proto(t, "Simple")
	if got := ch.choose(op.AllReduce, 64); got != plain.choose(op.AllReduce, 64) {
		t.Errorf("LL is not allowed: %v", got)
	}
	ch.force = choice{allReduceLL128, 7, 96, 0}
	if got := ch.choose(op.AllReduce, 64); got != ch.force {
		t.Errorf("forced: %v", got)
	}
}

// TestChoiceFor: a table names kernels that there are, for what they do.
func TestChoiceFor(t *testing.T) {
	for s, want := range map[string]string{"reduce_ll:2:64:0": "", "copy": "", "ring": `"ring" is no kernel`, "exchange_ll": "exchange_ll does no AllReduce"} {
		if k, err := choiceFor(op.AllReduce, s); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", s, k, err, want)
		}
	}
	for _, gpu := range []string{"NVIDIA H100 80GB HBM3", "NVIDIA H200", choose.AnyGPU, choose.Hosted} { // what came with the program
		for ranks := 2; ranks <= maxRanks; ranks++ {
			if rules, err := choose.GPURules(nil, gpu, ranks, choiceFor); err != nil || rules[op.AllReduce] == nil && ranks == 2 {
				t.Errorf("%d GPUs %q: %v, %v", ranks, gpu, rules, err)
			}
		}
	}
}
