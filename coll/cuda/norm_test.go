//go:build cuda && cgo

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// floatAt is element i of memory.
func floatAt(t elem.Type, b []byte, i int) float64 {
	switch t {
	case elem.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	case elem.BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16))
	}
	h := binary.LittleEndian.Uint16(b[2*i:])
	exponent, fraction := int(h>>10&31), float64(h&1023)
	if exponent > 0 {
		fraction += 1024
	}
	x := math.Ldexp(fraction, max(exponent, 1)-25)
	if exponent == 31 {
		x = math.Inf(1)
	}
	return math.Copysign(x, float64(int16(h)))
}

// floats are random numbers between 1/64 and 2, and below 0.
func floats(r *rand.Rand, t elem.Type, n int) []byte {
	b := make([]byte, n*t.Size())
	for i := 0; i < n; {
		for k := range t.Size() {
			b[i*t.Size()+k] = byte(r.Uint32())
		}
		if x := math.Abs(floatAt(t, b, i)); x > 1./64 && x < 2 {
			i++
		}
	}
	return b
}

// A normCase is an AllReduceNorm of all ranks, and what must come out.
type normCase struct {
	t                elem.Type
	rows, row        int
	send             [][]byte // by rank
	residual, weight []byte
	residualAfter    []byte
	after            []float64
}

const normEps = 1e-5

func newNormCase(ranks int, t elem.Type, rows, row int) *normCase {
	r := rand.New(rand.NewPCG(uint64(t), uint64(rows*row)))
	c := &normCase{t: t, rows: rows, row: row, send: make([][]byte, ranks)}
	for i := range c.send {
		c.send[i] = floats(r, t, rows*row)
	}
	c.residual, c.weight = floats(r, t, rows*row), floats(r, t, row)
	sum := make([]byte, len(c.residual))
	colltest.Fold(t, elem.Sum, sum, c.send)
	c.residualAfter = make([]byte, len(sum))
	elem.Reduce(t, elem.Sum, c.residualAfter, sum, c.residual)
	for i := range rows {
		squares := 0.
		for k := range row {
			x := floatAt(t, c.residualAfter, i*row+k)
			squares += x * x
		}
		factor := 1 / math.Sqrt(squares/float64(row)+normEps)
		for k := range row {
			c.after = append(c.after, floatAt(t, c.residualAfter, i*row+k)*factor*floatAt(t, c.weight, k))
		}
	}
	return c
}

// Where a rank's buffers are in its arena. An address that is no multiple of 16 is as good.
func (c *normCase) buffers(g *gpuRank, skew int, inPlace bool) (send, recv, residual, weight coll.Buffer) {
	n := len(c.residual)
	each := (n+guardBytes+64)/256*256 + 512
	send, recv, residual = g.at(guardBytes+skew, n), g.at(each+guardBytes, n), g.at(2*each+guardBytes+skew, n)
	if inPlace {
		recv = send
	}
	return send, recv, residual, g.at(3*each+guardBytes, len(c.weight))
}

// load puts a case into a rank's arena, between guards.
func (c *normCase) load(g *gpuRank, skew int, inPlace bool) error {
	send, _, residual, weight := c.buffers(g, skew, inPlace)
	return g.dev.in(func() error {
		err := driver.Memset8(g.arena, guardByte, int(weight.Addr())+len(c.weight)+guardBytes-int(g.arena))
		for _, m := range []struct {
			b    coll.Buffer
			data []byte
		}{{send, c.send[g.Rank()]}, {residual, c.residual}, {weight, c.weight}} {
			err = errors.Join(err, driver.CopyToDevice(driver.Ptr(m.b.Addr()), m.data))
		}
		return err
	})
}

func (c *normCase) call(g *gpuRank, skew int, inPlace bool) error {
	send, recv, residual, weight := c.buffers(g, skew, inPlace)
	return g.AllReduceNorm(send, recv, c.rows*c.row, c.t, coll.Norm{Residual: residual, Weight: weight, Row: c.row, Eps: normEps})
}

