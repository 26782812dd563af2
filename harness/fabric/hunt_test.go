package fabric

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/harness/hunt"
	"github.com/assay-hpc/assay/internal/result"
)

// A wire is a network of ports for tests: what each sends and receives, of what is
// usual.
type wire struct {
	mu       sync.Mutex
	rng      *rand.Rand
	sends    map[string]float64 // by "rank port"; else 1
	receives map[string]float64
	fault    func(rng *rand.Rand, from, to string, m *Measured, other *Ends) // of a measurement, if from or to is the port with it
	waiting  map[int]*waiter
	next     int
	quiet    int // measurements
}

// A waiter listens on it.
type waiter struct {
	name string
	ends Ends
}

// A wired is a machine on it.
type wired struct {
	w    *wire
	rank int
}

func (p wired) name(port string) string { return fmt.Sprintf("%d %s", p.rank, port) }

func (p wired) Listen(_ context.Context, port string, m Measurement) (Doors, func() (Ends, error), error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.next++
	me, at := &waiter{p.name(port), Ends{Large: Counts{Sent: 1000}}}, Doors{Small: p.w.next}
	p.w.waiting[p.w.next] = me
	if !m.Quiet {
		at.Large = p.w.next
	}
	return at, func() (Ends, error) {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		return me.ends, nil
	}, nil
}

func (p wired) Measure(_ context.Context, port, _ string, at Doors, m Measurement) (out Measured, err error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	waits, ok := p.w.waiting[at.Small]
	if !ok || (at.Large == 0) != m.Quiet {
		return out, fmt.Errorf("nobody waits at %v", at)
	}
	me, other := p.name(port), waits.name
	rate := func(from, to string) float64 {
		f := func(m map[string]float64, k string) float64 {
			if v, ok := m[k]; ok {
				return v
			}
			return 1
		}
		return 50e9 * min(f(p.w.sends, from), f(p.w.receives, to)) * (1 + 0.01*p.w.rng.NormFloat64())
	}
	if strings.Fields(me)[1] != strings.Fields(other)[1] {
		return out, fmt.Errorf("%s measures with %s", me, other)
	}
	trip := func(least time.Duration) time.Duration {
		return least + time.Duration(p.w.rng.ExpFloat64()*float64(time.Microsecond))
	}
	out = Measured{There: rate(me, other), Back: rate(other, me), Trips: Trips{Count: 300, Median: trip(3 * time.Microsecond), Tail: trip(8 * time.Microsecond), Late: trip(50 * time.Microsecond)}}
	out.Ends.Large.Sent, waits.ends.Large.Sent = 1000, 1000
	if m.Quiet {
		p.w.quiet++
		out.There, out.Back, out.Ends.Large, waits.ends.Large = 0, 0, Counts{}, Counts{}
	}
	if p.w.fault != nil {
		p.w.fault(p.w.rng, me, other, &out, &waits.ends)
	}
	return out, nil
}

// hunted runs a hunt on machines of two ports each.
func hunted(t *testing.T, n int, w *wire, change func(f *Fabric, rank int, o *HuntOptions)) (*HuntReport, []error) {
	t.Helper()
	return huntedOn(t, machines(t, n, nil), w, change)
}

func huntedOn(t *testing.T, fs []*Fabric, w *wire, change func(f *Fabric, rank int, o *HuntOptions)) (*HuntReport, []error) {
	n := len(fs)
	w.rng, w.waiting = rand.New(rand.NewPCG(1, 2)), map[int]*waiter{}
	var r *HuntReport
	errs := make([]error, n)
	all(n, func(rank int) {
		o := HuntOptions{Options: hunt.Options{Seed: 7}, Tool: RDMA, Duration: time.Millisecond, Ports: []string{"mlx5_0/1", "mlx5_1/1"}, RDMA: wired{w, rank}}
		if change != nil {
			change(fs[rank], rank, &o)
		}
		got, err := fs[rank].Hunt(t.Context(), o)
		if errs[rank] = err; rank == 0 {
			r = got
		}
	})
	return r, errs
}

