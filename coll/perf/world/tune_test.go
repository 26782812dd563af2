package world

import (
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/perf"
)

func TestWholeFloats(t *testing.T) {
	if got := wholeFloats([]int{1, 2, 4, 8, 9}); !slices.Equal(got, []int{4, 8, 12}) {
		t.Errorf("whole floats: %v", got)
	}
}

// TestTuneCollectives: every operation can be tuned, and the usual ones are
// those that have rules of their own.
func TestTuneCollectives(t *testing.T) {
	all, err := ParseCollectives(strings.Join(perf.Collectives(), ","))
	if err != nil || len(all) != len(gpuCollectives) {
		t.Errorf("%d of %d, %v", len(all), len(gpuCollectives), err)
	}
	if got, err := ParseCollectives(""); err != nil || len(got) != 7 || got[6] != op.SendRecv {
		t.Errorf("%v, %v", got, err)
	}
}
