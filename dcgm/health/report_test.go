package health

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/result"
)

// sick is a node with some faults of every kind.
func sick(t *testing.T, wanted func(id string) bool) []result.Result {
	n := newNode(t)
	for _, f := range faults {
		switch f.check {
		case "gpu/row-remap/failed", "gpu/persistence", "gpu/nvlink/links", "port/rate", "node/memlock", "gpu/fabric/limited":
			f.inject(n)
		}
	}
	for i := range n.GPUs {
		n.GPUs[i].Persistence = known(false)
	}
	n.GPUs[6].Err = errNoAnswer
	n.log(0, "NVRM: Xid (PCI:0000:13:00): 79, pid=1, name=\x1b[2J, GPU has fallen off the bus.")
	return Run(n.State, *n.x, wanted)
}

// TestResults: what is said of several GPUs, of ports and of the node.
func TestResults(t *testing.T) {
	some := []string{"gpu/answers", "gpu/row-remap/failed", "gpu/pages/pending", "gpu/temperature/spread", "gpu/xid", "port/rate", "node/memlock", "node/shm"}
	got := sick(t, func(id string) bool { return slices.Contains(some, id) })
	b, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "sick.json", string(b)+"\n")
	for _, r := range got {
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
	}
}
