package hunt

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// A cluster is a simulated one: nodes on switches of two tiers, with rails, noise
// and faults.
type cluster struct {
	n       int
	rng     *rand.Rand
	noise   float64 // of a measurement, standard deviation of the logarithm
	outlier float64 // share of measurements that something else disturbs
	resends float64 // share that healthy connections send again, on average
	bias    []float64
	at      []int // switch
	faults  map[int]fault
	uplink  map[[2]int]float64 // share of its rate that the path from one switch to another has; -1: any
	dieAt   map[int]int        // node → round
	silent  bool               // who dies is not told
	round   int
	second  float64                                                // when the round begins
	window  float64                                                // how much of it is measured
	outside func(from, to int, f *Flow, s *Sample, rng *rand.Rand) // what else happens to a direction
}

// A fault is what a node does to what it sends and receives.
type fault struct {
	send, receive func(rng *rand.Rand) (factor, resent float64)
}

func times(f float64) func(*rand.Rand) (float64, float64) {
	return func(*rand.Rand) (float64, float64) { return f, 0 }
}

// lossRDMA is a reliable connection that goes back to the lost packet: with 2 %
// loss and a window of 32 packets, each loss throws away what is on its way, and
// now and then the last packet is lost, which costs a timeout.
func lossRDMA(rng *rand.Rand) (float64, float64) {
	const loss, window, bursts = 0.02, 32, 40
	sent := 0.0
	for range bursts {
		sent++
		if rng.Float64() < 1-math.Pow(1-loss, window) {
			sent += rng.Float64() // from where it was lost
		}
		if rng.Float64() < loss {
			sent += 4 * rng.ExpFloat64() // the timeout, in bursts
		}
	}
	return bursts / sent, 0.02 * (1 + 0.1*rng.NormFloat64())
}

// lossQuiet is TCP's over a short way that is not fast: it makes up for what is
// lost, but for a few per cent.
func lossQuiet(rng *rand.Rand) (float64, float64) {
	return 0.94, 0.02 * (1 + 0.1*rng.NormFloat64())
}

// lossTCP is the square-root law (Mathis et al., 1997), around which single
// measurements scatter widely: with 2 % loss a connection of 100 µs gets about
// a tenth of a fast link.
func lossTCP(rng *rand.Rand) (float64, float64) {
	return 0.1 * math.Exp(0.4*rng.NormFloat64()), 0.02 * (1 + 0.1*rng.NormFloat64())
}

func newCluster(n int, seed uint64) *cluster {
	c := &cluster{
		n: n, rng: rand.New(rand.NewPCG(seed, 99)), noise: 0.03, outlier: 0.005,
		faults: map[int]fault{}, uplink: map[[2]int]float64{}, dieAt: map[int]int{},
	}
	per := 4
	for per*per < n {
		per *= 2
	}
	for i := range n {
		c.bias = append(c.bias, math.Exp(0.007*c.rng.NormFloat64()))
		c.at = append(c.at, i/per)
	}
	return c
}

// share is the rate of a path that several flows of a round share, each of which
// could use 1.
func (c *cluster) share(from, to int, crossing map[[2]int]int) float64 {
	if from == to {
		return 1
	}
	got := 0.98 // another tier
	for _, key := range [][2]int{{from, to}, {from, -1}, {-1, to}} {
		if rate, ok := c.uplink[key]; ok {
			// It is made for as many flows as a switch has nodes.
			nodes := 0
			for _, s := range c.at {
				if s == max(from, 0) {
					nodes++
				}
			}
			got = min(got, rate*float64(nodes)/float64(crossing[key]))
		}
	}
	return got
}

func (c *cluster) flow(from, to int, together float64, crossing map[[2]int]int) Flow {
	rate, resent := c.bias[from], c.resends*c.rng.ExpFloat64()
	rate = min(rate, c.bias[to])
	for _, f := range []func(*rand.Rand) (float64, float64){c.faults[from].send, c.faults[to].receive} {
		if f != nil {
			factor, r := f(c.rng)
			rate, resent = rate*factor, resent+r
		}
	}
	rate *= c.share(c.at[from], c.at[to], crossing)
	rate *= math.Exp(c.noise * (0.6*together + 0.8*c.rng.NormFloat64()))
	if c.rng.Float64() < c.outlier {
		rate *= 0.3 + 0.6*c.rng.Float64()
	}
	return Flow{Value: 50e9 * rate, Resent: resent}
}

func (c *cluster) probe(ctx context.Context, groups [][]int, quiet bool) ([]Sample, error) {
	c.round++
	crossing := map[[2]int]int{}
	for _, g := range groups {
		if len(g) == 2 && c.at[g[0]] != c.at[g[1]] {
			for _, d := range [][2]int{{c.at[g[0]], c.at[g[1]]}, {c.at[g[1]], c.at[g[0]]}} {
				crossing[d]++
				crossing[[2]int{d[0], -1}]++
				crossing[[2]int{-1, d[1]}]++
			}
		}
	}
	c.second += c.window + 0.2
	c.window = 0.5
	pings := 60
	if quiet {
		c.window, pings = 2, 2000
	}
	out := make([]Sample, len(groups))
	for i, g := range groups {
		for _, node := range g {
			if at, ok := c.dieAt[node]; ok && c.round >= at {
				out[i].Err = errors.New("connection reset by peer")
				if !c.silent {
					out[i].Dead = append(out[i].Dead, node)
				}
			}
		}
		if out[i].Err != nil {
			continue
		}
		together := c.rng.NormFloat64()
		if len(g) > 2 {
			// A ring is as fast as the slowest of its parts.
			least := Flow{Value: math.Inf(1)}
			for k, node := range g {
				if f := c.flow(node, g[(k+1)%len(g)], together, crossing); f.Value < least.Value {
					least = f
				}
			}
			out[i].Flow = least
			continue
		}
		out[i].Flow = c.flow(g[0], g[1], together, crossing)
		back := c.flow(g[1], g[0], together, crossing)
		out[i].Back, out[i].RTT = &back, time.Duration(100e3*math.Exp(0.1*c.rng.NormFloat64()))
		out[i].Tail = out[i].RTT * 2
		for k, f := range []*Flow{&out[i].Flow, out[i].Back} {
			f.Packets = Packets{Sent: pings, Late: time.Duration(1e6 * c.rng.ExpFloat64())}
			if c.rng.Float64() < c.outlier {
				f.Packets.Lost, f.Packets.Late = 1, 20*time.Millisecond
			}
			if c.outside != nil {
				c.outside(g[k], g[1-k], f, &out[i], c.rng)
			}
		}
		if quiet {
			out[i].Flow.Value, back.Value = 0, 0
		}
	}
	return out, nil
}
