package world

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// TestOnGPUs: ranks are GPUs where there are any, unless the processor is
// asked for; what needs GPUs is not done without.
func TestOnGPUs(t *testing.T) {
	none := errors.New("no NVIDIA driver")
	for line, want := range map[string]struct {
		there, absent any // true, false or an exit status
	}{
		"":                               {true, false},
		"-t 4":                           {true, false},
		"--device cpu":                   {false, false},
		"--device gpu":                   {true, exit.NotDone},
		"--engine nccl":                  {true, exit.NotDone},
		"--engine nccl --device cpu":     {exit.Usage, exit.Usage},
		"--versus nccl":                  {true, exit.NotDone},
		"--versus best --device gpu":     {true, exit.NotDone},
		"--versus best --device cpu":     {exit.Usage, exit.Usage},
		"--versus NCCL_ALGO=Ring":        {true, false},
		"--versus A=B,C=D --device cpu":  {false, false},
		"--versus A=B,C=D --device=gpu ": {true, exit.NotDone},
	} {
		cfg, err := perf.Parse("all_reduce", "", strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		for missing, want := range map[error]any{nil: want.there, none: want.absent} {
			use, err := onGPUs(cfg, missing)
			got := any(use)
			if err != nil {
				got = exit.Of(err)
			}
			if got != want {
				t.Errorf("%q, GPUs missing: %v: %v; want %v (%v)", line, missing, got, want, err)
			}
		}
	}
}

func TestOwnGPUs(t *testing.T) {
	for name, tt := range map[string]struct {
		where      bootstrap.World
		perProcess int
		gpus       int
		want       []int // nil: too few
	}{
		"one process":              {bootstrap.World{Size: 1}, 4, 8, []int{0, 1, 2, 3}},
		"second of its host":       {bootstrap.World{Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4}, 2, 8, []int{2, 3}},
		"sees its own alone":       {bootstrap.World{Rank: 3, Size: 4, LocalRank: 3, LocalSize: 4}, 1, 1, []int{0}},
		"launcher does not say":    {bootstrap.World{Rank: 5, Size: 8}, 1, 4, []int{1}},
		"too many ranks":           {bootstrap.World{Size: 1}, 5, 4, nil},
		"too many processes":       {bootstrap.World{Rank: 2, Size: 4, LocalRank: 2, LocalSize: 4}, 2, 4, nil},
		"all of them in a process": {bootstrap.World{Size: 1}, 8, 8, []int{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		j := &job{where: tt.where, perProcess: tt.perProcess}
		got, err := j.ownGPUs(tt.gpus)
		if d := cmp.Diff(tt.want, got); d != "" || (err == nil) != (tt.want != nil) {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
	}
}

func TestDescribeGPUs(t *testing.T) {
	got := describeGPUs([]perf.Device{{Name: "A"}, {Name: "B"}, {Name: "A"}})
	if got != "2 x A, 1 x B" {
		t.Errorf("%q", got)
	}
	note := skipped(errors.New("no NVIDIA driver"))
	if driver.Built != (note != "") || driver.Built && note != "skipped: no NVIDIA driver" {
		t.Errorf("note %q", note)
	}
	if skipped(nil) != "" {
		t.Error("GPUs are skipped where there are some")
	}
}