// at is a fault of the port with a name, in a share of its measurements.
func at(name string, share float64, do func(m *Measured, mine, others *Ends)) func(*rand.Rand, string, string, *Measured, *Ends) {
	return func(rng *rand.Rand, from, to string, m *Measured, other *Ends) {
		switch {
		case from != name && to != name || rng.Float64() >= share:
		case from == name:
			do(m, &m.Ends, other)
		default:
			do(m, other, &m.Ends)
		}
	}
}

// TestHuntQuiet: what is rare is found by small reads alone, for as long as is wanted, at one port while
// the others are measured as ever.
func TestHuntQuiet(t *testing.T) {
	w := &wire{fault: at("2 mlx5_1/1", 0.5, func(m *Measured, mine, others *Ends) {
		if m.There == 0 {
			mine.Small.Resent, others.Small.Resent = 4, 4 // whichever reads
			m.Trips.Held = 1
		}
	})}
	r, errs := hunted(t, 8, w, func(_ *Fabric, _ int, o *HuntOptions) { o.For = 2 * time.Second })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if w.quiet == 0 || r.Seconds < 2 {
		t.Errorf("%d quiet measurements in %.1f s", w.quiet, r.Seconds)
	}
	// How many a busy machine makes in this time is not known.
	if w.quiet > 100 && (len(r.Suspects) != 1 || r.Suspects[0].Machines[0] != "node2" || r.Suspects[0].Port != "mlx5_1/1" || r.Suspects[0].Kind != hunt.Flapping) {
		t.Errorf("%d quiet measurements: %+v", w.quiet, r.Suspects)
	}
}

var errTestDeath = errors.New("killed")

func TestHunt(t *testing.T) {
	for name, tt := range map[string]struct {
		w       *wire
		verdict hunt.Verdict
		suspect string // "machine port kind direction"
	}{
		"clean":     {&wire{}, hunt.Clean, ""},
		"half":      {&wire{sends: map[string]float64{"5 mlx5_1/1": 0.5}, receives: map[string]float64{"5 mlx5_1/1": 0.5}}, hunt.Found, "node5 mlx5_1/1 slow both"},
		"sending":   {&wire{sends: map[string]float64{"2 mlx5_0/1": 0.5}}, hunt.Found, "node2 mlx5_0/1 slow sending"},
		"receiving": {&wire{receives: map[string]float64{"0 mlx5_0/1": 0.7}}, hunt.Found, "node0 mlx5_0/1 slow receiving"},
		"late": {&wire{fault: at("3 mlx5_0/1", 1, func(m *Measured, _, _ *Ends) {
			m.Trips.Median += 20 * time.Microsecond
		})}, hunt.Found, "node3 mlx5_0/1 late both"},
		"long tail": {&wire{fault: at("3 mlx5_0/1", 0.7, func(m *Measured, _, _ *Ends) {
			m.Trips.Tail += 300 * time.Microsecond
		})}, hunt.Found, "node3 mlx5_0/1 late both"},
		"interrupted": {&wire{fault: at("3 mlx5_0/1", 0.6, func(m *Measured, _, _ *Ends) {
			m.Trips = Trips{Broken: true}
		})}, hunt.Found, "node3 mlx5_0/1 flapping both"},
		"link goes down": {&wire{fault: at("6 mlx5_0/1", 0.6, func(_ *Measured, mine, _ *Ends) {
			mine.Large.Downs = 1
		})}, hunt.Found, "node6 mlx5_0/1 flapping both"},
		"loses": {&wire{fault: at("1 mlx5_1/1", 0.6, func(_ *Measured, mine, others *Ends) {
			mine.Large.Resent, others.Large.Gaps, others.Large.Repeats = 1, 1, 3
		})}, hunt.Found, "node1 mlx5_1/1 lossy sending"},
		"receives damaged": {&wire{fault: at("1 mlx5_1/1", 0.6, func(_ *Measured, mine, _ *Ends) {
			mine.Large.Damaged = 1
		})}, hunt.Found, "node1 mlx5_1/1 lossy receiving"},
		"reorders": {&wire{fault: at("7 mlx5_1/1", 0.6, func(_ *Measured, mine, _ *Ends) {
			mine.Large.Gaps = 40
		})}, hunt.Found, "node7 mlx5_1/1 reordering receiving"},
		"all reorder": {&wire{fault: func(_ *rand.Rand, _, _ string, m *Measured, other *Ends) {
			m.Ends.Large.Gaps, other.Large.Gaps = 40, 40
		}}, hunt.Clean, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, errs := hunted(t, 8, tt.w, nil)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range r.Suspects {
				got = append(got, fmt.Sprint(strings.Join(s.Machines, "+"), " ", s.Port, " ", s.Kind, " ", s.Direction))
			}
			if r.Outcome != tt.verdict || strings.Join(got, "; ") != tt.suspect {
				t.Errorf("%s, suspects %q; want %s, %q", r.Outcome, got, tt.verdict, tt.suspect)
			}
			if len(r.Ranking) != 16 || r.Tool != RDMA || len(r.Lost)+len(r.Absent) > 0 {
				t.Errorf("the report is %+v", r)
			}
			var page bytes.Buffer
			if err := r.WriteText(&page); err != nil || !strings.Contains(page.String(), strings.ToUpper(string(tt.verdict))) {
				t.Errorf("the page, %v:\n%s", err, page.String())
			}
			if tt.suspect != "" && len(r.Suspects) > 0 && (!strings.Contains(page.String(), "✗ "+r.Suspects[0].Text) || r.Suspects[0].Kind == hunt.Slow && r.Ranking[0].Machine != r.Suspects[0].Machines[0]) {
				t.Errorf("the page:\n%s", page.String())
			}
		})
	}
}

