package op

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/assay-hpc/assay/coll/elem"
)

// TestTable is NCCL's definition of each operation, for 4 ranks with root 2: parts
// of the buffers of the root and of rank 1, where they begin in place, the factor.
func TestTable(t *testing.T) {
	want := `
AllReduce     all_reduce     reduces=true  root 1 1, rank 1 1, vector=true  longest 1 in place 0 0 true bus 1.5
Broadcast     broadcast      reduces=false root 1 1, rank 0 1, vector=true  longest 1 in place 0 0 true bus 1
Reduce        reduce         reduces=true  root 1 1, rank 1 0, vector=true  longest 1 in place 0 0 true bus 1
AllGather     all_gather     reduces=false root 1 4, rank 1 4, vector=false longest 4 in place 1 0 true bus 0.75
ReduceScatter reduce_scatter reduces=true  root 4 1, rank 4 1, vector=false longest 4 in place 0 1 true bus 0.75
AllToAll      alltoall       reduces=false root 4 4, rank 4 4, vector=false longest 4 in place 0 0 false bus 0.75
Gather        gather         reduces=false root 1 4, rank 1 0, vector=false longest 4 in place 1 0 true bus 0.75
Scatter       scatter        reduces=false root 4 1, rank 0 1, vector=false longest 4 in place 0 1 true bus 0.75
SendRecv      sendrecv       reduces=false root 1 1, rank 1 1, vector=false longest 1 in place 0 0 false bus 1
`
	var got strings.Builder
	got.WriteString("\n")
	for c := range NumCollectives {
		const ranks, root = 4, 2
		s, r := c.Parts(root, root, ranks)
		s1, r1 := c.Parts(1, root, ranks)
		from, to, ok := c.InPlace(1)
		fmt.Fprintf(&got, "%-13v %-14s reduces=%-5v root %d %d, rank %d %d, vector=%-5v longest %d in place %d %d %v bus %v\n",
			c, c.Test(), c.Reduces(), s, r, s1, r1, c.Vector(), c.Longest(ranks), from, to, ok, c.BusFactor(ranks))
		if rooted := s != s1 || r != r1; rooted != c.Rooted() {
			t.Errorf("%v: the root's buffers differ from others': %v; rooted: %v", c, rooted, c.Rooted())
		}
		if found, ok := OfTest(c.Test()); !ok || found != c {
			t.Errorf("OfTest(%s) = %v, %v", c.Test(), found, ok)
		}
		if b := c.BusFactor(1); math.IsNaN(b) || b < 0 {
			t.Errorf("%v of one rank: %v", c, b)
		}
	}
	if got.String() != want {
		t.Errorf("got %s\nwant %s", got.String(), want)
	}
	if _, ok := OfTest("AllReduce"); ok {
		t.Error("nccl-tests has no AllReduce_perf")
	}
	if c := NumCollectives; c.Rooted() || c.Reduces() || c.String() != "Collective(?)" {
		t.Errorf("%v", c)
	}
}

func TestMemory(t *testing.T) {
	if b := Memory(0x7000, 12); Addr(b) != 0x7000 || len(b) != 12 || Addr(b[:0]) != 0 {
		t.Errorf("%#x, %d", Addr(b), len(b))
	}
	if Memory(0, 5) != nil || Memory(8, 0) != nil || Memory(8, -1) != nil || Addr(nil) != 0 {
		t.Error("there is memory where there is none")
	}
	v := [3]byte{}
	if Addr(v[1:]) != uintptr(unsafe.Pointer(&v[1])) {
		t.Error("of Go's memory")
	}
	if o := (&Op{Count: 3, Type: elem.Float64}); o.Bytes() != 24 {
		t.Errorf("%d bytes", o.Bytes())
	}
}
