package certify

import (
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/result"
)

func TestPresentGPUs(t *testing.T) {
	for name, tt := range map[string]struct {
		want, answer, silent, pci int
		verdict                   result.Verdict
		reason                    string
	}{
		"all":                     {8, 8, 0, 8, result.Pass, "8 GPUs"},
		"a part, in a container":  {4, 4, 0, 8, result.Pass, "4 GPUs"},
		"PCI is not to be seen":   {8, 8, 0, 0, result.Pass, "8 GPUs"},
		"one fell off the bus":    {8, 7, 0, 7, result.Fail, "7 GPUs, not 8; PCI has 7"},
		"one does not answer":     {8, 7, 1, 8, result.Fail, "7 GPUs, not 8; PCI has 8"},
		"none is left":            {8, 0, 0, 0, result.Fail, "0 GPUs, not 8; PCI has 0"},
		"none of some answers":    {8, 0, 0, 7, result.Fail, "0 GPUs, not 8; PCI has 7"},
		"the driver is not asked": {8, 0, 0, 8, result.Error, "PCI has 8 GPUs, and the driver cannot be asked: no libcuda"},
		"more than stated":        {4, 8, 0, 8, result.Fail, "8 GPUs, not 4"},
		"a processor node":        {0, 0, 0, 0, result.Pass, "0 GPUs"},
		"it has GPUs after all":   {0, 0, 0, 2, result.Fail, "0 GPUs, not 0; PCI has 2"},
	} {
		n := &certificate.Node{}
		for range tt.answer {
			n.GPUs = append(n.GPUs, certificate.GPU{UUID: "GPU-1"})
		}
		for range tt.silent {
			n.GPUs = append(n.GPUs, certificate.GPU{Name: "does not answer"})
		}
		r := presentGPUs(&tt.want, n, machine.Facts{PCI: tt.pci, Why: "no libcuda"})
		if r.ID != "gpus" || r.Verdict != tt.verdict || !strings.HasPrefix(r.Reason, tt.reason) {
			t.Errorf("%s: %s: %s: %s; want %s: %s", name, r.ID, r.Verdict, r.Reason, tt.verdict, tt.reason)
		}
		if err := r.Validate(); err != nil || r.Verdict.Bad() && r.Remedy == "" {
			t.Errorf("%s: %v, remedy %q", name, err, r.Remedy)
		}
	}
	if presentGPUs(nil, &certificate.Node{}, machine.Facts{}) != nil {
		t.Error("a number that was not stated is required")
	}
}

// TestChosenMachine: what must be there decides which suite is chosen, also where nothing of it is
// left.
func TestChosenMachine(t *testing.T) {
	eight := 8
	for _, o := range []Options{{Root: "/", GPUs: &eight}, {Root: "/", Ports: &eight}, {Root: "/", Hardware: "hgx-h100"}} {
		if got := o.Chosen(); got != "node" {
			t.Errorf("%+v: the suite %s; want node", o, got)
		}
		o.Suite = "image"
		if _, err := Prepare(t.Context(), o); exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "name a suite about the machine") {
			t.Errorf("%+v with the suite image: %v", o, err)
		}
	}
}
