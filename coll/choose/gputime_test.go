package choose

import (
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/op"
)

// TestGPUTimes: what was measured comes out, what lies between is on a line, and where
// nothing was measured the nearest table counts.
func TestGPUTimes(t *testing.T) {
	const tables = `{"schema":2,"machine":"m","tables":[
{"gpu":"A","ranks":2,"collective":"AllReduce","rows":[{"choice":"a","took":[[100,2000]]},{"choice":"b","took":[[1100,4000]]},{"choice":"c","took":[[33554432,100000]]},{"choice":"d","took":[[0,3000000]]}]},
{"gpu":"A","ranks":8,"collective":"AllReduce","rows":[{"choice":"a","took":[[100,9000]]}]},
{"gpu":"A","ranks":2,"collective":"AllToAll","rows":[{"choice":"a","took":[[0,640000]]}]}
]}`
	own, err := ParseTables([]byte(tables))
	if err != nil {
		t.Fatal(err)
	}
	two, eight, other := GPUTimes(own, "A", 2), GPUTimes(own, "A", 7), GPUTimes(nil, "none that is known", 3)
	for _, c := range []struct {
		what  string
		times *Times
		coll  op.Collective
		bytes int
		want  time.Duration
	}{
		{"the shortest", &two, op.AllReduce, 1, 2000},
		{"measured", &two, op.AllReduce, 100, 2000},
		{"between", &two, op.AllReduce, 600, 3000},
		{"the next", &two, op.AllReduce, 1100, 4000},
		{"a row for all lengths, whose rate is most like the one before at 1 GiB", &two, op.AllReduce, 1 << 30, 3000000},
		{"beyond", &two, op.AllReduce, 1 << 31, 6000000},
		{"a row for all lengths alone", &two, op.AllToAll, steady, 640000},
		{"half of it", &two, op.AllToAll, steady / 2, 640000},
		{"twice", &two, op.AllToAll, 2 * steady, 1280000},
		{"as AllToAll", &two, op.Gather, steady, 640000},
		{"the nearest number of ranks", &eight, op.AllReduce, 100, 9000},
		{"no table of its own: H100, 2 ranks", &other, op.AllReduce, 2048, 2866},
	} {
		if got := c.times.At(c.coll, c.bytes); got != c.want {
			t.Errorf("%s: %v of %d bytes takes %v; want %v", c.what, c.coll, c.bytes, got, c.want)
		}
	}
	if at := two[op.AllReduce][3][0]; at != 1<<30 {
		t.Errorf("the last row was measured at %d bytes; want 1 GiB", at)
	}
	var none Times
	if got := none.At(op.AllReduce, 8); got != 0 {
		t.Errorf("nothing measured: %v", got)
	}
}

// TestModelTimes: the models give what they are made of.
func TestModelTimes(t *testing.T) {
	// Of an AllReduce among two ranks a vector goes through each link.
	if got, want := HostedTime(op.AllReduce, 2, 380<<20), 10*time.Millisecond*(1<<20)/1000000+4500; got.Round(time.Microsecond) != want.Round(time.Microsecond) {
		t.Errorf("through the processor's memory: %v; want %v", got, want)
	}
	for c := range op.NumCollectives {
		if got := HostedTime(c, 4, 1<<20); got < time.Duration(1<<20/38) || got > 20*time.Duration(1<<20/38)+4500 {
			t.Errorf("%v of 1 MiB: %v", c, got)
		}
	}
	e := Env{Hosts: [][]int{{0, 1}}, Slot: 512 << 10, Cores: 2, MaxChannels: 1}
	tuner, err := e.Tuner()
	if err != nil {
		t.Fatal(err)
	}
	// tables.json has 89475 ns for two-shot/Simple:1 at 2 MiB, the best of its rows.
	if got := tuner.Time(op.AllReduce, 2<<20); got < 85*time.Microsecond || got > 95*time.Microsecond {
		t.Errorf("AllReduce of 2 MiB on host memory: %v", got)
	}
	if a, b := tuner.Time(op.AllGather, 64), tuner.Time(op.AllGather, 64<<20); a <= 0 || b < 1000*a {
		t.Errorf("AllGather of 64 bytes %v, of 64 MiB %v", a, b)
	}
}
