package mesh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/perftest/probe"
)

// A fabric stands in for hosts with ports: it says how fast each flow is.
type fabric struct {
	value func(from, to string) float64         // by "a/mlx5_0"; bytes a second or nanoseconds
	fail  func(role, device, host string) error // nil: none
	touch func(host, device string)             // called in each measurement
	mu    sync.Mutex
	at    map[int]*appointment // servers by port
	next  int                  // the last of them
	busy  map[string]bool      // ports that measure
	most  int                  // measurements at once
	twice []string             // ports that were used twice at once
}

type appointment struct {
	who  string
	came chan struct{}
}

// measure is probe.Run on one host.
func (f *fabric) measure(host string) func(context.Context, probe.Config, probe.Events) (*probe.Outcome, error) {
	return func(ctx context.Context, c probe.Config, ev probe.Events) (*probe.Outcome, error) {
		me := host + "/" + c.Device
		if f.touch != nil {
			f.touch(host, c.Device)
		}
		if c.Host == "" {
			return f.serve(ctx, me, host, c, ev)
		}
		if f.fail != nil {
			if err := f.fail("client", c.Device, host); err != nil {
				return nil, err
			}
		}
		f.mu.Lock()
		m := f.at[c.Port]
		f.mu.Unlock()
		if m == nil {
			return nil, errors.New("no server answers")
		}
		defer f.use(me, m.who)()
		defer close(m.came)
		from, to := me, m.who
		if c.Operation == probe.Read {
			from, to = to, from
		}
		v := f.value(from, to)
		if c.Measure == probe.Latency {
			return &probe.Outcome{Rows: []probe.Row{{Latency: &probe.LatencyResult{Bytes: 2, Typical: v}}}}, nil
		}
		row := probe.Row{Bandwidth: &probe.BandwidthResult{Bytes: 65536, Average: v}}
		if c.Bidirectional {
			back := f.value(to, from)
			row.Bandwidth.Average = v + back
			row.Local, row.Remote = &probe.BandwidthResult{Average: v}, &probe.BandwidthResult{Average: back}
		}
		return &probe.Outcome{Rows: []probe.Row{row}}, nil
	}
}

func (f *fabric) serve(ctx context.Context, me, host string, c probe.Config, ev probe.Events) (*probe.Outcome, error) {
	if f.fail != nil {
		if err := f.fail("server", c.Device, host); err != nil {
			return nil, err
		}
	}
	m := &appointment{me, make(chan struct{})}
	f.mu.Lock()
	f.next++
	port := f.next
	f.at[port] = m
	f.mu.Unlock()
	ev.TellWaiting(fmt.Sprintf("[::]:%d", port))
	select {
	case <-m.came:
		return &probe.Outcome{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// use notes which ports are in use at once.
func (f *fabric) use(ports ...string) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range ports {
		if f.busy[p] {
			f.twice = append(f.twice, p)
		}
		f.busy[p] = true
	}
	f.most = max(f.most, len(f.busy)/2)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, p := range ports {
			delete(f.busy, p)
		}
	}
}

// A ring of channels is a group within one process.
type team struct {
	mu     sync.Mutex
	size   int
	blocks [][]byte
	n      int
	full   chan struct{}
	dead   chan struct{} // closed when a member is lost
}

type teammate struct {
	*team
	rank int
}

func (t teammate) Rank() int { return t.rank }
func (t teammate) Size() int { return t.size }

func (t teammate) AllGather(ctx context.Context, b []byte) ([][]byte, error) {
	t.mu.Lock()
	if t.n == 0 {
		t.blocks, t.full = make([][]byte, t.size), make(chan struct{})
	}
	t.blocks[t.rank] = b
	blocks, full := t.blocks, t.full
	if t.n++; t.n == t.size {
		t.n = 0
		close(full)
	}
	t.mu.Unlock()
	var err error
	select {
	case <-full:
	case <-t.dead:
		err = errors.New("rank 1 is dead")
	case <-ctx.Done():
		err = ctx.Err()
	}
	select {
	case <-full: // a member that was lost after it gave its block is not missed
		return blocks, nil
	default:
		return nil, err
	}
}

// A fakePort is written into a tree as sysfs has it.
type fakePort struct {
	device, state, rate string
	counters            map[string]uint64
}

func writeTree(t testing.TB, ports ...fakePort) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range ports {
		dir := filepath.Join(root, "sys/class/infiniband", p.device, "ports/1")
		files := map[string]string{"state": p.state, "phys_state": "5: LinkUp", "rate": p.rate, "link_layer": "InfiniBand"}
		for name, v := range p.counters {
			files["counters/"+name] = fmt.Sprint(v)
		}
		for name, text := range files {
			write(t, filepath.Join(dir, name), text)
		}
	}
	return root
}

func write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, root string) sysfs.FS {
	t.Helper()
	tree, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func newFabric(value func(from, to string) float64) *fabric {
	return &fabric{value: value, at: map[int]*appointment{}, busy: map[string]bool{}}
}

// mesh runs one process on each host, and returns what each got.
func (f *fabric) mesh(t testing.TB, roots []string, change func(rank int, o *Options)) ([]*Report, []error) {
	t.Helper()
	n := len(roots)
	g := &team{size: n, dead: make(chan struct{})}
	reports, errs := make([]*Report, n), make([]error, n)
	var wg sync.WaitGroup
	for rank, root := range roots {
		host := string(rune('a' + rank))
		o := Options{
			Config: probe.Default(probe.Write, probe.Bandwidth), Pattern: AllPairs, Host: host, HostID: host, Addr: "127.0.0.1",
			Tree: open(t, root), Measure: f.measure(host),
		}
		if change != nil {
			change(rank, &o)
		}
		wg.Go(func() {
			if errs[rank] = t.Context().Err(); errs[rank] == nil {
				reports[rank], errs[rank] = Run(t.Context(), o, teammate{g, rank})
			}
			if errs[rank] != nil {
				g.mu.Lock()
				select {
				case <-g.dead:
				default:
					close(g.dead)
				}
				g.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return reports, errs
}
