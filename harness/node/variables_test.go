package node

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/harness/variables"
	"github.com/assay-hpc/assay/internal/host/netenv"
	"github.com/assay-hpc/assay/internal/result"
)

// TestMeasureVariables: each variable that concerns one node is measured with and without it, the first
// four, and a run that fails has no figure.
func TestMeasureVariables(t *testing.T) {
	var ran []string
	cfg := &Config{Machine: twoGPUs}
	cfg.Run = func(_ context.Context, args ...string) (Output, error) {
		without := ""
		if name, ok := strings.CutSuffix(args[0], "="); ok {
			without = name
		}
		ran = append(ran, without)
		d := perf.Document{Rows: []perf.Row{{OutOfPlace: perf.Placement{BusBW: map[string]float64{"": 27.04, "NCCL_P2P_DISABLE": 281.2}[without]}}}}
		if without == "NCCL_PROTO" {
			d.Error = "it broke"
		}
		b, err := json.Marshal(d)
		return Output{Stdout: b}, err
	}
	conf := knob.AlreadySet([]string{"NCCL_P2P_DISABLE=1", "NCCL_PROTO=LL", "NCCL_IB_DISABLE=1", "NCCL_ALGO=Ring", "NCCL_CHECK_POINTERS=1", "NCCL_MAX_CTAS=1"}, func(string) (string, error) { return "", context.Canceled })
	var findings []variables.Finding
	for _, name := range []string{"NCCL_P2P_DISABLE", "NCCL_PROTO", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_ALGO", "NCCL_CHECK_POINTERS", "NCCL_MAX_CTAS"} {
		findings = append(findings, variables.Finding{Name: name, Grade: netenv.Harms, Text: name})
	}
	cfg.measureVariables(t.Context(), conf, findings)
	if got := strings.Join(ran, " "); got != " NCCL_P2P_DISABLE NCCL_PROTO NCCL_ALGO NCCL_CHECK_POINTERS" {
		t.Errorf("it ran without %q", got)
	}
	if text := findings[0].String(); !strings.HasPrefix(text, "NCCL_P2P_DISABLE; measured on this node: all_reduce of 128 MiB 27 GB/s, and 281 without it (harness coll)") {
		t.Error(text)
	}
	for _, f := range findings[1:] {
		if f.Costs != nil {
			t.Errorf("%s: %+v", f.Name, f.Costs)
		}
	}
}

// TestNothingToMeasure: without a variable that costs something, no command runs.
func TestNothingToMeasure(t *testing.T) {
	cfg := &Config{Machine: twoGPUs, Run: func(context.Context, ...string) (Output, error) {
		t.Error("a command ran")
		return Output{}, nil
	}}
	f, err := suite.ParseFile("own.yaml", strings.NewReader("version: 1\ntitle: t\nchecks:\n- {run: variables, with: {measure: true}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	checks, err := f.Checks(cfg.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	if r := checks[0].Run(t.Context(), &suite.Env{Environ: []string{"NCCL_DEBUG=WARN"}}); r.Verdict == result.Error {
		t.Errorf("%+v", r)
	}
}
