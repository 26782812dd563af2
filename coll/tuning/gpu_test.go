package tuning

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/op"
)

const goodGPUs = `{"schema":1,"machine":"m","points":[],"gpus":[
{"gpu":"A","ranks":2,"collective":"AllReduce","rules":[{"up_to":8,"choice":"reduce_ll:1:64:0","microseconds":2},{"choice":"copy","microseconds":90}]},
{"gpu":"A","ranks":2,"collective":"SendRecv","rules":[{"up_to":64,"choice":"exchange_ll","microseconds":2}]}]}`

// TestGPUTables: a table takes the place of one for the same, and a file holds
// them beside the points.
func TestGPUTables(t *testing.T) {
	one, two := []GPURule{{UpTo: 8, Choice: "a", Micros: 1}}, []GPURule{{UpTo: 8, Choice: "b", Micros: 1}, {Choice: "c", Micros: 5}}
	m := &Measurements{Schema: 1, Machine: "node1"}
	m.Add(PointOf(fourLocal, op.AllGather, Choice{Algorithm: "bruck", Channels: 1}, 64, 3))
	m.SetGPU(GPUTable{"H", 4, "AllReduce", one})
	m.SetGPU(GPUTable{"H", 2, "AllReduce", one})
	m.SetGPU(GPUTable{"H", 2, "AllGather", one})
	m.SetGPU(GPUTable{"H", 2, "AllReduce", two})
	file := filepath.Join(t.TempDir(), "tune.json")
	if err := m.Save(file); err != nil {
		t.Fatal(err)
	}
	got, err := LoadMeasurements(file)
	if err != nil {
		t.Fatal(err)
	}
	want := &Measurements{Schema: 1, Machine: "node1", Points: m.Points, GPUs: []GPUTable{{"H", 2, "AllGather", one}, {"H", 2, "AllReduce", two}, {"H", 4, "AllReduce", one}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the file (-want +got):\n%s", d)
	}
	if d := cmp.Diff(two, got.GPU("H", 2, op.AllReduce)); d != "" {
		t.Errorf("found (-want +got):\n%s", d)
	}
	for _, none := range [][]GPURule{got.GPU("H", 3, op.AllReduce), got.GPU("I", 2, op.AllReduce), got.GPU("H", 2, op.Reduce)} {
		if none != nil {
			t.Errorf("found what was not measured: %v", none)
		}
	}
}

func TestGPUTableErrors(t *testing.T) {
	if _, err := ReadMeasurements(strings.NewReader(goodGPUs)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{`"SendRecv"`, `"Sendrecv"`, `no collective "Sendrecv"`}, {`"SendRecv"`, `"AllReduce"`, `AllReduce among 2 GPUs "A": there are two tables`},
		{`"gpu":"A"`, `"gpu":""`, `GPU ""`}, {`"ranks":2`, `"ranks":1`, "1 ranks"},
		{`"up_to":8,`, ``, "rule 1: up to 0 bytes"}, {`"up_to":8`, `"up_to":-8`, "up to -8 bytes"}, {`{"choice":"copy"`, `{"up_to":8,"choice":"copy"`, "rule 2: up to 8 bytes, after 8"},
		{`"copy"`, `""`, `"" is no choice`}, {`"copy"`, `"a b"`, "no choice"}, {`"microseconds":90`, `"microseconds":0`, "0 microseconds"},
		{`[{"up_to":64,"choice":"exchange_ll","microseconds":2}]`, `[]`, "no rules"}, {`"choice":"copy"`, `"choise":"copy"`, "unknown field"},
	} {
		if _, err := ReadMeasurements(strings.NewReader(strings.Replace(goodGPUs, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s for %s: %v; want %q", tt.new, tt.old, err, tt.want)
		}
	}
}
