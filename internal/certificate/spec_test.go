package certificate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOver: an image on a base of assay's is held to what both declare.
func TestOver(t *testing.T) {
	const from = "registry.example/assay:1@sha256:00"
	check := func(name string) []Check { return []Check{{Name: name, Kind: CheckFile, Path: "/" + name}} }
	base := &ImageSpec{
		Version: 1, Target: "base", Platform: "linux/amd64",
		Components: []Component{
			{Name: "harness", Version: "0.1.0", Checks: check("four-ranks"), Layers: []string{"COPY harness"}},
			{Name: "openmpi", Version: "4.1.4", Checks: check("mpirun")},
			{Name: "nccl", Version: "2.27.6-1", Checks: check("nccl")},
		},
		Packages: []Package{{"jq", "1.6", "amd64"}, {"tar", "1.34", "amd64"}},
		Absent:   []Absent{{Library: "libcuda.so.1"}, {Library: "libnvidia-ml.so.1"}},
	}
	own := &ImageSpec{
		Version: 1, Target: "own", Platform: "linux/amd64", Recipe: "00",
		Components: []Component{
			{Name: "harness", Base: from, Checks: check("has")},
			{Name: "nccl", Version: "2.30.4-1", Checks: check("newer")}, // put in over the base's
			{Name: "jq", Version: "1.7"},
		},
		Packages: []Package{{"jq", "1.7", "amd64"}},
		Absent:   []Absent{{Library: "libcuda.so.1"}},
	}
	want := &ImageSpec{
		Version: 1, Target: "own", Platform: "linux/amd64", Recipe: "00",
		Components: []Component{
			{Name: "harness", Version: "0.1.0", Base: from, Checks: append(check("has"), check("four-ranks")...)},
			{Name: "nccl", Version: "2.30.4-1", Checks: check("newer")},
			{Name: "jq", Version: "1.7"},
			{Name: "openmpi", Version: "4.1.4", Base: from, Checks: check("mpirun")},
		},
		Packages: []Package{{"jq", "1.7", "amd64"}, {"tar", "1.34", "amd64"}},
		Absent:   []Absent{{Library: "libcuda.so.1"}, {Library: "libnvidia-ml.so.1"}},
	}
	if diff := cmp.Diff(want, own.Over(base)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if own.AssayBase() != from || base.AssayBase() != "" || len(own.Components) != 3 || len(base.Components[0].Layers) != 1 {
		t.Errorf("%q, %q; or a declaration was changed: %+v, %+v", own.AssayBase(), base.AssayBase(), own, base)
	}
}
