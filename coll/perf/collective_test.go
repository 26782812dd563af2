package perf

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
)

// TestVolume: counts and rounding are those of nccl-tests.
func TestVolume(t *testing.T) {
	for _, tt := range []struct {
		name       string
		size       int64
		n          int
		t          elem.Type
		send, recv int64
		count      int64
		total      int64
	}{
		{"all_reduce", 1 << 20, 4, elem.Float32, 1 << 18, 1 << 18, 1 << 18, 1 << 20},
		{"all_reduce", 7, 4, elem.Float32, 1, 1, 1, 4},
		{"broadcast", 3, 4, elem.Float64, 0, 0, 0, 0},
		{"sendrecv", 100, 4, elem.Int8, 100, 100, 100, 100},
		{"all_gather", 8, 4, elem.Float32, 0, 0, 0, 0},
		{"all_gather", 100, 3, elem.Float32, 8, 24, 8, 96},
		{"all_gather", 128, 2, elem.Int8, 64, 128, 64, 128},
		{"reduce_scatter", 1 << 20, 4, elem.Float64, 1 << 17, 1 << 15, 1 << 15, 1 << 20},
		{"alltoall", 1000, 3, elem.Float16, 480, 480, 160, 960},
		{"gather", 1000, 3, elem.Float16, 160, 480, 160, 960},
		{"scatter", 1000, 3, elem.Float16, 480, 160, 160, 960},
	} {
		c, _ := findCollective(tt.name)
		got := c.volume(tt.size, tt.n, tt.t)
		want := volume{tt.send, tt.recv, tt.count, tt.total, tt.t.Size()}
		if got != want {
			t.Errorf("%s of %d bytes, %d ranks, %v: %+v; want %+v", tt.name, tt.size, tt.n, tt.t, got, want)
		}
	}
}

// TestFactors: bus bandwidth from algorithm bandwidth.
func TestFactors(t *testing.T) {
	for name, want := range map[string]float64{ // of 4 ranks
		"all_reduce": 1.5, "reduce_scatter": .75, "all_gather": .75, "alltoall": .75, "gather": .75, "scatter": .75, "broadcast": 1, "reduce": 1, "sendrecv": 1,
	} {
		c, ok := findCollective(name)
		if alg, bus := c.bandwidth(volume{total: 1e9}, 1e6, 4); !ok || alg != 1 || bus != want {
			t.Errorf("%s: algbw %v, busbw %v; want 1, %v", name, alg, bus, want)
		}
	}
	if len(Collectives()) != 9 {
		t.Errorf("there are %d collectives", len(Collectives()))
	}
}

