package estimate

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

// says compares a value with as many digits after the point as the seed gives, cut
// or rounded: the seed does either.
func says(got float64, text string) bool {
	want, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	_, decimals, _ := strings.Cut(text, ".")
	p := math.Pow10(len(decimals))
	return math.Round(got*p)/p == want || math.Floor(got*p)/p == want
}

func rate(t testing.TB, s string) Rate {
	t.Helper()
	r, err := ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSeed: the worked examples of seed 003, with its own figures.
func TestSeed(t *testing.T) {
	// A model of 2B parameters, gradients in fp32, sequences of 2048 tokens, two a
	// GPU, on A100 at half of 312 TFLOP/s.
	node := Job{Params: 2e9, Bytes: 4, GPUs: 8, PerNode: 8, Intra: rate(t, "300GB/s"), FLOPS: 156e12, Sequence: 2048, Batch: 16, Recompute: true}
	h100 := node
	h100.Intra = rate(t, "450GB/s")
	four := node
	four.GPUs, four.Batch, four.Inter = 32, 64, rate(t, "200Gb/s") // as much for each GPU to compute
	fast := four
	fast.Inter = rate(t, "400Gb/s")
	real := fast
	real.Efficiency = 0.8
	twice := node
	twice.GPUs = 2
	many := node
	many.GPUs, many.PerNode = 64, 64
	big := Job{Params: 80e9, Bytes: 4, GPUs: 16, PerNode: 8, Intra: rate(t, "300GB/s"), Inter: rate(t, "200Gb/s")}
	bigger := big
	bigger.Inter = rate(t, "1600Gb/s")
	plain := node
	plain.Recompute = false

	of := func(j Job) Estimate {
		t.Helper()
		e, err := Of(j)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, tt := range []struct {
		quote string
		got   float64
		want  string
	}{
		{"80B parameters in fp32: so you need to send 80*4 = 320GB", of(big).ModelBytes / 1e9, "320"},
		{"at 200Gbps it will take 12.8 seconds", of(big).OnceInter, "12.8"},
		{"at 1600Gbps only 1.6 seconds", of(bigger).OnceInter, "1.6"},
		{"18 bytes per parameter: 36 GB", of(node).StateBytes / 1e9, "36"},
		{"2B parameters, grads in fp32: 8GB on every iteration", of(node).ModelBytes / 1e9, "8"},
		{"we need to send 8GB twice: 16GB", of(node).Ways[0].Bytes / 1e9, "16"},
		{"to be exact 2*(n-1)/n: 1 for n=2", of(twice).Ways[1].Bytes / of(twice).ModelBytes, "1"},
		{"1.75 for n=8", of(node).Ways[1].Bytes / of(node).ModelBytes, "1.75"},
		{"very close to 2 at n=64", of(many).Ways[1].Bytes / of(many).ModelBytes, "1.97"},
		{"A100 @ 300GBps: 16/300 = 0.053 secs", of(node).Ways[0].Seconds, "0.053"},
		{"H100 @ 450GBps: 16/450 = 0.035 secs", of(h100).Ways[0].Seconds, "0.035"},
		{"2*4*2*2048*16/(8*1e3) = 65.536 TFLOP", of(node).FLOPPerGPU / 1e12, "65.536"},
		{"without recomputation replace 4 with 3", of(plain).FLOPPerGPU / 1e12, "49.152"},
		{"156TFLOPS: 0.42 secs", of(node).ComputeSeconds, "0.42"},
		{"on four nodes 16GB is 128Gb, at 200Gbps 0.64 seconds", of(four).Ways[0].Seconds, "0.64"},
		{"compute is still 0.42", of(four).ComputeSeconds, "0.42"},
		{"the table has 0.027 for one node: 8GB once at 300GBps", of(node).OnceIntra, "0.027"},
		{"400Gbps: 0.32 secs", of(fast).Ways[0].Seconds, "0.32"},
		{"400Gbps are about 320 (80%): 0.4 secs", of(real).Ways[0].Seconds, "0.4"},
	} {
		if !says(tt.got, tt.want) {
			t.Errorf("%s: %g; want %s", tt.quote, tt.got, tt.want)
		}
	}
	for _, tt := range []struct {
		quote string
		e     Estimate
		hides bool
	}{
		{"1 node: comms is a bottleneck: no", of(node), true},
		{"4 nodes: comms is a bottleneck: yes", of(four), false},
		{"400Gbps: faster than the compute", of(fast), true},
	} {
		for _, w := range tt.e.Ways {
			if w.Hides == nil || *w.Hides != tt.hides {
				t.Errorf("%s: %s: %+v", tt.quote, w.Name, w)
			}
		}
	}
	if w := of(four).Ways[0]; w.Bound != "inter" || math.Abs(w.NeedBytes*8/1e9-304.7) > 0.1 {
		t.Errorf("hiding 128 Gb in 0.42 s takes 304.7 Gb/s, not %+v", w)
	}
}

// TestWays: against hand-made figures. 4 nodes of 8, 100 GB, 100 GB/s within and
// 10 GB/s between nodes.
func TestWays(t *testing.T) {
	j := Job{Params: 100e9, Bytes: 1, GPUs: 32, PerNode: 8, Intra: 100e9, Inter: 10e9}
	for _, tt := range []struct {
		change                       func(*Job)
		thumb, ring, hier            float64 // seconds
		ringBytes, hierBytes, states float64 // GB a GPU
	}{
		{func(*Job) {}, 20, 2 * 31. / 32 * 10, 2*7./8 + 2*3./4*10, 2 * 31. / 32 * 100, 2*7./8*100 + 2*3./4*100/8, 1800},
		{func(j *Job) { j.Strategy = ZeRO1 }, 20, 2 * 31. / 32 * 10, 2*7./8 + 2*3./4*10, 2 * 31. / 32 * 100, 2*7./8*100 + 2*3./4*100/8, 0},
		{func(j *Job) { j.Strategy = FSDP }, 30, 3 * 31. / 32 * 10, 3*7./8 + 3*3./4*10, 3 * 31. / 32 * 100, 3*7./8*100 + 3*3./4*100/8, 1800. / 32},
		{func(j *Job) { j.Efficiency = 0.5 }, 40, 2 * 31. / 32 * 20, 2*7./4 + 2*3./4*20, 2 * 31. / 32 * 100, 2*7./8*100 + 2*3./4*100/8, 1800},
		{func(j *Job) { j.GPUs = 8 }, 2, 2 * 7. / 8, 2 * 7. / 8, 2 * 7. / 8 * 100, 2 * 7. / 8 * 100, 1800},
		{func(j *Job) { j.GPUs, j.PerNode = 4, 1 }, 20, 2 * 3. / 4 * 10, 2 * 3. / 4 * 10, 2 * 3. / 4 * 100, 2 * 3. / 4 * 100, 1800},
		{func(j *Job) { j.GPUs = 2; j.Inter = 0 }, 2, 1, 1, 100, 100, 1800}, // fewer than a node has
	} {
		own := j
		tt.change(&own)
		e, err := Of(own)
		if err != nil || len(e.Ways) != 3 {
			t.Errorf("%+v: %d ways, %v", own, len(e.Ways), err)
			continue
		}
		got := []float64{e.Ways[0].Seconds, e.Ways[1].Seconds, e.Ways[2].Seconds, e.Ways[1].Bytes / 1e9, e.Ways[2].Bytes / 1e9, e.StateBytes / 1e9}
		for i, want := range []float64{tt.thumb, tt.ring, tt.hier, tt.ringBytes, tt.hierBytes, tt.states} {
			if math.Abs(got[i]-want) > 1e-9*want {
				t.Errorf("%+v: number %d is %g; want %g", own, i, got[i], want)
			}
		}
	}
	e, err := Of(Job{Params: 1e9, Bytes: 2, GPUs: 1, PerNode: 8, FLOPS: 1e12, Sequence: 1000, Batch: 1})
	if err != nil || len(e.Ways) != 0 || e.ComputeSeconds != 6 || math.Abs(e.ComputeTokens-1000./6) > 1e-9 {
		t.Errorf("one GPU: %+v, %v", e, err)
	}
}

// TestTokens: at the same time the slower of the two decides, one by one their
// sum.
func TestTokens(t *testing.T) {
	e, err := Of(Job{Params: 1e9, Bytes: 4, GPUs: 2, PerNode: 2, Intra: 1e9, FLOPS: 1e12, Sequence: 1000, Batch: 4})
	if err != nil || e.ComputeSeconds != 12 {
		t.Fatalf("%+v, %v", e, err)
	}
	w := e.Ways[1] // 4 s
	if w.Seconds != 4 || w.Tokens != 4000./12 || w.TokensSum != 4000./16 || math.Abs(w.Ratio-1./3) > 1e-12 || !*w.Hides {
		t.Errorf("%+v", w)
	}
}

func TestRefused(t *testing.T) {
	good := Job{Params: 2e9, Bytes: 4, GPUs: 32, PerNode: 8, Intra: 300e9, Inter: 25e9, FLOPS: 1e12, Sequence: 1, Batch: 1}
	if _, err := Of(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Job){
		"parameters: 0":               func(j *Job) { j.Params = 0 },
		"parameters: NaN":             func(j *Job) { j.Params = math.NaN() },
		"parameters: +Inf":            func(j *Job) { j.Params = math.Inf(1) },
		"bytes of a parameter":        func(j *Job) { j.Bytes = -1 },
		"GPUs: 0":                     func(j *Job) { j.GPUs = 0 },
		"GPUs of a node: -8":          func(j *Job) { j.PerNode = -8 },
		"all nodes must have as many": func(j *Job) { j.GPUs = 30 },
		"give the rate within it":     func(j *Job) { j.Intra = 0 },
		"give the rate between them":  func(j *Job) { j.Inter = 0 },
		"rate between nodes: 1e-300":  func(j *Job) { j.Inter = 1e-300 },
		"rate between nodes: -1":      func(j *Job) { j.Inter = -1 },
		"efficiency 1.1":              func(j *Job) { j.Efficiency = 1.1 },
		"needs both":                  func(j *Job) { j.Batch = 0 },
		"FLOP/s":                      func(j *Job) { j.FLOPS = -1 },
		"tokens of a sequence":        func(j *Job) { j.Sequence = -1 },
	} {
		j := good
		change(&j)
		if _, err := Of(j); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]Rate{
		"300GB/s": 300e9, "300 GB/s": 300e9, "300GBps": 300e9, "200Gb/s": 25e9, "200Gbps": 25e9, "200Gbit/s": 25e9, "8x200Gb/s": 200e9, "8 x 200 Gb/s": 200e9,
		"1.6Tb/s": 200e9, "100MB/s": 1e8, "0.5TB/s": 5e11,
	} {
		if got, err := ParseRate(in); err != nil || math.Abs(float64(got-want)) > 1 {
			t.Errorf("ParseRate(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "not a rate", "300": "not a rate", "GB/s": "not a rate", "300gb/s": "GB/s for bytes", "300GB": "want one of", "300GiB/s": "want one of",
		"0GB/s": "more than 0", "-1GB/s": "not a rate", "1.2.3GB/s": "not a number", "x200Gb/s": "number of links", "0x200Gb/s": "number of links", "8x": "not a rate", "2x2x2GB/s": "want one of",
		"1000000000000000TB/s": "more than any link", "1e3GB/s": "want one of",
	} {
		if got, err := ParseRate(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRate(%q) = %v, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]float64{"2e9": 2e9, "2B": 2e9, "2b": 2e9, "350M": 350e6, "1.8T": 1.8e12, "7": 7} {
		if got, err := ParseParams(in); err != nil || got != want {
			t.Errorf("ParseParams(%q) = %g, %v; want %g", in, got, err, want)
		}
	}
	for _, in := range []string{"", "B", "-2B", "0", "0.5", "nan", "inf", "1e99", "0x1p9", "1_000", "2 B", "2BB", "2G"} {
		if got, err := ParseParams(in); err == nil {
			t.Errorf("ParseParams(%q) = %g; want an error", in, got)
		}
	}
	if b, err := ParseDType("BF16"); err != nil || b != 2 {
		t.Errorf("ParseDType(BF16) = %g, %v", b, err)
	}
	if _, err := ParseDType("int8"); err == nil || !strings.Contains(err.Error(), "bf16, fp16") {
		t.Errorf("ParseDType(int8) = %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"300GB/s", "8x200Gb/s", "1.6Tb/s", "2e9", "1.8T", ".GB/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := ParseRate(s); (err == nil) != (r > 0 && r <= maxQuantity) {
			t.Errorf("ParseRate(%q) = %v, %v", s, r, err)
		}
		if n, err := ParseParams(s); (err == nil) != (n >= 1 && n <= maxQuantity) {
			t.Errorf("ParseParams(%q) = %g, %v", s, n, err)
		}
	})
}

// FuzzOf: what is not refused has finite times, and a faster link never takes
// longer.
func FuzzOf(f *testing.F) {
	f.Add(2e9, 4.0, 32, 8, 300e9, 25e9, 1.5e14, 2048, 64, byte(0))
	f.Add(1.0, 1.0, 1, 1, 0.0, 0.0, 0.0, 0, 0, byte(3))
	f.Fuzz(func(t *testing.T, params, bytes float64, gpus, per int, intra, inter, flops float64, seq, batch int, strategy byte) {
		all := Strategies()
		j := Job{
			Params: params, Bytes: bytes, GPUs: gpus, PerNode: per, Intra: Rate(intra), Inter: Rate(inter), FLOPS: flops,
			Sequence: seq, Batch: batch, Strategy: Strategy(all[int(strategy)%len(all)]),
		}
		e, err := Of(j)
		if err != nil {
			return
		}
		j.Intra, j.Inter = 2*j.Intra, 2*j.Inter
		faster, err := Of(j)
		if err != nil {
			return // it may be beyond the largest rate
		}
		for i, w := range e.Ways {
			if math.IsNaN(w.Seconds) || math.IsInf(w.Seconds, 0) || w.Seconds < 0 || faster.Ways[i].Seconds > w.Seconds {
				t.Errorf("%+v: %+v; with twice the rates %+v", j, w, faster.Ways[i])
			}
		}
	})
}
