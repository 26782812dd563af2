package choose

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/tuning"
	"github.com/assay-hpc/assay/internal/golden"
)

// testEnv is the Env of a communicator: the ranks of each host, the processors of
// the host that has the fewest for its ranks, and NCCL's variables.
func testEnv(t testing.TB, hosts []int, cores int, net tuning.Transport, settings ...string) *Env {
	t.Helper()
	k, _, err := knob.Load(settings, func(string) ([]byte, error) { return nil, fs.ErrNotExist })
	if err != nil {
		t.Fatal(err)
	}
	ranks := 0
	for _, n := range hosts {
		ranks += n
	}
	rings, _, err := k.RingsFor(ranks)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(k, rings, "")
	if err != nil {
		t.Fatal(err)
	}
	var all []Found
	for h, n := range hosts {
		for range n {
			all = append(all, Found{PID: uint32(h), Host: uint64(h), Procs: uint32(cores), CPUs: [16]uint64{1<<cores - 1}})
		}
	}
	e.Merge(all)
	e.NetCost = net
	return &e
}

func pickerOf(t testing.TB, e *Env) Picker {
	t.Helper()
	rules, err := e.Rules()
	if err != nil {
		t.Fatal(err)
	}
	ranks := 0
	for _, h := range e.Hosts {
		ranks += len(h)
	}
	p, err := NewPicker(rules, ranks)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestChoices: what is chosen on host memory, from which size on.
func TestChoices(t *testing.T) {
	ib := tuning.Network{Mbit: 400_000, Devices: 2}.Transport("IB")
	plugin := tuning.Network{Latency: 1.5}.Transport("plugin")
	var b strings.Builder
	dump := func(name string, e *Env) {
		fmt.Fprintln(&b, name)
		p := pickerOf(t, e)
		for c := range op.NumCollectives {
			fmt.Fprintf(&b, " %v", c)
			var last tuning.Choice
			for n := 1; n <= 1<<36; n *= 2 {
				for _, bytes := range []int{n - 1, n, n + 1, n + n/2} {
					if got := p.Pick(c, bytes); got != last {
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
		net   tuning.Transport
	}{
		{"2 ranks", []int{2}, 2, tuning.Transport{}}, {"3 ranks", []int{3}, 4, tuning.Transport{}}, {"4 ranks", []int{4}, 4, tuning.Transport{}}, {"8 ranks", []int{8}, 8, tuning.Transport{}},
		{"2 ranks, crowded", []int{2}, 1, tuning.Transport{}}, {"4 ranks, crowded", []int{4}, 2, tuning.Transport{}}, {"8 ranks, crowded", []int{8}, 2, tuning.Transport{}},
		{"5 ranks, not measured", []int{5}, 8, tuning.Transport{}}, {"32 ranks", []int{32}, 48, tuning.Transport{}},
		{"2 hosts of 1, TCP", []int{1, 1}, 2, tuning.Socket}, {"4 hosts of 1, TCP", []int{1, 1, 1, 1}, 2, tuning.Socket}, {"2 hosts of 4, TCP", []int{4, 4}, 4, tuning.Socket},
		{"3 hosts of 2, 2 and 1, TCP", []int{2, 2, 1}, 4, tuning.Socket}, {"2 hosts of 8, InfiniBand", []int{8, 8}, 16, ib}, {"8 hosts of 8, plugin", []int{8, 8, 8, 8, 8, 8, 8, 8}, 16, plugin},
	} {
		dump(m.name, testEnv(t, m.hosts, m.cores, m.net))
	}
	for _, n := range []int{2, 4, 8} {
		dump(fmt.Sprintf("%d ranks, no shared memory", n), testEnv(t, []int{n}, 8, tuning.Socket, "NCCL_SHM_DISABLE=1"))
	}
	for _, s := range []string{
		"NCCL_ALGO=allreduce:tree;allgather:ring", "NCCL_ALGO=^one-shot", "NCCL_ALGO=allreduce:collnetdirect", "NCCL_PROTO=LL", "NCCL_PROTO=^LL", "NCCL_MIN_NCHANNELS=2 NCCL_MAX_NCHANNELS=3", "NCCL_MAX_NCHANNELS=1",
		"NCCL_BUFFSIZE=65536", "NCCL_SINGLE_RING_THRESHOLD=5000 NCCL_MIN_NCHANNELS=4", "NCCL_LL_THRESHOLD=100000", "NCCL_RINGS=0_1_2_3|0_2_1_3", "ASSAY_TUNING=testdata/own.json",
	} {
		settings := strings.Fields(s)
		for i := range settings {
			settings[i] = strings.ReplaceAll(settings[i], "_1_2_3|0_2_1_3", " 1 2 3|0 2 1 3")
		}
		dump(s, testEnv(t, []int{4}, 4, tuning.Transport{}, settings...))
	}
	golden.Check(t, "choices.golden", b.String())
}
