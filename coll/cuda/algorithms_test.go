package cuda

import (
	"testing"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

func testChooser(ranks int) *chooser {
	return &chooser{layout: newLayout(ranks, 0), env: new(choose.Env), blocks: 132, clusters: true, copyBytes: 512 << 20}
}

// sizes goes from 1 byte to 16 GB, with what lies beside powers of two.
func sizes(f func(bytes int)) {
	for n := 1; n <= 16<<30; n *= 2 {
		f(n)
		f(n + 1)
		f(n - 1)
	}
}

// Whatever is chosen can do the collective, fits into the slots, and can be on
// the device all at once.
func TestChoices(t *testing.T) {
	settings := map[string]func(c *chooser){
		"default":     func(*chooser) {},
		"one channel": func(c *chooser) { c.env.MaxChannels = 1 },
		"many":        func(c *chooser) { c.env.MinChannels = 100 },
		"half device": func(c *chooser) { c.blocks = 8 },
		"Simple":      func(c *chooser) { c.env.Proto = proto(t, "Simple") },
		"LL":          func(c *chooser) { c.env.Proto = proto(t, "LL") },
		"two-shot":    func(c *chooser) { c.env.Algo = algo(t, "two-shot") },
		"ring":        func(c *chooser) { c.env.Algo = algo(t, "ring") },
		"one warp":    func(c *chooser) { c.env.Threads = 40 },
		"thresholds":  func(c *chooser) { c.env.SingleRingThreshold, c.env.LLThreshold = 64<<10, 1<<20 },
		"forced":      func(c *chooser) { c.force = choice{allReduceLL128, 7, 96, 0} },
		"measured": func(c *chooser) {
			c.measured[op.AllReduce] = []choose.Rule[choice]{{UpTo: 1 << 10, C: choice{reduceLL, 64, 512, 0}}, {UpTo: maxMessage, C: choice{allReduceLL128, 8, 64, 0}}}
			c.measured[op.AllGather] = []choose.Rule[choice]{{UpTo: 1 << 30, C: choice{exchangeSimple, 64, 512, 1 << 30}}}
		},
		"hosted":         func(c *chooser) { c.layout = c.onHost() },
		"hosted, LL":     func(c *chooser) { c.layout, c.env.Proto = c.onHost(), proto(t, "LL") },
		"hosted, LL128":  func(c *chooser) { c.layout, c.force = c.onHost(), choice{allReduceLL128, 7, 96, 0} },
		"hosted, copies": func(c *chooser) { c.layout, c.force = c.onHost(), choice{copies, 32, 512, 4 << 20} },
		"small slots":    func(c *chooser) { c.layout = newLayout(c.ranks, 64<<10) },
	}
	for name, set := range settings {
		for ranks := 2; ranks <= maxRanks; ranks++ {
			ch := testChooser(ranks)
			set(ch)
			for coll := range op.NumCollectives {
				sizes(func(bytes int) {
					c := ch.choose(coll, bytes)
					i := kernelTable[c.kernel]
					switch {
					case !c.kernel.does(coll):
						t.Fatalf("%s: %v of %d bytes, %d ranks: %v does not do that", name, coll, bytes, ranks, c)
					case !ch.fits(coll, c, bytes):
						t.Fatalf("%s: %v of %d bytes, %d ranks: %v has no copy buffer", name, coll, bytes, ranks, c)
					case c.channels < 1 || c.channels > packetChannels || c.channels*i.roles > max(ch.blocks, i.roles):
						t.Fatalf("%s: %v of %d bytes, %d ranks: %v does not fit the device", name, coll, bytes, ranks, c)
					case ch.hosted && (i.protocol == ll128 || c.kernel == copies):
						t.Fatalf("%s: %v of %d bytes, %d ranks: %v in the processor's memory", name, coll, bytes, ranks, c)
					case c.threads < 32 || c.threads > exchangeThreads || c.threads%32 != 0:
						t.Fatalf("%s: %v of %d bytes, %d ranks: %v", name, coll, bytes, ranks, c)
					case i.protocol == simple && (c.chunk < 128 || c.chunk > ch.chunk || c.chunk%128 != 0 || i.results && c.channels > resultChannel):
						t.Fatalf("%s: %v of %d bytes, %d ranks: %v", name, coll, bytes, ranks, c)
					}
				})
			}
		}
	}
}

func proto(t *testing.T, s string) knob.Filter {
	t.Helper()
	k, _, err := knob.Load([]string{"NCCL_PROTO=" + s}, func(string) ([]byte, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	return k.Proto
}

func algo(t *testing.T, s string) knob.Filter {
	t.Helper()
	k, _, err := knob.Load([]string{"NCCL_ALGO=" + s}, func(string) ([]byte, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	return k.Algo
}

// TestSameBits: with ASSAY_SAME_BITS=1 no rule, no setting and no forced choice leads to a kernel
// that reduces in another order than that of the ranks.
func TestSameBits(t *testing.T) {
	for _, ranks := range []int{2, 4, 8} {
		for _, force := range []choice{{}, {copies, 32, 512, 4 << 20}, {reduceChain, 8, 512, 64 << 10}, {kernel: nvidia}} {
			for _, hosted := range []bool{false, true} {
				ch := testChooser(ranks)
				ch.env.SameBits, ch.library, ch.force = true, true, force
				var err error
				if ch.measured, err = choose.GPURules(nil, "NVIDIA H200", ranks, choiceFor); err != nil {
					t.Fatal(err)
				}
				if hosted {
					ch.layout, ch.measured = ch.onHost(), choose.Rules[choice]{}
				}
				sizes(func(bytes int) {
					for c := range op.NumCollectives {
						k := ch.choose(c, bytes)
						if c.Reduces() && (k.kernel == nvidia || ranks > 2 && (k.kernel == copies || k.kernel == reduceChain)) || !ch.fits(c, k, bytes) {
							t.Fatalf("%d ranks, %v of %d bytes with %v forced: %v", ranks, c, bytes, force, k)
						}
					}
				})
			}
		}
	}
}

func TestSettingsCount(t *testing.T) {
	ch := testChooser(4)
	if c := ch.choose(op.AllReduce, 1024); c.kernel != reduceLL {
		t.Errorf("1 KB by %v", c)
	}
	ch.env.Threads = 40
	if c := ch.choose(op.AllReduce, 1024); c.threads != 32 {
		t.Errorf("40 threads: %v", c)
	}
	if c := ch.choose(op.AllReduce, 64<<20); c.kernel != allReduceSimple || c.threads != 32*2*servedWarps {
		t.Errorf("40 threads: 64 MB by %v", c)
	}
	for _, blocks := range []int{1, 2, 7, fewBlocks} {
		ch.env.MaxChannels, ch.env.CTAPolicy = blocks, ""
		if blocks == fewBlocks {
			ch.env.MaxChannels, ch.env.CTAPolicy = 0, choose.Efficiency
		}
		if c := ch.choose(op.AllReduce, 64<<20); c.channels != max(1, blocks/2) {
			t.Errorf("at most %d blocks: 64 MB by %v", blocks, c)
		}
		if c := ch.choose(op.AllGather, 1<<10); c.channels > blocks {
			t.Errorf("at most %d blocks: 1 KB by %v", blocks, c)
		}
	}
	ch.env.CTAPolicy = ""
	ch.env.Threads, ch.env.SingleRingThreshold, ch.env.LLThreshold = 0, 64<<10, 1<<20
	if c := ch.choose(op.AllReduce, 8<<10); c.channels != 1 {
		t.Errorf("one channel below 64 KB: %v", c)
	}
	if c := ch.choose(op.AllReduce, 512<<10); kernelTable[c.kernel].protocol != ll {
		t.Errorf("LL below 1 MB: %v", c)
	}
	ch.env.SingleRingThreshold, ch.env.LLThreshold = 0, 0
	ch.env.Algo = algo(t, "two-shot")
	if c := ch.choose(op.AllReduce, 1024); kernelTable[c.kernel].algorithm != schedule.TwoShot {
		t.Errorf("two-shot: 1 KB by %v", c)
	}
	ch.env.Proto = proto(t, "Simple")
	if c := ch.choose(op.AllReduce, 1024); c.kernel != allReduceSimple {
		t.Errorf("two-shot, Simple: 1 KB by %v", c)
	}
	if c := ch.choose(op.AllGather, 8); c.kernel != exchangeSimple {
		t.Errorf("Simple: 8 bytes of AllGather by %v", c)
	}
	ch.force = choice{allReduceLL128, 7, 96, 0}
	if c := ch.choose(op.AllReduce, 4096); c != ch.force {
		t.Errorf("forced: %v", c)
	}
	if c := ch.choose(op.AllReduce, 1<<30); c.kernel != allReduceSimple {
		t.Errorf("forced, too long: %v", c)
	}
	if c := ch.choose(op.Broadcast, 4096); !c.kernel.does(op.Broadcast) {
		t.Errorf("forced, another collective: %v", c)
	}
}

func TestParseChoice(t *testing.T) {
	c, err := parseChoice("allreduce_ll128:16:256:32768")
	if err != nil || c != (choice{allReduceLL128, 16, 256, 32768}) {
		t.Errorf("%v, %v", c, err)
	}
	if again, err := parseChoice(c.String()); err != nil || again != c {
		t.Errorf("%v, %v", again, err)
	}
	if c, err := parseChoice("reduce_ll:8:256:0"); err != nil || c != (choice{reduceLL, 8, 256, 0}) { // as String writes it
		t.Errorf("%v, %v", c, err)
	}
	if c, err = parseChoice("exchange_ll:3"); err != nil || c.channels != 3 {
		t.Errorf("%v, %v", c, err)
	}
	for _, s := range []string{"", "ring", "combine", "exchange_ll:x", "exchange_ll:0", "exchange_ll:1:33", "exchange_ll:1:1024", "exchange_ll:1:32:128:1", "exchange_ll:1:0", "exchange_simple:1:32:-1"} {
		if c, err := parseChoice(s); err == nil {
			t.Errorf("%q: %v", s, c)
		}
	}
}

// A capacity is what the kernels' loops reach without leaving their slot.
func TestCapacity(t *testing.T) {
	l := newLayout(4, 0)
	for _, threads := range []int{32, 96, 256, 480, 512} {
		for _, channels := range []int{1, 3, 64} {
			for _, p := range []choose.Protocol{ll, ll128} {
				slot, data, units := l.llSlot, 8, 1
				if p == ll128 {
					slot, data, units = l.ll128Slot, 112, 8
				}
				n := l.capacity(p, channels, threads)
				for bytes, fits := range map[int]bool{n: true, n + 1: false} {
					total := (bytes + data - 1) / data * units
					rounds := (total + channels*threads - 1) / (channels * threads)
					if got := rounds*threads*16 <= slot; got != fits {
						t.Errorf("%v, %d channels, %d threads: %d bytes of %d fit: %v", p, channels, threads, bytes, n, got)
					}
				}
			}
		}
	}
	if l.size() <= l.chunks() || l.ll()%128 != 0 || l.ll128()%128 != 0 || l.chunks()%128 != 0 {
		t.Errorf("layout %+v: %d %d %d %d", l, l.ll(), l.ll128(), l.chunks(), l.size())
	}
	var c commABI
	l.fill(&c)
	if c.ll != uint64(l.ll()) || c.ll128 != uint64(l.ll128()) || c.chunks != uint64(l.chunks()) || c.depth&(c.depth-1) != 0 || c.ranks != 4 {
		t.Errorf("%+v", c)
	}
}

// Windows in the processor's memory take no more of it than what they may.
func TestHostedLayout(t *testing.T) {
	for ranks := 2; ranks <= maxRanks; ranks++ {
		for _, buffer := range []int{0, 64 << 10, 16 << 20} {
			l := newLayout(ranks, buffer).onHost()
			if n := l.size(); n > 81<<20 || l.chunk%128 != 0 || l.chunk < 16<<10 || n%4096 != 0 {
				t.Errorf("%d ranks, buffers of %d: %d bytes, chunks of %d", ranks, buffer, n, l.chunk)
			}
		}
	}
}

func BenchmarkPrepare(b *testing.B) {
	ch := testChooser(4)
	o := testOp(op.AllReduce, 1<<10)
	var a argsABI
	b.ReportAllocs()
	for b.Loop() {
		c := ch.choose(o.Coll, o.Bytes())
		fill(&a, 1, 4, o, c)
	}
}

// How an AllReduceNorm is done: by one kernel with the protocol of the AllReduce, if the rows of each
// channel fit into its slot.
func TestNormChoices(t *testing.T) {
	for _, c := range []struct {
		name      string
		ranks     int
		rows, row int // row: bytes
		set       func(*chooser)
		want      string
		fused     bool
	}{
		{"a short row", 2, 1, 2, nil, "norm_ll:1:32:0", true},
		{"a row that several blocks share", 2, 1, 8 << 10, nil, "norm_ll:8:128:0", true},
		{"a row of a block", 2, 1, 4 << 10, nil, "norm_ll:1:512:0", true},
		{"two rounds", 4, 4, 16 << 10, nil, "norm_ll:32:128:0", true},
		{"two blocks a row", 2, 32, 16 << 10, nil, "norm_ll:64:512:0", true},
		{"a block for each row", 2, 64, 8 << 10, nil, "norm_ll:64:512:0", true},
		{"no clusters", 2, 64, 8 << 10, func(c *chooser) { c.clusters = false }, "norm_ll:64:512:0", true},
		{"a row that blocks without clusters cannot share", 2, 1, 16 << 10, func(c *chooser) { c.clusters = false }, "reduce_ll:16:128:0", false},
		{"more than a slot of a row", 2, 64, 16 << 10, nil, "reduce_ll128:64:512:0", false},
		{"more rows than blocks", 2, 100, 4 << 10, nil, "reduce_ll128:32:512:0", false},
		{"too long", 2, 512, 16 << 10, nil, "allreduce_simple:24:512:28672", false},
		{"a row that is too long", 2, 1, 256 << 10, nil, "reduce_ll128:32:512:0", false},
		{"two hops", 4, 32, 16 << 10, nil, "allreduce_ll:64:256:0", false},
		{"fewer blocks", 2, 16, 8 << 10, func(c *chooser) { c.blocks = 20 }, "norm_ll:16:512:0", true},
		{"too few", 2, 64, 16 << 10, func(c *chooser) { c.blocks = 8 }, "allreduce_simple:4:512:28672", false},
		{"no LL128", 2, 1, 16 << 10, func(c *chooser) { c.env.Proto = proto(t, "LL") }, "norm_ll:8:256:0", true},
		{"Simple", 2, 1, 4 << 10, func(c *chooser) { c.env.Proto = proto(t, "Simple") }, "allreduce_simple:24:512:28672", false},
		{"no copies", 2, 512, 16 << 10, func(c *chooser) { c.force = choice{copies, 32, 512, 4 << 20} }, "allreduce_simple:24:512:28672", false},
		{"nor the library", 2, 1, 4 << 10, func(c *chooser) { c.force, c.library = choice{kernel: nvidia}, true }, "norm_ll:1:512:0", true},
		{"host memory", 2, 1, 2 << 10, func(c *chooser) { c.layout = c.onHost() }, "norm_ll:1:256:0", true},
		{"more in host memory", 2, 1, 16 << 10, func(c *chooser) { c.layout = c.onHost() }, "norm_ll:8:256:0", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := testChooser(c.ranks)
			if c.set != nil {
				c.set(ch)
			}
			got, fused := ch.normed(c.rows, c.row)
			if got.String() != c.want || fused != c.fused {
				t.Errorf("%v, fused %v; want %s, %v", got, fused, c.want, c.fused)
			}
		})
	}
	for _, c := range []struct {
		rows, row int
		clusters  bool
		blocks    int // NCCL_MAX_CTAS
		want      string
	}{
		{1, 2, true, 0, "norm_local:1:32:0"},
		{1, 513, true, 0, "norm_local:1:64:0"},
		{1, 1 << 20, false, 0, "norm_local:1:512:0"},
		{3, 1 << 20, true, 0, "norm_local:24:512:0"},
		{64, 16 << 10, true, 0, "norm_local:128:512:0"},
		{1000, 16 << 10, true, 0, "norm_local:264:512:0"},
		{3, 1 << 20, true, 10, "norm_local:6:512:0"},
		{1, 1 << 20, true, 3, "norm_local:2:512:0"},
		{1000, 16 << 10, true, 7, "norm_local:7:512:0"},
	} {
		ch := testChooser(2)
		ch.env.MaxChannels = c.blocks
		if got := ch.normedLocally(c.rows, c.row, 132, c.clusters).String(); got != c.want {
			t.Errorf("%d rows of %d bytes, clusters %v: %s; want %s", c.rows, c.row, c.clusters, got, c.want)
		}
	}
}

// A short operation has a thread for each unit and peer, within what settings allow.
func TestShort(t *testing.T) {
	for ranks := 2; ranks <= maxRanks; ranks++ {
		for _, c := range []struct {
			threads, channels int
			longest           int // of two ranks
		}{{0, 0, 256 << 10}, {64, 0, 32 << 10}, {0, 4, 16 << 10}, {512, 1, 4 << 10}, {32, 1, 256}} {
			ch := testChooser(ranks)
			ch.env.Threads, ch.env.MaxChannels = c.threads, c.channels
			for bytes := 1; bytes <= 1<<20; bytes += 1 + bytes/9 {
				for _, k := range []kernel{reduceLL, exchangeLL} {
					got, ok := ch.short(op.AllReduce, choice{k, 1, 256, 0}, bytes)
					if ranks == 2 && ok != (bytes <= c.longest) {
						t.Fatalf("2 ranks, %+v: %d bytes are short: %v", c, bytes, ok)
					}
					if !ok {
						continue
					}
					if again, ok := ch.short(op.AllReduce, got, bytes); !ok || again != got {
						t.Errorf("%d ranks, %+v, %d bytes: %v, then %v", ranks, c, bytes, got, again)
					}
					threads := got.threads * (ranks - 1)
					if got.kernel != k || got.threads < 32 || got.threads&(got.threads-1) != 0 || threads > exchangeThreads || c.threads > 0 && threads > c.threads ||
						got.channels > packetChannels || c.channels > 0 && got.channels > c.channels || got.threads*got.channels*llUnit < bytes {
						t.Errorf("%d ranks, %+v, %d bytes: %v", ranks, c, bytes, got)
					}
					if row := ch.row(op.AllReduce, got, bytes); 1<<row != got.threads {
						t.Errorf("%v: row %d", got, row)
					}
				}
			}
		}
	}
	ch := testChooser(2)
	for _, c := range []struct {
		of op.Collective
		k  choice
	}{{op.SendRecv, choice{exchangeLL, 1, 256, 0}}, {op.AllReduce, choice{allReduceLL, 1, 256, 0}}, {op.AllReduce, choice{reduceLL128, 1, 256, 0}}, {op.AllReduce, choice{reduceLL, 3, 96, 0}}} {
		if got, ok := ch.short(c.of, c.k, 8); ok || ch.row(c.of, c.k, 8) != 0 {
			t.Errorf("%v by %v is short: %v", c.of, c.k, got)
		}
	}
}

// Results in registered memory are written directly, where neither packets nor copy engines are faster.
func TestDirect(t *testing.T) {
	const usual = "exchange_direct:8:512:0"
	for _, c := range []struct {
		ranks int
		of    op.Collective
		bytes int
		set   func(*chooser)
		want  string
	}{
		{2, op.AllGather, 512 << 10, nil, ""},
		{2, op.AllGather, 512<<10 + 1, nil, usual},
		{4, op.AllGather, 128 << 10, nil, ""},
		{4, op.AllToAll, 256 << 10, nil, usual},
		{2, op.Broadcast, 1 << 20, nil, "exchange_direct:64:512:0"},
		{4, op.Broadcast, 2 << 30, nil, ""},
		{2, op.AllGather, 256 << 20, nil, usual},
		{2, op.AllGather, 1 << 30, nil, ""},
		{4, op.AllGather, 64 << 20, nil, usual},
		{4, op.AllGather, 128 << 20, nil, ""},
		{2, op.AllGather, 1 << 30, func(c *chooser) { c.env.CTAPolicy = choose.Efficiency }, usual},
		{2, op.AllGather, 8 << 20, func(c *chooser) { c.env.MaxChannels = 4 }, "exchange_direct:2:512:0"},
		{2, op.AllGather, 8 << 20, func(c *chooser) { c.env.Proto = proto(t, "LL") }, ""},
		{2, op.AllGather, 8, func(c *chooser) { c.force = choice{exchangeDirect, 3, 96, 0} }, "exchange_direct:3:96:0"},
		{4, op.Broadcast, 8, func(c *chooser) { c.force = choice{exchangeDirect, 3, 96, 0} }, ""},
		{2, op.AllGather, 8 << 20, func(c *chooser) { c.force = choice{exchangeSimple, 3, 96, 0} }, ""},
	} {
		ch := testChooser(c.ranks)
		ch.measured, _ = choose.GPURules(nil, "NVIDIA H200", c.ranks, choiceFor)
		if c.set != nil {
			c.set(ch)
		}
		got := ""
		if k, ok := ch.direct(c.of, c.bytes); ok {
			got = k.String()
		}
		if got != c.want {
			t.Errorf("%d ranks, %v of %d bytes: %q; want %q", c.ranks, c.of, c.bytes, got, c.want)
		}
	}
}

// Where multiprocessors are to be left to products, copy engines do only what one kernel can do for
// all rounds, and only if that is asked for.
func TestZeroCTAs(t *testing.T) {
	ch := testChooser(2)
	rules := []choose.Rule[choice]{{UpTo: maxMessage, C: choice{copies, 128, exchangeThreads, 32 << 20}}}
	for c := range ch.measured {
		ch.measured[c] = rules
	}
	for _, c := range []struct {
		policy string
		coll   op.Collective
		copies bool
	}{
		{"DEFAULT", op.AllReduce, true}, {"DEFAULT", op.AllToAll, true},
		{choose.Efficiency, op.AllReduce, false}, {choose.Efficiency, op.AllToAll, false},
		{choose.Zero, op.AllReduce, true}, {choose.Zero, op.Broadcast, true}, {choose.Zero, op.AllToAll, false}, {choose.Zero, op.SendRecv, false},
	} {
		ch.env.CTAPolicy = c.policy
		got := ch.choose(c.coll, 512<<20)
		if (got.kernel == copies) != c.copies || c.policy != "DEFAULT" && got.channels > fewBlocks {
			t.Errorf("%v with %s: %v", c.coll, c.policy, got)
		}
	}
}

// TestSplit: where stores of 128 bytes may arrive in parts, nothing chooses LL128, and something is chosen.
func TestSplit(t *testing.T) {
	for ranks := 2; ranks <= maxRanks; ranks++ {
		ch := testChooser(ranks)
		for c := range ch.measured {
			ch.measured[c] = []choose.Rule[choice]{{UpTo: 1 << 20, C: choice{kernel: exchangeLL128, channels: 64, threads: exchangeThreads}}}
		}
		without := *ch
		without.split = true
		whole := false
		for _, c := range []op.Collective{op.AllReduce, op.AllGather, op.ReduceScatter, op.Broadcast, op.Reduce, op.AllToAll} {
			for bytes := 1; bytes <= 1<<26; bytes *= 3 {
				whole = whole || kernelTable[ch.choose(c, bytes).kernel].protocol == ll128
				if got := without.choose(c, bytes); got.kernel == noKernel || kernelTable[got.kernel].protocol == ll128 {
					t.Errorf("%d ranks, %v of %d bytes: %v", ranks, c, bytes, got)
				}
			}
		}
		if !whole {
			t.Errorf("%d ranks: LL128 is never chosen", ranks)
		}
	}
}

// A message of few steps is cut evenly: as many steps for each channel, of one length, and none
// longer than the choice's.
func TestEven(t *testing.T) {
	ch := testChooser(4)
	for _, c := range []struct {
		of    op.Collective
		k     choice
		bytes int
		want  int
	}{
		{op.AllReduce, choice{allReduceSimple, 32, 512, 28672}, 4 << 20, 16384}, // 1.14 steps a channel: 2
		{op.AllReduce, choice{allReduceSimple, 32, 512, 28672}, 8 << 20, 22016}, // 2.29: 3
		{op.AllReduce, choice{allReduceSimple, 32, 512, 28672}, 64 << 20, 28672},
		{op.ReduceScatter, choice{allReduceSimple, 32, 512, 28672}, 1 << 20, 16384},
		{op.Reduce, choice{reduceChain, 64, 512, 114688}, 8 << 20, 65536}, // 1.14: 2
		{op.Broadcast, choice{chainSimple, 64, 512, 57344}, 57344 * 64 * evenSteps, 57344},
		{op.Gather, choice{exchangeSimple, 64, 512, 28672}, 2 << 20, 28672}, // 1.14, which only pushes and takes
		{op.Scatter, choice{exchangeSimple, 64, 512, 57344}, 2 << 20, 32768},
		{op.Broadcast, choice{chainSimple, 2, 128, 128}, 1000, 128}, // a chunk shorter than a row
		{op.AllGather, choice{exchangeSimple, 2, 128, 4096}, 0, 4096},
		{op.AllGather, choice{exchangeSimple, 2, 128, 4096}, 1, 512},
	} {
		got := ch.even(c.of, c.k, c.bytes)
		if got != c.want {
			t.Errorf("%v of %d bytes by %v: steps of %d bytes; want %d", c.of, c.bytes, c.k, got, c.want)
		}
	}
}
