package session

import (
	"testing"

	"github.com/assay-hpc/assay/coll/op"
)

// TestChoose: all ranks come to the same network.
func TestChoose(t *testing.T) {
	has := func(names ...string) offer { return offer{Names: names, Limits: make([]int, len(names))} }
	for _, tt := range []struct {
		all     []offer
		want    string
		without int
	}{
		{[]offer{has("a", "Socket"), has("a", "Socket")}, "a", op.NoPeer},
		{[]offer{has("a", "Socket"), has("Socket"), has("a", "Socket")}, "Socket", 1},
		{[]offer{has("Socket"), has("a", "Socket")}, "Socket", op.NoPeer},
		{[]offer{has("a", "b"), has("b", "a")}, "a", op.NoPeer},
		{[]offer{has("a"), has("a"), has("b")}, "", 2},
		{[]offer{has("a"), has()}, "", 1},
	} {
		got, without, err := commonNetwork(tt.all)
		if got != tt.want || without != tt.without || (err == nil) != (tt.want != "") {
			t.Errorf("commonNetwork(%v) = %q, %d, %v; want %q, %d", tt.all, got, without, err, tt.want, tt.without)
		}
	}
}
