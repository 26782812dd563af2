package cuda

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/golden"
)

// TestChosen: what is chosen on GPUs, from which size on. Where copy engines or
// chains cannot be used, too, if that makes a difference.
func TestChosen(t *testing.T) {
	file, err := os.ReadFile("testdata/own.json")
	if err != nil {
		t.Fatal(err)
	}
	own, err := choose.ParseTables(file)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	dump := func(name, gpu string, own *choose.Tables, ranks []int, set func(*chooser)) {
		for _, n := range ranks {
			ch := testChooser(n)
			if ch.measured, err = choose.GPURules(own, gpu, n, choiceFor); err != nil {
				t.Fatal(err)
			}
			if set(ch); ch.hosted {
				ch.measured = choose.Rules[choice]{}
			}
			fmt.Fprintf(&b, "%s, %d ranks\n", name, n)
			for c := range op.NumCollectives {
				usual := map[string]bool{}
				for without := range uint32(4) {
					var last string
					var line strings.Builder
					for n := 1; n <= 1<<36; n *= 2 {
						for _, bytes := range []int{n - 1, n, n + 1, n + n/2} {
							k := ch.chooseWithout(without&1*withoutCopies|without>>1*1<<reduceChain, c, bytes)
							got := k.String()
							if ch.row(c, k, bytes) > 0 { // channels and threads are as many as it needs: TestShort
								got = k.kernel.String() + ", short"
							}
							if at := fmt.Sprintf(" %d:%v", bytes, got); got != last && !usual[at] {
								usual[at] = true
								line.WriteString(at)
							}
							last = got
						}
					}
					if line.Len() > 0 {
						fmt.Fprintf(&b, " %v %d%s\n", c, without, &line)
					}
				}
			}
		}
	}
	usual := []int{2, 4, 8}
	dump("H200", "NVIDIA H200", nil, []int{2, 3, 4, 8}, func(*chooser) {})
	dump("H200, own.json", "NVIDIA H200", own, usual, func(*chooser) {})
	dump("H100", "NVIDIA H100 80GB HBM3", nil, []int{2}, func(*chooser) {})
	dump("unknown", "", nil, []int{2, 3, 8}, func(*chooser) {})
	dump("hosted", "NVIDIA H200", nil, []int{2, 3, 8}, func(c *chooser) { c.layout = c.onHost() })
	for _, s := range []struct {
		name string
		set  func(*chooser)
	}{
		{"LL", func(c *chooser) { c.env.Proto = proto(t, "LL") }},
		{"Simple", func(c *chooser) { c.env.Proto = proto(t, "Simple") }},
		{"^LL128", func(c *chooser) { c.env.Proto = proto(t, "^LL128") }},
		{"two-shot", func(c *chooser) { c.env.Algo = algo(t, "two-shot") }},
		{"ring", func(c *chooser) { c.env.Algo = algo(t, "ring") }},
		{"3 channels", func(c *chooser) { c.env.MaxChannels = 3 }},
		{"few blocks", func(c *chooser) { c.env.CTAPolicy = choose.Efficiency }},
		{"same bits", func(c *chooser) { c.env.SameBits = true }},
		{"100 channels", func(c *chooser) { c.env.MinChannels = 100 }},
		{"8 blocks", func(c *chooser) { c.blocks = 8 }},
		{"40 threads", func(c *chooser) { c.env.Threads = 40 }},
		{"thresholds", func(c *chooser) { c.env.SingleRingThreshold, c.env.LLThreshold = 64<<10, 1<<20 }},
		{"small slots", func(c *chooser) { c.layout = newLayout(c.ranks, 64<<10) }},
		{"forced", func(c *chooser) { c.force = choice{allReduceLL128, 7, 96, 0} }},
		{"forced copies", func(c *chooser) { c.force = choice{copies, 32, 512, 4 << 20} }},
		{"hosted, forced LL128", func(c *chooser) { c.layout, c.force = c.onHost(), choice{allReduceLL128, 7, 96, 0} }},
	} {
		dump(s.name, "NVIDIA H200", nil, []int{2, 8}, s.set)
	}
	golden.Check(t, "choices.golden", b.String())
}

func TestChooseAllocatesNothing(t *testing.T) {
	ch := testChooser(4)
	ch.measured, _ = choose.GPURules(nil, "NVIDIA H200", 4, choiceFor)
	ch.env.Proto = proto(t, "Simple")
	bytes := 1
	if n := testing.AllocsPerRun(1000, func() { ch.choose(op.AllReduce, bytes); bytes += 4099 }); n != 0 {
		t.Errorf("choose allocates %g times", n)
	}
}
