package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/perf/world"
	"github.com/assay-hpc/assay/internal/exit"
)

// TestTuneUsage: what is asked for wrongly is said before anything is opened.
func TestTuneUsage(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte(`{"schema":2,"machine":"","tables":[{"gpu":"H","ranks":2,"collective":"AllReduce","rows":[]}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	file := " --out " + filepath.Join(dir, "t.json")
	for line, want := range map[string]string{
		"-g 2":                                 "needs --out FILE",
		"-g 0" + file:                          "no ranks",
		"-g 2 -t 2" + file:                     "takes -t or -g",
		"-g 2 -f 1" + file:                     "no series of sizes",
		"-g 2 -b 8 -e 4" + file:                "no series of sizes",
		"--collectives all_reduce" + file:      "--collectives with -g only",
		"-g 2 --collectives all_reduse" + file: `no collective "all_reduse"; did you mean "all_reduce"?`,
		"-g 2 --collectives all_reduce,all_reduce" + file: "all_reduce is there twice",
		"-g 2 --collectives all_reduce," + file:           `no collective ""`,
		"-g 2 more" + file:                                `no argument "more"`,
		"-g 2 --out " + bad:                               bad + `: tuning tables: table 1, AllReduce among 2 GPUs "H": there are no rows; measure again`,
	} {
		var out, errOut strings.Builder
		if status := run(append([]string{"harness", "coll", "tune"}, strings.Fields(line)...), &out, &errOut); status != exit.Usage || !strings.Contains(errOut.String(), want) {
			t.Errorf("%s: status %d, %s; want %q", line, status, errOut.String(), want)
		}
	}
	if _, err := world.GPUs(); err != nil {
		var out, errOut strings.Builder
		if status := run(strings.Fields("harness coll tune -g 2"+file), &out, &errOut); status != exit.NotDone || !strings.Contains(errOut.String(), "-g 2: ") {
			t.Errorf("without GPUs: status %d, %s", status, errOut.String())
		}
	}
}

// TestTuneOnProcessor measures a little, and adds to the file.
func TestTuneOnProcessor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.json")
	if err := os.WriteFile(file, []byte(`{"schema":2,"machine":"","tables":[{"gpu":"H","ranks":2,"collective":"AllReduce","rows":[{"choice":"reduce_ll:1:64:0","took":[[8,2000]]}]}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	if status := run(strings.Fields("harness coll tune -t 2 -b 8 -e 8 --out "+file), &out, &errOut); status != 0 || !strings.Contains(out.String(), " measurements with 2 ranks are in "+file) {
		t.Fatalf("status %d, %s%s", status, out.String(), errOut.String())
	}
	m := tables(t, file)
	last := len(m.Tables) - 1 // those of GPUs come last
	if last < 5 || m.Tables[last].GPU != "H" || m.Tables[0].Local != "SHM" || m.Tables[0].Ranks != 2 || len(m.Tables[0].Rows) == 0 {
		t.Errorf("%+v", m)
	}
}

func tables(t *testing.T, file string) *choose.Tables {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := choose.ParseTables(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTuneSizes(t *testing.T) {
	if got := series(8, 1<<30, 2); len(got) != 28 || got[27] != 1<<30 {
		t.Errorf("%d sizes", len(got))
	}
}
