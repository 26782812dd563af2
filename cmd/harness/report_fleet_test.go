package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/fleet"
	"github.com/assay-hpc/assay/harness/fleet/fleettest"
	"github.com/assay-hpc/assay/internal/exit"
)

// TestReportFleet: a directory of several nodes' certificates is one page; one of a single node, or
// with --machine, is that node's.
func TestReportFleet(t *testing.T) {
	base, err := fleettest.Real("../..", "h200-1x")
	if err != nil {
		t.Fatal(err)
	}
	m := &fleettest.Maker{Base: base, Rand: rand.New(rand.NewPCG(1, 46)), Machine: 0.003, Object: 0.003, Start: time.Now().AddDate(0, 0, -9)}
	dir, one := t.TempDir(), t.TempDir()
	var names []string
	for i := range 30 {
		for _, day := range []float64{0, 8} {
			st := m.Make(i, day)
			if i == 17 && day == 8 {
				fleettest.Slow(st, "bandwidth/local_ce", "", 0.88)
			}
			names = append(names, write(t, dir, st))
			if i == 17 {
				write(t, one, st)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "broken.json"), []byte(`{"predicateType":"https://github.com/assay-hpc/assay/certificate/v1"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("node0000 slots=8\nnode0030 slots=8\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		want []string
		code int
	}{
		{dir, []string{"1 of 30 nodes stands out: node0017, bandwidth/local_ce -1", "60 certificates, 1 refused", "over time"}, exit.Pass},
		{dir + " --nodes node[0000-0031]", []string{"not certified: 2: node[0030-0031]"}, exit.Pass},
		{dir + " --nodes " + hosts, []string{"not certified: 1: node0030", "not expected: 29: node[0001-0029]"}, exit.Pass},
		{dir + " --nodes node[3-1]", []string{"--nodes:1: host list"}, exit.Usage},
		{dir + " --machine node0017 -o html", []string{"suite node on node0017", `id="history"`}, exit.Pass},
		{dir + " --machine node0099", []string{`there is no "node0099"; did you mean "node00`}, exit.Usage},
		{one, []string{"PASS  suite node"}, exit.Pass},
		{one + " -o html", []string{"suite node on node0017", `id="history"`}, exit.Pass},
		{dir + " -o html", []string{"<h1>1 of 30 nodes stands out: node0017"}, exit.Pass},
		{strings.Join(names[:2], " ") + " -o html", []string{"suite node on node0000"}, exit.Pass},
		{names[0] + " " + names[2] + " -o html", []string{"2 nodes, too few of a kind to compare"}, exit.Pass},
		{names[0] + " --nodes a", []string{"--nodes belongs to a fleet"}, exit.Usage},
		{dir + " --history " + names[0], []string{"--history belongs to one certificate"}, exit.Usage},
		{dir + " -o prometheus", []string{`assay_certificate_verdict{suite="node",node="node0029",platform="linux/amd64"} 0`}, exit.Pass},
		{t.TempDir(), []string{"none of the 0 files is a readable certificate"}, exit.NotDone},
	} {
		code, out, errOut := tell(append([]string{"report"}, strings.Fields(tt.args)...)...)
		if code != tt.code {
			t.Errorf("report %s: exit status %d: %s", tt.args, code, errOut)
		}
		for _, want := range tt.want {
			if !strings.Contains(out+errOut, want) {
				t.Errorf("report %s: it lacks %q:\n%.3000s%s", tt.args, want, out, errOut)
			}
		}
	}
	_, out, _ := tell("report", dir, "-o", "json")
	var f fleet.Fleet
	if err := json.Unmarshal([]byte(out), &f); err != nil || len(f.Nodes) != 30 || len(f.Outliers) != 1 || f.Outliers[0].Node != "node0017" {
		t.Errorf("JSON: %v, %.300s", err, out)
	}
	to := t.TempDir()
	if code, _, errOut := tell("report", dir, "--out", to); code != exit.Pass {
		t.Fatal(errOut)
	}
	for _, name := range []string{"report.txt", "report.html", "fleet.json"} {
		if st, err := os.Stat(filepath.Join(to, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
