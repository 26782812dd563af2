package perf

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/perf/commtest"
	"github.com/assay-hpc/assay/internal/golden"
)

// TestText holds everything that the table shows against golden files.
func TestText(t *testing.T) {
	for name, tt := range map[string]struct {
		op    string
		ranks int
		line  string
		setup setup
	}{
		"all_reduce":     {"all_reduce", 4, "-b 8 -e 16K -f 4", setup{}},
		"all_gather":     {"all_gather", 4, "-b 8 -e 4K -f 8 -c 0", setup{}},
		"broadcast":      {"broadcast", 2, "-b 1K -e 3K -i 1K -r -1 -d double", setup{}},
		"reduce_scatter": {"reduce_scatter", 3, "-b 1K -e 1K -d half -o all", setup{}},
		"alltoall":       {"alltoall", 2, "-b 1K -e 1K -z 1 -p 1 -y 1", setup{environ: []string{"NCCL_TESTS_DEVICE=2"}}},
		"sendrecv":       {"sendrecv", 2, "-b 1K -e 1K -z 3 -m 3 -u 3 -d int8", setup{}},
		"gather":         {"gather", 2, "-b 1K -e 1K -I 1 -K 2 -S 1 -C 1", setup{}},
		"single":         {"all_reduce", 1, "-b 1K -e 1K -M 1 -d float9", setup{environ: []string{"NCCL_TESTS_MIN_BW=100"}}},
		"fast":           {"reduce", 2, "-b 64K -e 64K -z 2 -G 3", setup{environ: []string{"NCCL_TESTS_MIN_BW=0.05"}}},
		"split":          {"all_reduce", 4, "-b 1K -e 1K", setup{environ: []string{"NCCL_TESTS_SPLIT=MOD 2"}, world: func(w *World) { w.Process = 3 }}},
		"memory":         {"all_reduce", 4, "-b 64K -e 1G -f 2 -n 3", setup{host: smallHost}},
		"shape":          {"all_reduce", 4, "--shape 50x200 --trials 50", setup{}},
		"compare":        {"all_reduce", 4, "--split 100 --shape 100x100", setup{}},
		"slowest":        {"all_reduce", 2, "-b 1K -e 1K --slowest 2", setup{}},
		"bench":          {"alltoall", 2, "-b 1K -e 2K -f 2 --bench -N 2", setup{}},
		"json":           {"all_reduce", 2, "-b 1K -e 1K -n 4 --output json -o max", setup{environ: []string{"NCCL_ALGO=Ring", "SECRET=1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := bench(t, tt.op, tt.ranks, tt.line, tt.setup)
			if o.fail != nil || o.err != "" {
				t.Errorf("error %v, stderr %q", o.fail, o.err)
			}
			goarch := regexp.MustCompile(`(?m)^goarch: .*`)
			golden.Check(t, name+".txt", goarch.ReplaceAllString(o.out, "goarch: ARCH"))
		})
	}
}

func smallHost(h *host) {
	h.root.(fstest.MapFS)["proc/meminfo"] = &fstest.MapFile{Data: []byte("MemAvailable: 2048 kB\n")}
}

// TestOwnTable: what we print is read back as what we measured.
func TestOwnTable(t *testing.T) {
	for _, op := range Collectives() {
		o := bench(t, op, 3, "-b 8 -e 512 -f 8 -d all -n 1 -w 0", setup{})
		table, err := ParseTable(strings.NewReader(o.out))
		if err != nil || o.fail != nil {
			t.Fatalf("%s: %v, %v\n%s", op, err, o.fail, o.out)
		}
		if len(table.Rows) != len(o.res.Rows) || table.Ranks != 3 || table.OutOfBounds != 0 || general(o.res.AvgBusBW) != general(table.AvgBusBW) {
			t.Errorf("%s: %d rows of %d, %+v", op, len(table.Rows), len(o.res.Rows), table)
		}
		for i, row := range o.res.Rows {
			got := table.Rows[i]
			if got.Bytes != row.Bytes || got.Count != row.Count || got.Type != row.Type || got.Redop != row.Redop || got.Root != row.Root ||
				got.OutOfPlace.Wrong != row.OutOfPlace.Wrong || got.InPlace.Wrong != row.InPlace.Wrong || fit(got.InPlace.Time, 7) != fit(row.InPlace.Time, 7) {
				t.Errorf("%s: %+v is read as %+v", op, row, got)
			}
		}
	}
}

// TestAllWithoutMulsum leaves it out, and says so once.
func TestAllWithoutMulsum(t *testing.T) {
	o := bench(t, "all_reduce", 2, "-o all -b 8 -e 8 -d all", setup{wrap: func(c Comm) Comm { return struct{ Comm }{c} }})
	if n := strings.Count(o.out, "# mulsum is left out"); o.fail != nil || n != 1 || len(o.res.Rows) != 5*len(elem.Types) {
		t.Errorf("%v, %d remarks, %d rows", o.fail, n, len(o.res.Rows))
	}
}

// TestJSONFile holds -J's report against a golden file, reads it as JSON, and
// wants another name for the second one.
func TestJSONFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	line := "-b 1K -e 2K -f 2 -n 3 -I 1 -J report.json"
	env := []string{"NCCL_SOCKET_IFNAME=^lo/0", "PASSWORD=x"}
	first := bench(t, "all_reduce", 2, line, setup{environ: env})
	second := bench(t, "alltoall", 2, line, setup{world: func(w *World) { w.Process = 0 }})
	if first.fail != nil || second.fail != nil || !strings.HasPrefix(second.out, "# Writing JSON output to report.json.0\n") {
		t.Fatalf("%v, %v\n%s", first.fail, second.fail, second.out)
	}
	b, err := os.ReadFile("report.json")
	if err != nil || !json.Valid(b) || strings.Contains(string(b), "PASSWORD") {
		t.Fatalf("%v\n%s", err, b)
	}
	var doc struct {
		Results []struct {
			InPlace struct {
				NWrong *int64 `json:"nwrong"`
			} `json:"in_place"`
		}
	}
	b2, _ := os.ReadFile("report.json.0")
	if err := json.Unmarshal(b2, &doc); err != nil || len(doc.Results) != 2 || doc.Results[0].InPlace.NWrong != nil {
		t.Errorf("alltoall's report: %v, %+v", err, doc)
	}
	t.Chdir(packageDir)
	golden.Check(t, "report.json", string(b))
}

