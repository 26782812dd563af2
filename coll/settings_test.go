package coll

import (
	"testing"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

// TestSlot: whatever NCCL_BUFFSIZE is, a message holds an element of each block
// that a step of any algorithm moves.
func TestSlot(t *testing.T) {
	uneven := make([]int, 65)
	for i := range uneven {
		uneven[i] = 2
	}
	uneven[64] = 64
	for _, tt := range []struct {
		name     string
		sizes    []int // ranks of each host
		buffSize int64
		want     int
	}{
		{"default", []int{8}, defaultBuffSize, 128 << 10},
		{"default, network", []int{8, 8}, defaultBuffSize, 512 << 10},
		{"small", []int{8}, 1 << 10, 4096},
		{"odd", []int{8}, 8 * 5000, 4992},
		{"many ranks", []int{1030}, 1 << 10, 8256},
		{"an uneven cluster", uneven, 1 << 10, 65 * 32 * 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var groups [][]int
			ranks := 0
			for _, n := range tt.sizes {
				var g []int
				for range n {
					g = append(g, ranks)
					ranks++
				}
				groups = append(groups, g)
			}
			e := &Env{Hosts: groups, BuffSize: tt.buffSize}
			got := e.slot()
			if got != tt.want {
				t.Errorf("slot = %d; want %d", got, tt.want)
			}
			for collective := range op.NumCollectives {
				for _, a := range schedule.Algorithms(collective) {
					s, err := schedule.New(collective, a, schedule.Options{Ranks: ranks, Groups: groups})
					if err == nil && 8*s.MaxSpan > got {
						t.Errorf("%v by %s moves %d blocks in a message of %d bytes", collective, a, s.MaxSpan, got)
					}
				}
			}
		})
	}
}