// TestHuntTCP measures for real, over loopback, where nobody can be told from
// another; that all rounds have values is what it shows.
func TestHuntTCP(t *testing.T) {
	r, errs := hunted(t, 4, &wire{}, func(_ *Fabric, _ int, o *HuntOptions) {
		o.Tool, o.RDMA, o.MaxRounds, o.Duration = Auto, nil, 3, 200*time.Millisecond
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if r.Tool != TCP || r.Measurements < 8 || r.Rounds != 3 || len(r.Lost) > 0 {
		t.Errorf("%+v", r)
	}
}

// TestHuntDeath: a machine that dies is named, with the round; the others are
// judged.
func TestHuntDeath(t *testing.T) {
	w := &wire{sends: map[string]float64{"1 mlx5_0/1": 0.5}}
	r, errs := hunted(t, 8, w, func(f *Fabric, rank int, o *HuntOptions) {
		if rank == 6 {
			o.RDMA = dying{wired{w, 6}, f, new(atomic.Int32)}
		}
	})
	errs[6] = nil
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if len(r.Lost) != 1 || r.Lost[0].Machine != "node6" || r.Lost[0].Round == 0 || r.Lost[0].Reason != "it has ended: killed" {
		t.Errorf("lost: %+v", r.Lost)
	}
	if len(r.Suspects) != 1 || r.Suspects[0].Machines[0] != "node1" || r.Suspects[0].Port != "mlx5_0/1" {
		t.Errorf("suspects: %+v", r.Suspects)
	}
}

// dying ends its machine when it has measured some times.
type dying struct {
	wired
	f     *Fabric
	times *atomic.Int32
}

func (d dying) Listen(ctx context.Context, port string, m Measurement) (Doors, func() (Ends, error), error) {
	if d.times.Add(1) > 3 {
		d.f.Leave(errTestDeath)
	}
	return d.wired.Listen(ctx, port, m)
}

// TestHuntAbsent: a port that all others have is missed; one that few have is no
// kind of port.
func TestHuntAbsent(t *testing.T) {
	r, errs := hunted(t, 8, &wire{}, func(_ *Fabric, rank int, o *HuntOptions) {
		switch rank {
		case 3:
			o.Ports = []string{"mlx5_0/1"}
		case 4:
			o.Ports = append(o.Ports, "mlx5_9/1")
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if want := []Absent{{"node3", "mlx5_1/1"}}; !slices.Equal(r.Absent, want) || r.Outcome != hunt.Found || len(r.Ranking) != 15 {
		t.Errorf("absent %v, %s, %d places", r.Absent, r.Outcome, len(r.Ranking))
	}
}

// TestHuntColl hunts by collectives in groups: each group is a job of its own.
func TestHuntColl(t *testing.T) {
	var mu sync.Mutex
	jobs := map[string][]string{} // token → machines
	fs := machines(t, 12, func(rank int, o *Options) {
		o.Run = func(_ context.Context, environ []string, args ...string) (Output, error) {
			env := map[string]string{}
			for _, kv := range environ {
				k, v, _ := strings.Cut(kv, "=")
				env[k] = v
			}
			mu.Lock()
			token := env["TORCHELASTIC_RUN_ID"]
			jobs[token] = append(jobs[token], fmt.Sprint(rank))
			mu.Unlock()
			if env["WORLD_SIZE"] != "4" || env["MASTER_ADDR"] != "127.0.0.1" || args[0] != "coll" || args[2] != "-g" {
				return Output{Status: 2, Stderr: fmt.Sprintf("harness: %q, of %s at %s", args, env["WORLD_SIZE"], env["MASTER_ADDR"])}, nil
			}
			// All of a group must have come before one knows who is slow.
			for {
				mu.Lock()
				group := slices.Clone(jobs[token])
				mu.Unlock()
				if len(group) == 4 {
					bus := 100.0
					if slices.Contains(group, "3") {
						bus = 60
					}
					b, err := json.Marshal(perf.Document{Ranks: 4, Rows: []perf.Row{{OutOfPlace: perf.Placement{BusBW: bus + float64(len(token)%7)/100}}}})
					return Output{Stdout: b}, err
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
	var r *HuntReport
	errs := make([]error, len(fs))
	all(len(fs), func(rank int) {
		got, err := fs[rank].Hunt(t.Context(), HuntOptions{Options: hunt.Options{Seed: 3, GroupSize: 4}, Tool: Coll, Duration: time.Millisecond, Bytes: "1M", Coll: []string{"-g", "8"}})
		if errs[rank] = err; rank == 0 {
			r = got
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if len(r.Suspects) != 1 || r.Suspects[0].Machines[0] != "node3" || r.Outcome != hunt.Found {
		t.Errorf("%s: %+v, notes %q", r.Outcome, r.Suspects, r.Notes)
	}
}

// FuzzResults: whatever another machine says in a round is taken or refused.
func FuzzResults(f *testing.F) {
	f.Add([]byte(`[{"hunt":0,"group":0,"me":0,"there":{"Value":1,"Resent":0},"back":{"Value":2,"Resent":0}}]`), []byte(`[{"hunt":0,"group":0,"at":{"small":5}}]`))
	f.Add([]byte(`[{"hunt":0,"group":0,"me":1,"held":-1,"ends":{"small":{"resent":18446744073709551615},"large":{"downs":1}}}]`), []byte(`[]`))
	f.Add([]byte(`[{"hunt":0,"group":1,"me":3,"error":"x"}]`), []byte(`[{"hunt":9,"group":-1}]`))
	f.Add([]byte(`null`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, results, doors []byte) {
		d := &driver{f: &Fabric{names: []string{"a", "b", "c", "d"}, group: new(bootstrap.Group)}}
		r := &running{seats: []int{0, 1, 2, 3}, groups: [][]int{{1, 0}, {2, 3}}, parts: make([]partialResults, 2)}
		d.hunts = []*running{r}
		all := [][]byte{nil, results, nil, nil}
		if list, err := decoded[[]found](all); err == nil {
			for _, one := range *list[1] {
				if err := d.take(1, one); err == nil && (one.Hunt != 0 || one.Group != 0 || one.Me != 0) {
					t.Errorf("rank 1 was believed %+v", one)
				}
			}
		}
		if got := r.samples(map[int]string{3: "it is silent"}); len(got) != 2 || !slices.Equal(got[1].Dead, []int{3}) {
			t.Errorf("samples %+v", got)
		}
		if out, err := d.route([][]byte{nil, doors, nil, nil}); err == nil && len(out) != 4 {
			t.Errorf("routed to %d", len(out))
		}
	})
}

// TestResult: a report is one result, with an object for each machine.
func TestResult(t *testing.T) {
	clean := HuntReport{Outcome: hunt.Clean, Machines: []string{"a", "b", "c"}, Find: 0.1, Rounds: 9, Measurements: 18, Excluded: hunt.Excluded{Slower: 0.1, Path: 1, Lost: 1, Outages: 0.25},
		Ranking: []Rank{{Machine: "b", Ratio: 0.98, Low: 0.97, High: 1, Values: 6}, {Machine: "a", Ratio: 1, Low: 0.99, High: 1.01, Values: 6}}}
	found := clean
	found.Outcome = hunt.Found
	found.Suspects = []Suspect{{Machines: []string{"b"}, Kind: hunt.Slow, Text: "b is slow: 50 %"}}
	lost := clean
	lost.Outcome, lost.Lost = hunt.Found, []Loss{{Machine: "c", Round: 3, Reason: "it is silent"}}
	absent := clean
	absent.Outcome, absent.Absent = hunt.Found, []Absent{{Machine: "a", Port: "mlx5_0/1"}}
	noisy := clean
	noisy.Outcome, noisy.Undecided = hunt.Undecided, []string{"a", "c"}
	for name, tt := range map[string]struct {
		r    HuntReport
		want result.Verdict
		text string
	}{
		"clean":  {clean, result.Pass, "3 machines, 18 measurements in 9 rounds, 0 s: no machine is 10 % slower than the rest, is interrupted in 25 % of measurements"},
		"found":  {found, result.Fail, "b is slow: 50 %"},
		"lost":   {lost, result.Error, "c was lost: it is silent"},
		"absent": {absent, result.Fail, "a has no port mlx5_0/1 that is up"},
		"noisy":  {noisy, result.Warn, "not decided after 9 rounds: a, c"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.r.conclude(); err != nil {
				t.Fatal(err)
			}
			res := tt.r.Of(ResultID)
			if err := res.Validate(); err != nil || res.Verdict != tt.want || res.Reason != tt.text {
				t.Errorf("%v, %s, %q; want %s, %q", err, res.Verdict, res.Reason, tt.want, tt.text)
			}
			for _, o := range res.Objects {
				if o.Name == "b" && (o.Verdict == result.Fail) != (name == "found") {
					t.Errorf("%+v", o)
				}
			}
		})
	}
}

// TestGroups: machines say where they are, and what is found is told by the name of the group.
func TestGroups(t *testing.T) {
	places := func(at ...string) *driver {
		d := &driver{f: &Fabric{}}
		for _, a := range at {
			d.setups = append(d.setups, &setup{At: a})
		}
		return d
	}
	trays := func(prefix string) (out []string) {
		for rack := range 2 {
			for tray := range 2 {
				for range 2 {
					out = append(out, fmt.Sprintf("%srack%d.tray%d", prefix, rack, tray))
				}
			}
		}
		return out
	}
	for name, tt := range map[string]struct {
		at       []string
		switches []int
		groups   int
	}{
		"racks of trays": {trays("hall."), []int{0, 0, 0, 0, 1, 1, 1, 1}, 2},
		"names alone":    {[]string{"b", "a", "b", "a"}, []int{0, 1, 0, 1}, 1},
		"one rack":       {[]string{"a", "a"}, nil, 0},
		"one not known":  {[]string{"a", "", "b"}, nil, 0},
		"uneven depth":   {[]string{"x.a", "x.a", "x.b.2", "x.b.1"}, []int{0, 0, 1, 2}, 1},
	} {
		d := places(tt.at...)
		var seats []int
		for i := range tt.at {
			seats = append(seats, i)
		}
		if s, g := d.groups(seats); !slices.Equal(s, tt.switches) || len(g) != tt.groups {
			t.Errorf("%s: switches %v, groups %v", name, s, g)
		}
	}
}

// TestSlowRack: if all machines of a rack are slow, it is told, by its name.
func TestSlowRack(t *testing.T) {
	w := &wire{sends: map[string]float64{}, receives: map[string]float64{}}
	for rank := 8; rank < 12; rank++ {
		w.sends[fmt.Sprint(rank, " mlx5_1/1")], w.receives[fmt.Sprint(rank, " mlx5_1/1")] = 0.5, 0.5
	}
	r, errs := hunted(t, 32, w, func(_ *Fabric, rank int, o *HuntOptions) { o.At = fmt.Sprintf("hall.rack%d", rank/4) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if len(r.Suspects) != 1 || r.Suspects[0].Group != "hall.rack2" || r.Suspects[0].Kind != hunt.Slow || r.Suspects[0].Port != "mlx5_1/1" || !strings.Contains(r.Suspects[0].Text, "what hall.rack2 (") {
		t.Errorf("%+v", r.Suspects)
	}
}
