package coll

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// TestHang: the lowest of the ranks that wait says which rank has not called what,
// once, and nobody says so of ranks that do not wait.
func TestHang(t *testing.T) {
	all := fakes(t)
	const n = 4
	var mu sync.Mutex
	var said []string
	cfg := deviceConfig(n)
	cfg.AsNCCL, cfg.Knobs.Slow = true, time.Second
	cfg.OnHang = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	}
	comms, err := CommInitAll(t.Context(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return said
	}
	call := func(c *Comm) {
		if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil {
			t.Error(err)
		}
	}
	for r, c := range comms {
		call(c)
		if r != 3 {
			call(c)
		}
	}
	time.Sleep(3 * time.Second) // all has ended, as far as anybody knows
	if v := verdicts(); len(v) > 0 {
		t.Errorf("without a reason: %q", v)
	}
	for r := range n - 1 {
		of(all, r).busy.Store(r > 0) // rank 0 is done
	}
	for deadline := time.Now().Add(5 * time.Minute); len(verdicts()) == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(8 * time.Second) // is there another one, of rank 2, when rank 1 has had its time?
	v := verdicts()
	if len(v) != 1 || !strings.HasPrefix(v[0], "it stands still: rank 3 (host ") ||
		!strings.Contains(v[0], "GPU 13) has not called AllReduce of int64 with sum, 8 elements, operation #2: its last call was AllReduce of int64 with sum, 8 elements, operation #1, ") {
		t.Errorf("%q", v)
	}
	call(comms[3])
	for r := range n {
		of(all, r).busy.Store(false)
	}
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			if err := c.Destroy(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestVerdict(t *testing.T) {
	at := func(seq uint32, more head) head {
		more.Host, more.PID = "n", 7
		more.Call = stall{seq, sign(3, Uint8, Sum, int(seq), NoPeer), int64(seq)}
		return more
	}
	known := func(seq uint32) (stall, bool) { return at(seq, head{}).Call, seq > 90 }
	for _, c := range []struct {
		name  string
		heads map[int]head
		want  string
	}{
		{"one is behind", map[int]head{0: at(95, head{Busy: true}), 1: at(92, head{Ago: 12, GPU: 2}), 2: at(95, head{})},
			"rank 1 (host n, pid 7, GPU 2) has not called AllGather of uint8, 93 elements, operation #93: its last call was AllGather of uint8, 92 elements, operation #92, 12 s ago"},
		{"far behind", map[int]head{0: at(95, head{}), 1: at(3, head{Ago: 12}), 2: at(95, head{})},
			"rank 1 (host n, pid 7, GPU 0) has not called AllGather of uint8, 95 elements, operation #95: its last call was AllGather of uint8, 3 elements, operation #3, 12 s ago"},
		{"one has called nothing", map[int]head{0: at(1, head{}), 1: {}, 2: at(1, head{})},
			"rank 1 (host , pid 0, GPU 0) has not called AllGather of uint8, 1 elements, operation #1: it has called nothing yet"},
		{"one does not answer", map[int]head{0: at(95, head{}), 2: at(94, head{Ago: 3})},
			"rank 2 (host n, pid 7, GPU 0) has not called AllGather of uint8, 95 elements, operation #95: its last call was AllGather of uint8, 94 elements, operation #94, 3 s ago; rank 1 does not answer"},
		{"all have", map[int]head{0: at(95, head{Busy: true}), 1: at(95, head{}), 2: at(95, head{Busy: true, GPU: 1})},
			"all ranks have called AllGather of uint8, 95 elements, operation #95, which has not ended on rank 0 (host n, pid 7, GPU 0) and rank 2 (host n, pid 7, GPU 1): a stream waits for work that is not ours, or a GPU stands still"},
		{"a Send without its Recv", map[int]head{0: at(95, head{P2P: 2, Peer: 1, Busy: true}), 1: at(95, head{P2P: 1, Ago: 5}), 2: at(95, head{})},
			"rank 0 (host n, pid 7, GPU 0) waits in Sends or Recvs with rank 1 (its last call was of Sends or Recvs, 5 s ago)"},
		{"Sends with many", map[int]head{0: at(95, head{}), 1: at(95, head{P2P: 1, Peer: NoPeer, Busy: true}), 2: at(95, head{})},
			"rank 1 (host n, pid 7, GPU 0) waits in Sends or Recvs with several ranks"},
	} {
		if got := verdict(3, c.heads, known); got != "it stands still: "+c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	many := map[int]head{0: at(95, head{Busy: true})}
	if got := verdict(9, many, known); !strings.HasSuffix(got, "rank 1 does not answer; rank 2 does not answer; rank 3 does not answer; rank 4 does not answer and 4 more") {
		t.Error(got)
	}
}
