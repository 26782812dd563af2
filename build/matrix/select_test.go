package matrix

import (
	"slices"
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	all := expandReal(t)
	for _, c := range []struct {
		globs string
		want  string // names, or what the error says
	}{
		{"fabric-debian12", "fabric-debian12"},
		{"cuda12.2.2-*", "cuda12.2.2-ubuntu20.04 cuda12.2.2-ubuntu22.04"},
		{"cuda12.2.2-ubuntu22.04 cuda12.2.2-*", "cuda12.2.2-ubuntu20.04 cuda12.2.2-ubuntu22.04"},
		{"*-ubuntu22.04-efa fabric-debian*", "fabric-debian12 cuda12.9.1-ubuntu22.04-efa"},
		{"fabric-debian13", `there is no target "fabric-debian13"; the nearest is "fabric-debian12"`},
		{"cuda14*", `no target matches "cuda14*"; one of the `},
		{"cuda[", `"cuda[" is not a pattern of target names: syntax error in pattern; write it`},
	} {
		got := ""
		targets, err := Select(all, strings.Fields(c.globs))
		if err != nil {
			got = err.Error()
		} else {
			got = strings.Join(targetNames(targets), " ")
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) {
			t.Errorf("Select(%s) = %s; want %s", c.globs, got, c.want)
		}
	}
	if got, err := Select(all, nil); err != nil || len(got) != len(all) {
		t.Errorf("Select(nil) = %d targets, %v; want all %d", len(got), err, len(all))
	}
}

func TestSharedBases(t *testing.T) {
	all := expandReal(t)
	for like, want := range map[string]string{
		"cuda12.9.1-ubuntu20.04":         "cuda12.2.2-ubuntu20.04",
		"cuda13.1.1-ubuntu22.04":         "cuda13.0.2-ubuntu22.04",
		"cuda13.4.2-ubuntu22.04":         "cuda13.0.3-ubuntu22.04", // 13.0.2 has another HPC-X
		"cuda13.4.2-ubuntu24.04-efa":     "cuda13.0.3-ubuntu24.04",
		"cuda12.9.2-ubuntu22.04":         "cuda12.6.3-ubuntu22.04-current",
		"cuda12.6.3-ubuntu22.04-current": "cuda12.6.3-ubuntu22.04-current",
		"cuda12.9.1-ubuntu24.04":         "cuda12.9.1-ubuntu24.04",
		"cuda13.4.2-ubuntu26.04":         "cuda13.3.1-ubuntu26.04",
	} {
		i := slices.IndexFunc(all, func(t Target) bool { return t.Name == like })
		if i < 0 {
			t.Errorf("there is no %s", like)
		} else if got := LowestCUDA(all, all[i], "hpcx").Name; got != want {
			t.Errorf("LowestCUDA(%s) = %q; want %q", like, got, want)
		}
	}
}

// The plain target is preferred wherever it stands in the list.
func TestSharedBaseIsPlain(t *testing.T) {
	efa := Target{Name: "a-efa", Distro: "ubuntu", Release: "22.04", CUDA: "12.9.1", Variant: "efa"}
	plain := Target{Name: "a", Distro: "ubuntu", Release: "22.04", CUDA: "12.9.1"}
	for _, list := range [][]Target{{efa, plain}, {plain, efa}} {
		if got := LowestCUDA(list, efa, "hpcx").Name; got != "a" {
			t.Errorf("LowestCUDA(%v) = %q; want a", targetNames(list), got)
		}
	}
}