// TestPublishedTables: our arithmetic and formatting give the columns that
// nccl-tests printed on real clusters, from the times that it printed. The
// ratio of the two bandwidths tells how many ranks there were: 96 in the table
// that was published beside a job of 64 H100, and 128 in that of two racks.
func TestPublishedTables(t *testing.T) {
	c, _ := findCollective("all_reduce")
	for name, n := range map[string]int{"h100": 96, "gb200-1-rack": 72, "gb200-2-racks": 128, "gb200-20-racks": 1440} {
		b, err := os.ReadFile(filepath.Join("testdata", "published-"+name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		table, err := ParseTable(strings.NewReader(string(b)))
		if err != nil || len(table.Rows) < 5 || table.OutOfBounds != 0 || table.AvgBusBW < 290 {
			t.Fatalf("%s: %+v, %v", name, table, err)
		}
		if want := map[string]int{"gb200-1-rack": 72, "gb200-2-racks": 144, "gb200-20-racks": 1440}[name]; table.Ranks != want { // as listed
			t.Errorf("%s: %d ranks; want %d", name, table.Ranks, want)
		}
		mean := 0.0
		for _, row := range table.Rows {
			v := c.volume(row.Bytes, n, elem.Float32)
			if v.count != row.Count || row.Type != "float" || row.Redop != "sum" || row.Root != -1 {
				t.Errorf("%s: row %+v; count %d", name, row, v.count)
			}
			for _, cell := range []TableCell{row.OutOfPlace, row.InPlace} {
				mean += cell.BusBW / float64(2*len(table.Rows))
				alg, bus := c.bandwidth(v, cell.Time, n)
				// The time is printed with five digits.
				if math.Abs(alg-cell.AlgBW)/alg > 1e-4 || math.Abs(bus-cell.BusBW)/bus > 1e-4 || cell.Wrong != 0 {
					t.Errorf("%s: %d bytes in %v us: %v, %v; printed %v, %v", name, row.Bytes, cell.Time, alg, bus, cell.AlgBW, cell.BusBW)
				}
			}
		}
		if math.Abs(mean-table.AvgBusBW) > 0.01 {
			t.Errorf("%s: mean %v; printed %v", name, mean, table.AvgBusBW)
		}
	}
}

func TestFit(t *testing.T) {
	for _, tt := range []struct {
		v     float64
		width int
		want  string
	}{
		{41.27, 7, "  41.27"}, {9999.994, 7, "9999.99"}, {9999.996, 7, "10000.0"}, {22181.4, 7, "22181.4"}, {123456.7, 7, " 123457"}, {12345678, 7, "1.2e+07"},
		{0, 6, "  0.00"}, {999.994, 6, "999.99"}, {999.996, 6, "1000.0"}, {12345.6, 6, " 12346"}, {1234567, 6, " 1e+06"},
		{math.Inf(1), 6, "   inf"}, {math.NaN(), 7, "    nan"}, {math.Inf(-1), 6, "  -inf"},
	} {
		if got := fit(tt.v, tt.width); got != tt.want {
			t.Errorf("fit(%v, %d) = %q; want %q", tt.v, tt.width, got, tt.want)
		}
	}
}

// TestGeneral: Go's %g with an explicit precision is C's, but for the names of
// what is no number.
func TestGeneral(t *testing.T) {
	for _, v := range []float64{0, 1, -1, 373.187, 745.53, 1e5, 123456, 999999.5, 1234567, 1e-4, 0.00012345678, 1e-5, 1e20, 0.1, 100} {
		want := fmt.Sprintf("%.6g", v)
		if got := general(v); got != want {
			t.Errorf("general(%v) = %q; want %q", v, got, want)
		}
	}
	if got := general(math.NaN()); got != "nan" {
		t.Errorf("general(NaN) = %q", got)
	}
}

func TestParseTable(t *testing.T) {
	const rows = `
[1,0]<stdout>:# nThread 1 nGpus 1
[1,0]<stdout>:#  Rank  1 Group  0 Pid 1 on host device 0 [0000:00:00] x
slurmstepd: 12 tasks finished
#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%
 0:      1024           256     float     sum      -1    41.27   25.41   44.46       0     1.00     2.00     2.00     3.00    40.90   25.64   44.86    N/A     1.00     2.00     2.00     3.00  2026-01-01 10:00:00
# Avg bus bandwidth    : 44.66 FAILED
`
	got, err := ParseTable(strings.NewReader(rows))
	if err != nil || len(got.Rows) != 1 {
		t.Fatalf("ParseTable = %+v, %v", got, err)
	}
	want := TableRow{1024, 256, "float", "sum", -1, TableCell{41.27, 25.41, 44.46, 0, 2}, TableCell{40.90, 25.64, 44.86, -1, 2}}
	if got.Rows[0] != want || got.AvgBusBW != 44.66 || got.Ranks != 2 || got.OutOfBounds != -1 {
		t.Errorf("ParseTable = %+v; want %+v", got, want)
	}
	for _, text := range []string{
		"#       size         count      type     time   algbw   busbw  error     time   algbw   busbw  error\n  8  2  float  1.5  0.1  0.1  1e-07  1.5  0.1  0.1  N/A\n", // old
		"  8  2  float  -1  1.5  0.1  0.1  0  1.5  0.1  0.1  0\n", // a blank redop, no heads
	} {
		got, err := ParseTable(strings.NewReader(text))
		if err != nil || len(got.Rows) != 1 || got.Rows[0].OutOfPlace.Time != 1.5 || got.Rows[0].InPlace.BusBW != 0.1 {
			t.Errorf("ParseTable(%q) = %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"  8  2  float  sum  -1  1.5  0.1\n  8  2  float  sum  -1  1.5  0.1  0.1  x  1.5  0.1  0.1  0\n",
		"  8  2  float  sum  -1  1.5  0.1  0.1  0  1.5\n", "# Avg bus bandwidth    : \n", "# Out of bounds values : many\n",
	} {
		if got, err := ParseTable(strings.NewReader(text)); err == nil {
			t.Errorf("ParseTable(%q) = %+v; want an error", text, got)
		}
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n 8 2 float sum -1 1 1 1 0 1 1 1 0\n# Avg bus bandwidth    : 1\n")
	f.Add("# size algbw\n1 1 a 1 1 1 1 1 1 1\n")
	f.Add("[1,0]<stdout>:#  Rank  9\n")
	f.Fuzz(func(t *testing.T, s string) {
		table, err := ParseTable(strings.NewReader(s))
		if err != nil {
			return
		}
		for _, r := range table.Rows {
			if r.Bytes < 0 || r.Count < 0 || r.Type == "" {
				t.Errorf("ParseTable(%q) has row %+v", s, r)
			}
		}
	})
}
