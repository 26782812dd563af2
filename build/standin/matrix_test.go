package standin

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/component"
)

// TestKnowsTheMatrix: there is a stand-in of each upstream that a row of the
// matrix needs, for its Ubuntu and CUDA.
func TestKnowsTheMatrix(t *testing.T) {
	file, err := os.Open("../../matrix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, targets, err := component.Read("matrix.yaml", file, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, target := range targets {
		if target.CUDA == "" || target.Version("cuda-toolkit") != "" {
			continue
		}
		rows++
		ubuntu, major := target.Release, target.CUDAMajor()
		within := func(since, until string) bool { return since <= ubuntu && ubuntu <= until }
		has := map[string]bool{
			"base":    slices.Contains(defaultBases(), Base{target.CUDA, ubuntu}),
			"release": ubuntus[ubuntu] != "",
			"toolkit": baseNCCL[target.CUDA] != "",
			"hpcx": slices.ContainsFunc(hpcxes, func(h hpcx) bool {
				return h.version == target.Version("hpcx") && slices.Contains(h.builds, hpcxBuild{ubuntu, major})
			}),
			"cudnn": slices.ContainsFunc(cudnns, func(c cudnn) bool {
				return c.version == target.Version("cudnn") && slices.Contains(c.cudaMajor, major) && within(c.since, c.until)
			}),
		}
		for _, a := range archives {
			if v := target.Version(a.component); v != "" {
				has[a.component] = has[a.component] || slices.Contains(a.versions, v)
			}
		}
		for _, d := range dcgms {
			has["dcgm"] = has["dcgm"] || strings.TrimPrefix(d.version, "1:") == strings.TrimPrefix(target.Version("dcgm"), "1:") && d.since <= ubuntu
		}
		if v := target.Version("ofed"); v != "" {
			has["ofed"] = false
			for _, d := range docas {
				has["ofed"] = has["ofed"] || d.version == v && within(d.since, d.until)
			}
		}
		if v := target.Version("efa"); v != "" {
			has["efa"] = slices.ContainsFunc(efas, func(e efa) bool { return e.version == v })
		}
		for what, ok := range has {
			if !ok {
				t.Errorf("%s: there is no stand-in of %s %s", target.Name, what, target.Version(what))
			}
		}
	}
	if rows == 0 {
		t.Error("the matrix has no row on a base of NVIDIA's")
	}
}
