package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
)

// cost is a machine's, roughly: microseconds.
func cost(k choice, bytes int) float64 {
	n, p := float64(bytes), float64(k.channels)
	switch {
	case k.kernel == copies:
		return 20 + n/400e3 + float64(k.chunk)/400e3
	case kernelTable[k.kernel].protocol == simple:
		return 9 + n/min(380e3, p*13e3) + float64(k.chunk)/40e3 + float64(64<<10)/float64(k.chunk)
	}
	latency, rate := 2.0, 1e3*float64(k.threads)/128
	if kernelTable[k.kernel].protocol == ll128 {
		latency, rate = 2.6, 3*rate
	}
	if k.kernel == allReduceLL || k.kernel == allReduceLL128 {
		latency, rate = 2*latency, 2*rate
	}
	return latency + p/100 + float64(k.threads)/1000 + n/min(200e3, p*rate)
}

// powers are the sizes that are tuned.
func powers(from, to int) (out []int) {
	for n := from; n <= to; n *= 2 {
		out = append(out, n)
	}
	return out
}

// TestTune: what is found is about as fast as whatever there is at each size,
// can be used, and is found in little time.
func TestTune(t *testing.T) {
	sizes := powers(8, 1<<30)
	for _, ranks := range []int{2, 8} {
		total, calls := 0.0, 0
		for c := range op.NumCollectives {
			ch := testChooser(ranks)
			noise := rand.New(rand.NewPCG(1, uint64(c)))
			best := map[int]float64{}
			rules, err := ch.tune(c, sizes, func(name string, bytes int) (float64, error) {
				k, err := parseChoice(name)
				got := ch.choose(c, bytes)
				if err != nil || got != ch.shape(c, k, bytes) {
					t.Fatalf("%v of %d bytes: %v is in force, not %s (%v)", c, bytes, got, name, err)
				}
				us := cost(got, bytes)
				if best[bytes] == 0 || us < best[bytes] {
					best[bytes] = us
				}
				calls++
				total += 6*us*float64(min(40, max(2, (64<<20)/bytes))) + 3000 // as the harness measures, and makes a graph
				return us * (1 + noise.Float64()/100), nil
			})
			if err != nil || ch.force != (choice{}) {
				t.Fatalf("%v, force %v", err, ch.force)
			}
			m := new(choose.Tables)
			m.At(choose.Place{GPU: "H", Ranks: ranks, Collective: c.String()}).Rows = rules
			if _, err := m.Bytes(); err != nil {
				t.Fatal(err)
			}
			if rules[len(rules)-1].Took[0][0] != 0 || len(rules) < 3 || len(rules) > 14 {
				t.Errorf("%v: %+v", c, rules)
			}
			if ch.measured, err = choose.GPURules(m, "H", ranks, choiceFor); err != nil {
				t.Fatal(err)
			}
			for _, n := range sizes {
				if got := ch.choose(c, n); cost(got, n) > 1.06*best[n] {
					t.Errorf("%v of %d bytes among %d ranks: %v takes %.1f us, another one %.1f", c, n, ranks, got, cost(got, n), best[n])
				}
			}
		}
		if total > 65e6 {
			t.Errorf("%d ranks: %d measurements take %.0f s", ranks, calls, total/1e6)
		}
		t.Logf("%d ranks: %d measurements, %.0f s", ranks, calls, total/1e6)
	}
}

// TestTuneSkips: what cannot be done is left out, an error ends it, and
// differences that may be noise change no choice.
func TestTuneSkips(t *testing.T) {
	ch := testChooser(2)
	ch.force = choice{reduceLL, 1, 32, 0}
	rules, err := ch.tune(op.AllReduce, powers(4<<20, 1<<30), func(name string, bytes int) (float64, error) {
		if k, _ := parseChoice(name); k.kernel != copies && k.kernel != allReduceSimple {
			return 0, nil
		} else if k.kernel == copies && k.chunk != 16<<20 {
			return 0, nil
		}
		return float64(bytes) / 1000 * (1 + rand.Float64()/100), nil
	})
	if err != nil || len(rules) > 2 || ch.force.kernel != reduceLL {
		t.Errorf("%+v, %v, force %v", rules, err, ch.force)
	}
	if rules, err := ch.tune(op.AllGather, powers(8, 64), func(string, int) (float64, error) { return 0, nil }); len(rules) > 0 || err != nil {
		t.Errorf("nothing works: %+v, %v", rules, err)
	}
	stop := errors.New("the device fell off the bus")
	n := 0
	_, err = ch.tune(op.Reduce, powers(8, 64), func(string, int) (float64, error) {
		if n++; n == 3 {
			return 0, stop
		}
		return 1, nil
	})
	if !errors.Is(err, stop) || n != 3 {
		t.Errorf("%v after %d", err, n)
	}
}

// TestTuneObeys: settings count for what is tried.
func TestTuneObeys(t *testing.T) {
	ch := testChooser(2)
	ch.env.MaxChannels, ch.env.Proto = 4, proto(t, "LL")
	_, err := ch.tune(op.AllReduce, powers(8, 16<<10), func(name string, bytes int) (float64, error) {
		if k, err := parseChoice(name); err != nil || k.channels > 4 || kernelTable[k.kernel].protocol != ll {
			return 0, fmt.Errorf("tried %s, %v", name, err)
		}
		return 1, nil
	})
	if err != nil {
		t.Error(err)
	}
}