// packageDir is where tests start.
var packageDir, _ = os.Getwd()

// TestDocument: --output json can be decoded into what it was made from.
func TestDocument(t *testing.T) {
	o := bench(t, "all_reduce", 2, "-b 4 -e 1K -f 16 --output json", setup{wrap: func(c Comm) Comm { return knowing{c.(*commtest.Comm)} }, host: lateRank})
	var doc Document
	d := json.NewDecoder(strings.NewReader(o.out))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		t.Fatalf("%v\n%s", err, o.out)
	}
	row := doc.Rows[0]
	if len(doc.Rows) != 3 || row.OutOfPlace.Algorithm != "ring/simple" || row.OutOfPlace.Iter.P99 == 0 || row.InPlace.Straggler.Rank != 1 || doc.Straggler.Rank != 1 {
		t.Errorf("%+v", doc)
	}
}

// knowing knows what the engine can tell.
type knowing struct{ *commtest.Comm }

func (knowing) Chosen() string { return "ring/simple" }

// lateRank has rank 1 take twice as long as the others.
func lateRank(h *host) {
	made, newClock := 0, h.newClock
	h.newClock = func() clock {
		c, by := newClock(), time.Duration(1)
		if made == 1 {
			by = 2
		}
		made++
		return func() time.Duration { return by * c() }
	}
}

// TestStragglerIsNamed in the footer.
func TestStragglerIsNamed(t *testing.T) {
	o := bench(t, "all_reduce", 3, "-b 4 -e 1K -f 16", setup{host: lateRank})
	if !strings.Contains(o.out, "# Straggler            : rank 1 on node, ") || !strings.Contains(o.out, "in 6 of 6 measurements\n") {
		t.Errorf("no straggler:\n%s", o.out)
	}
}

// TestProgress: a line on a terminal, in a run that takes long, gone before
// each row.
func TestProgress(t *testing.T) {
	o := bench(t, "all_reduce", 2, "-b 4 -e 64 -f 2", setup{term: true})
	if !strings.Contains(o.err, "all_reduce float sum, 64 bytes, row 5, ") || !strings.HasSuffix(o.err, "\r\x1b[K") {
		t.Errorf("progress: %q", o.err)
	}
	if o := bench(t, "all_reduce", 2, "-b 4 -e 64 -f 2", setup{}); o.err != "" {
		t.Errorf("progress without a terminal: %q", o.err)
	}
}