// check compares a rank's results with what they must be: the residual bit for bit, the rest but for
// rounding.
func (c *normCase) check(g *gpuRank, skew int, inPlace bool) error {
	_, recv, residual, _ := c.buffers(g, skew, inPlace)
	n := len(c.residual)
	gotResidual, got := make([]byte, n+2*guardBytes), make([]byte, n+2*guardBytes)
	err := g.dev.in(func() error {
		return errors.Join(driver.CopyFromDevice(gotResidual, driver.Ptr(residual.Addr())-guardBytes), driver.CopyFromDevice(got, driver.Ptr(recv.Addr())-guardBytes))
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("rank %d, %d rows of %d %v by %s", g.Rank(), c.rows, c.row, c.t, g.Chosen())
	for i := range guardBytes {
		if gotResidual[i] != guardByte || gotResidual[guardBytes+n+i] != guardByte || got[i] != guardByte || got[guardBytes+n+i] != guardByte {
			return fmt.Errorf("%s: bytes beside a buffer were overwritten", what)
		}
	}
	gotResidual, got = gotResidual[guardBytes:][:n], got[guardBytes:][:n]
	tolerance := 1. / 256
	switch c.t {
	case elem.Float16:
		tolerance = 1. / 2048
	case elem.Float32:
		tolerance = 1e-6
	}
	for i := range c.rows * c.row {
		if x, want := floatAt(c.t, gotResidual, i), floatAt(c.t, c.residualAfter, i); x != want {
			return fmt.Errorf("%s: element %d of the residual is %v; want %v", what, i, x, want)
		}
		if x, want := floatAt(c.t, got, i), c.after[i]; !(math.Abs(x-want) <= 1.01*tolerance*math.Abs(want)+3e-8) {
			return fmt.Errorf("%s: element %d is %v; want %v", what, i, x, want)
		}
	}
	return nil
}

// normWays are settings, and the kernel that does an AllReduceNorm then, if its message and a row fit.
var normWays = map[string]kernel{
	"":                            noKernel, // any
	"reduce_ll:1:128:0":           normLL,
	"allreduce_simple:3:256:4096": normLocal,
	"copy:8:512:65536":            noKernel,
}

// Sums are added to the residual, and rows normalized, by every kernel, for rows of all lengths.
func TestNorm(t *testing.T) {
	devices := gpuCount(t)
	worlds := map[string]world{"one rank": spread(1, 1), "hosted": spread(2, devices)}
	h := worlds["hosted"]
	h.set = hosted
	worlds["hosted"] = h
	for n := 2; n <= min(max(2, devices), maxRanks); n++ {
		worlds[fmt.Sprintf("%d", n)] = spread(n, devices)
	}
	for name, w := range worlds {
		for algo, want := range normWays {
			if algo != "" && name == "one rank" {
				continue
			}
			t.Run(strings.TrimSuffix(name+" "+algo, " "), func(t *testing.T) {
				w := w
				before := w.set
				w.set = func(k *knob.Knobs) {
					if before != nil {
						before(k)
					}
					if algo != "" {
						k.GPUAlgo = algo
					}
				}
				all := w.open(t)
				used := false
				for i, shape := range [][2]int{{1, 1}, {3, 40}, {1, 999}, {70, 96}, {5, 1023}, {1, 4096}, {1, limit(16384)}, {limit(130), 64}} {
					ty := []elem.Type{elem.BFloat16, elem.Float16, elem.Float32}[i%3]
					c := newNormCase(w.ranks, ty, shape[0], shape[1])
					inPlace, skew := i%2 == 0, i%4*ty.Size()
					each(t, all, func(g *gpuRank) error {
						if err := errors.Join(c.load(g, skew, inPlace), c.call(g, skew, inPlace), g.wait(), g.AsyncError()); err != nil {
							return err
						}
						return c.check(g, skew, inPlace)
					})
					used = used || strings.HasPrefix(all[0].Chosen(), want.String()+"/")
				}
				if hosted := name == "hosted"; !used && want != noKernel && !(hosted && kernelTable[want].protocol == ll128) {
					t.Errorf("no AllReduceNorm was done by %v", want)
				}
			})
		}
	}
}

// In a group, beside other operations, and in a graph that runs many times.
func TestNormGroupsGraphs(t *testing.T) {
	devices := gpuCount(t)
	w := spread(2, devices)
	for _, algo := range []string{"", "allreduce_simple:3:256:4096"} {
		t.Run(algo, func(t *testing.T) {
			lock(t)
			w.set = func(k *knob.Knobs) {
				if algo != "" {
					k.GPUAlgo = algo
				}
			}
			all := w.open(t)
			c := newNormCase(w.ranks, elem.BFloat16, 7, 200)
			sums := 1 << 20
			var group coll.Group
			for _, g := range all {
				if err := c.load(g, 0, false); err != nil {
					t.Fatal(err)
				}
				fillDevice(t, g, sums, 1024, byte(g.Rank()+1))
			}
			group.Start()
			for _, g := range all {
				group.Add(g.Comm)
				err := errors.Join(c.call(g, 0, false),
					g.Comm.AllReduce(g.at(sums, 1024), g.at(sums+2048, 1024), 1024, coll.Uint8, coll.Sum))
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := group.End(); err != nil {
				t.Fatal(err)
			}
			for _, g := range all {
				if err := errors.Join(g.wait(), c.check(g, 0, false)); err != nil {
					t.Fatal(err)
				}
				same(t, g, sums+2048, 1024, 3)
			}
			each(t, all, func(g *gpuRank) error {
				_, _, residual, _ := c.buffers(g, 0, false)
				at, saved := driver.Ptr(residual.Addr()), g.arena+4<<20
				if err := g.dev.in(func() error { return driver.CopyToDevice(saved, c.residual) }); err != nil {
					return err
				}
				exec, err := g.record(1, func() error {
					return errors.Join(driver.CopyAsync(at, saved, len(c.residual), g.stream), c.call(g, 0, false))
				})
				if err != nil {
					return err
				}
				for range 20 {
					if err := g.dev.in(func() error { return exec.Launch(g.stream) }); err != nil {
						return err
					}
				}
				return errors.Join(g.wait(), c.check(g, 0, false), g.dev.in(exec.Destroy))
			})
		})
	}
}

// Where ranks are staged, and of ranks that differ, there is an error.
func TestNormRefused(t *testing.T) {
	w := spread(2, gpuCount(t))
	w.set = staged
	c := newNormCase(w.ranks, elem.BFloat16, 2, 40)
	for _, g := range w.open(t) {
		if err := c.call(g, 0, false); coll.CodeOf(err) != coll.InvalidUsage || g.AsyncError() != nil {
			t.Errorf("staged: %v, %v", err, g.AsyncError())
		}
	}
}

// BenchmarkNorm compares, in turns, graphs of AllReduceNorms of rows of 8192 bf16 with graphs of
// AllReduces of the same length: µs of one of each, and the ratio.
func BenchmarkNorm(b *testing.B) {
	const row, ops = 8192, 100
	devices := gpuCount(b)
	for _, rows := range []int{1, 2, 4, 8, 16, 32, 64} {
		b.Run(fmt.Sprintf("%d rows", rows), func(b *testing.B) {
			all := spread(min(max(2, devices), maxRanks), devices).open(b)
			c := newNormCase(len(all), elem.BFloat16, rows, row)
			var graphs [2][]*driver.GraphExec
			each(b, all, func(g *gpuRank) error { return c.load(g, 0, false) })
			for _, g := range all {
				send, recv, _, _ := c.buffers(g, 0, false)
				for i, do := range []func() error{
					func() error { return c.call(g, 0, false) },
					func() error { return g.Comm.AllReduce(send, recv, rows*row, coll.BFloat16, coll.Sum) },
				} {
					exec, err := g.record(ops, do)
					if err != nil {
						b.Fatal(err)
					}
					graphs[i] = append(graphs[i], exec)
				}
			}
			var took [2][]float64
			for b.Loop() {
				for i := range graphs {
					begin := time.Now()
					for r, g := range all {
						if err := g.dev.in(func() error { return graphs[i][r].Launch(g.stream) }); err != nil {
							b.Fatal(err)
						}
					}
					for _, g := range all {
						if err := g.wait(); err != nil {
							b.Fatal(err)
						}
					}
					took[i] = append(took[i], float64(time.Since(begin).Nanoseconds())/1e3/ops)
				}
			}
			var medians [2]float64
			for i := range took {
				slices.Sort(took[i])
				medians[i] = took[i][len(took[i])/2]
			}
			b.ReportMetric(medians[0], "µs/norm")
			b.ReportMetric(medians[1], "µs/allreduce")
			b.ReportMetric(medians[0]/medians[1], "ratio")
			for _, g := range all {
				for _, some := range graphs {
					_ = g.dev.in(some[g.Rank()].Destroy)
				}
			}
		})
	}
}

// record captures an operation so many times.
func (g *gpuRank) record(times int, do func() error) (exec *driver.GraphExec, err error) {
	err = g.dev.in(func() error {
		if err := g.stream.BeginCapture(); err != nil {
			return err
		}
		for range times {
			if err := do(); err != nil {
				return err
			}
		}
		graph, err := g.stream.EndCapture()
		if err != nil {
			return err
		}
		if exec, err = graph.Instantiate(); err != nil {
			return err
		}
		return graph.Destroy()
	})
	return exec, err
}
