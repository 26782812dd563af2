package coll

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/knob"
)

// TestSameBits: with ASSAY_SAME_BITS=1 the bits of a reduction are those of the ranks' data in the
// order of the ranks, whatever its length, and whatever way the messages take.
func TestSameBits(t *testing.T) {
	const most = 60_000 // elements of the longest vector
	lengths := []int{1, 5, 999, 20_001, most}
	for _, tr := range transports {
		for _, way := range []struct {
			name string
			set  func(k *knob.Knobs)
		}{
			{"as chosen", func(*knob.Knobs) {}},
			{"two-shot", func(k *knob.Knobs) { k.Algo = algoOf(t, "allreduce:two-shot;reduce:two-shot") }},
			{"one-shot", func(k *knob.Knobs) { k.Algo = algoOf(t, "allreduce:one-shot;reduce:one-shot") }},
			{"short messages", func(k *knob.Knobs) { k.BuffSize = 16 << 10 }},
			{"3 channels", func(k *knob.Knobs) { k.MinChannels, k.MaxChannels = 3, 3 }},
		} {
			for _, n := range []int{2, 3, 5} {
				if testing.Short() && n != 3 && way.name != "as chosen" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", tr.name, way.name, n), func(t *testing.T) {
					data := unordered(n, most)
					withTransport(t, n, func(r int, k *knob.Knobs) { tr.set(r, k); way.set(k); k.SameBits = true }, func(c *Comm) error {
						return sameBits(c, data, lengths)
					})
				})
			}
		}
	}
}

// algoOf parses a value of NCCL_ALGO.
func algoOf(t *testing.T, s string) knob.Filter {
	t.Helper()
	k, _, err := knob.Load([]string{"NCCL_ALGO=" + s}, func(string) ([]byte, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	return k.Algo
}

// unordered are vectors of n ranks whose sums depend on the order in which they are added.
func unordered(n, count int) [][]float32 {
	r := rand.New(rand.NewPCG(7, uint64(n)))
	all := make([][]float32, n)
	for i := range all {
		for range count {
			all[i] = append(all[i], float32(math.Ldexp(r.Float64()-0.5, r.IntN(24)-12)))
		}
	}
	return all
}

// sameBits compares what a rank gets with sums in the order of the ranks.
func sameBits(c *Comm, data [][]float32, lengths []int) error {
	n := c.Size()
	for _, typ := range []Type{Float32, BFloat16} {
		size := typ.Size()
		in := make([][]byte, n)
		for r := range in {
			in[r] = encode(typ, data[r])
		}
		want := bytes.Clone(in[0])
		for r := 1; r < n; r++ {
			elem.Reduce(typ, Sum, want, want, in[r])
		}
		mine := in[c.Rank()]
		for _, count := range lengths {
			got := make([]byte, count*size)
			differs := func(what string, from int) error {
				if w := want[from*size : from*size+len(got)]; !bytes.Equal(got, w) {
					return fmt.Errorf("rank %d: %s of %d %v: other bits than in the order of the ranks", c.Rank(), what, count, typ)
				}
				return nil
			}
			if err := c.AllReduce(Bytes(mine[:count*size]), Bytes(got), count, typ, Sum); err != nil {
				return err
			}
			if err := differs("AllReduce", 0); err != nil {
				return err
			}
			copy(got, mine)
			if err := c.AllReduce(Bytes(got), Bytes(got), count, typ, Sum); err != nil {
				return err
			}
			if err := differs("AllReduce in place", 0); err != nil {
				return err
			}
			root := count % n
			if err := c.Reduce(Bytes(mine[:count*size]), Bytes(got), count, typ, Sum, root); err != nil {
				return err
			}
			if c.Rank() == root {
				if err := differs("Reduce", 0); err != nil {
					return err
				}
			}
			if count*n > len(mine)/size {
				continue
			}
			if err := c.ReduceScatter(Bytes(mine[:count*n*size]), Bytes(got), count, typ, Sum); err != nil {
				return err
			}
			if err := differs("ReduceScatter", c.Rank()*count); err != nil {
				return err
			}
		}
	}
	return nil
}

// encode returns values as elements of a type.
func encode(typ Type, values []float32) []byte {
	var out []byte
	for _, v := range values {
		b := math.Float32bits(v)
		if typ == BFloat16 {
			out = append(out, byte(b>>16), byte(b>>24)) // toward zero, which is as good here
			continue
		}
		out = append(out, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
	}
	return out
}
