package choose

import (
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/golden"
)

// testEnv is the Env of a communicator: the ranks of each host, the processors of
// the host that has the fewest for its ranks, and NCCL's variables.
func testEnv(t testing.TB, hosts []int, cores int, net Transport, settings ...string) *Env {
	t.Helper()
	k, _, err := knob.Load(settings, func(string) ([]byte, error) { return nil, fs.ErrNotExist })
	if err != nil {
		t.Fatal(err)
	}
	ranks := 0
	for _, n := range hosts {
		ranks += n
	}
	rings, _ := k.RingsFor(ranks)
	e, err := New(k, rings, "")
	if err != nil {
		t.Fatal(err)
	}
	var all []Found
	for h, n := range hosts {
		for range n {
			all = append(all, Found{Process: uint32(h), Host: uint64(h), Procs: uint32(cores), CPUs: [16]uint64{1<<cores - 1}})
		}
	}
	e.Merge(all)
	e.NetCost = net
	return &e
}

func tunerOf(t testing.TB, e *Env) *Tuner {
	t.Helper()
	u, err := e.Tuner()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestChoices: what is chosen on host memory, from which size on.
func TestChoices(t *testing.T) {
	ib := Network{Mbit: 400_000, Devices: 2}.Transport("IB")
	plugin := Network{Latency: 1.5}.Transport("plugin")
	var b strings.Builder
	dump := func(name string, e *Env) {
		fmt.Fprintln(&b, name)
		u := tunerOf(t, e)
		for c := range op.NumCollectives {
			fmt.Fprintf(&b, " %v", c)
			var last Choice
			for n := 1; n <= 1<<36; n *= 2 {
				for _, bytes := range []int{n - 1, n, n + 1, n + n/2} {
					if got := u.Pick(c, bytes); got != last {
						fmt.Fprintf(&b, " %d:%s/%v/%d/%d", bytes, got.Algorithm, got.Protocol, got.Channels, got.Window)
						last = got
					}
				}
			}
			fmt.Fprintln(&b)
		}
	}
	for _, m := range []struct {
		name  string
		hosts []int
		cores int
		net   Transport
	}{
		{"2 ranks", []int{2}, 2, Transport{}}, {"3 ranks", []int{3}, 4, Transport{}}, {"4 ranks", []int{4}, 4, Transport{}}, {"8 ranks", []int{8}, 8, Transport{}},
		{"2 ranks, crowded", []int{2}, 1, Transport{}}, {"4 ranks, crowded", []int{4}, 2, Transport{}}, {"8 ranks, crowded", []int{8}, 2, Transport{}},
		{"5 ranks, not measured", []int{5}, 8, Transport{}}, {"32 ranks", []int{32}, 48, Transport{}},
		{"2 hosts of 1, TCP", []int{1, 1}, 2, Socket}, {"4 hosts of 1, TCP", []int{1, 1, 1, 1}, 2, Socket}, {"2 hosts of 4, TCP", []int{4, 4}, 4, Socket},
		{"3 hosts of 2, 2 and 1, TCP", []int{2, 2, 1}, 4, Socket}, {"2 hosts of 8, InfiniBand", []int{8, 8}, 16, ib}, {"8 hosts of 8, plugin", []int{8, 8, 8, 8, 8, 8, 8, 8}, 16, plugin},
	} {
		dump(m.name, testEnv(t, m.hosts, m.cores, m.net))
	}
	for _, n := range []int{2, 4, 8} {
		dump(fmt.Sprintf("%d ranks, no shared memory", n), testEnv(t, []int{n}, 8, Socket, "NCCL_SHM_DISABLE=1"))
	}
	for _, s := range []string{
		"NCCL_ALGO=allreduce:tree;allgather:ring", "NCCL_ALGO=^one-shot", "NCCL_ALGO=allreduce:collnetdirect", "NCCL_PROTO=LL", "NCCL_PROTO=^LL", "NCCL_MIN_NCHANNELS=2 NCCL_MAX_NCHANNELS=3", "NCCL_MAX_NCHANNELS=1",
		"NCCL_BUFFSIZE=65536", "NCCL_SINGLE_RING_THRESHOLD=5000 NCCL_MIN_NCHANNELS=4", "NCCL_LL_THRESHOLD=100000", "NCCL_RINGS=0_1_2_3|0_2_1_3", "ASSAY_TUNING=testdata/own.json",
	} {
		dump(s, fourLocal(t, fields(s)...))
	}
	golden.Check(t, "choices.golden", b.String())
}

// TestSameEverywhere: costs are the same to the last bit on every processor and with
// every compiler, else ranks of several kinds would differ.
func TestSameEverywhere(t *testing.T) {
	h := fnv.New64a()
	for _, e := range []*Env{testEnv(t, []int{2}, 2, Transport{}), testEnv(t, []int{8}, 3, Transport{}), twoNodes(t), testEnv(t, []int{3, 3, 1}, 2, Network{Mbit: 123_456, Latency: 1.7}.Transport("IB"), "NCCL_MIN_NCHANNELS=3")} {
		u := tunerOf(t, e)
		for c := range op.NumCollectives {
			for n := int64(1); n < 1<<36; n *= 3 {
				u.candidates(c, u.series(c), n, n, func(k candidate) { fmt.Fprintf(h, "%v %x\n", k.Choice, math.Float64bits(k.seconds)) })
			}
		}
	}
	if got, want := h.Sum64(), uint64(0xb96559ad238141f4); got != want {
		t.Errorf("the costs have the sum %#x; want %#x", got, want)
	}
}
