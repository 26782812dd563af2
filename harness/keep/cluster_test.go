package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// An api is an API server with slots: a write of an older version than the stored one is refused.
// Time passes between a request and its answer.
type api struct {
	mu      sync.Mutex
	nodes   int
	slots   map[int]Slot
	version int
	latency time.Duration
}

func newAPI(nodes int) *api { return &api{nodes: nodes, slots: map[int]Slot{}} }

func (a *api) pass() { time.Sleep(time.Duration(rand.Float64() * float64(a.latency))) }

func (a *api) Nodes(context.Context) (int, error) { return a.nodes, nil }

func (a *api) List(context.Context) ([]Slot, error) {
	defer a.pass()
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Slot
	for _, s := range a.slots {
		out = append(out, s)
	}
	return out, nil
}

func (a *api) Write(_ context.Context, s Slot) (Slot, error) {
	a.pass()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.slots[s.Index].Version != s.Version {
		return Slot{}, ErrTaken
	}
	return a.store(s), nil
}

func (a *api) store(s Slot) Slot {
	a.version++
	s.Version = strconv.Itoa(a.version)
	a.slots[s.Index] = s
	return s
}

// take gives a slot to a node, whoever has it.
func (a *api) take(i int, holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(Slot{Index: i, Holder: holder})
}

// A cluster is nodes that are at work at times, and what their keepers do.
type cluster struct {
	*api
	mu        sync.Mutex
	withdrawn map[string]bool
	most      int            // withdrawn at one time
	drained   map[string]int // by node: how often it was withdrawn while at work
}

// A member is a node of a cluster.
type member struct {
	*cluster
	name   string
	work   func(time.Time) bool // whether pods have its GPUs
	took   time.Duration        // by a certification
	dies   bool                 // in its first certification
	stored *certificate.Statement
	made   []time.Time // ends of certifications
	boot   string
}

func (m *member) set(withdrawn bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !withdrawn {
		delete(m.withdrawn, m.name)
		return
	}
	if !m.withdrawn[m.name] && m.work(time.Now()) {
		m.drained[m.name]++
	}
	m.withdrawn[m.name] = true
	m.most = max(m.most, len(m.withdrawn))
}

// certified returns how often the node was certified until now.
func (m *member) certified() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.made)
}

func (m *member) Act(context.Context, *certificate.Statement, string) error {
	m.set(false)
	return nil
}

func (m *member) Void(context.Context, string) error {
	m.set(false)
	return nil
}

func (m *member) Observe(context.Context, *certificate.Statement, string) error {
	m.set(false)
	return nil
}

func (m *member) Withdraw(context.Context, string) error {
	m.set(true)
	return nil
}

func (m *member) Busy(context.Context) ([]string, error) {
	if m.work(time.Now()) {
		return []string{"a/b"}, nil
	}
	return nil, nil
}

func (m *member) keeper(maxAge time.Duration) *Keeper {
	return &Keeper{
		Node: m.name, GPUs: 1, Every: 20 * time.Minute, MaxAge: maxAge, Retry: time.Hour, Settle: 15 * time.Second, Limit: 15 * time.Minute,
		Share: Share{Percent: 5}, Site: m, Slots: m.api, Now: time.Now, Note: func(string, ...any) {}, memory: new(record),
		Identify: func(context.Context) (Machine, error) {
			return Machine{Boot: m.boot, GPUs: map[string]string{"GPU-a": "x"}}, nil
		},
		Health: func(context.Context) (*certificate.Statement, error) {
			return statement("health", result.Pass, time.Now()), nil
		},
		Certify: func(ctx context.Context) (*certificate.Statement, error) {
			if m.dies {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			time.Sleep(m.took)
			m.stored = statement("quick", result.Pass, time.Now())
			m.stored.Predicate.Results[0].Reason = m.name
			m.mu.Lock()
			m.made = append(m.made, time.Now())
			m.mu.Unlock()
			return m.stored, nil
		},
		Stored: func() (*certificate.Statement, error) { return m.stored, nil },
		Limits: func() (string, error) { return "", nil },
	}
}

// A bad site and its slots refuse or lose some requests, and lose some answers.
type bad struct {
	*member
	share float64
}

var errBad = errors.New("the API server has too many requests")

func (b bad) fault() error {
	if rand.Float64() < b.share {
		return errBad
	}
	return nil
}

// try makes a request, unless it is lost, and loses its answer at times.
func (b bad) try(request func() error) error {
	if err := b.fault(); err != nil {
		return err
	}
	return cmp.Or(request(), b.fault())
}

func (b bad) Act(ctx context.Context, st *certificate.Statement, due string) error {
	return b.try(func() error { return b.member.Act(ctx, st, due) })
}

func (b bad) Void(ctx context.Context, why string) error {
	return b.try(func() error { return b.member.Void(ctx, why) })
}

func (b bad) Withdraw(ctx context.Context, why string) error {
	return b.try(func() error { return b.member.Withdraw(ctx, why) })
}

func (b bad) Busy(ctx context.Context) (busy []string, err error) {
	err = b.try(func() (err error) { busy, err = b.member.Busy(ctx); return err })
	return busy, err
}

func (b bad) List(ctx context.Context) (slots []Slot, err error) {
	err = b.try(func() (err error) { slots, err = b.member.List(ctx); return err })
	return slots, err
}

func (b bad) Write(ctx context.Context, s Slot) (got Slot, err error) {
	err = b.try(func() (err error) { got, err = b.member.Write(ctx, s); return err })
	return got, err
}

// TestCluster: keepers, all started at one time, for 30 days, with one slot, with some, and on an API
// server that is ill. Some nodes are at work for ever from some time on; the others have jobs and
// pauses of hours. Never more than the share is withdrawn at one time; each node is certified before
// its certificate is twice as old as it may get, unless it is at work; and nodes at work for ever take
// turns to wait.
func TestCluster(t *testing.T) {
	for _, tt := range []struct {
		nodes, most, waited int
		bad                 float64
	}{{64, 3, 16, 0}, {39, 1, 3, 0}, {64, 3, 3, 0.05}} {
		t.Run(fmt.Sprint(tt.nodes, " nodes, bad ", tt.bad), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testCluster(t, tt.nodes, tt.most, tt.waited, tt.bad) })
		})
	}
}

func testCluster(t *testing.T, nodes, most, waited int, share float64) {
	const maxAge, length = 7 * 24 * time.Hour, 30 * 24 * time.Hour
	c := &cluster{api: newAPI(nodes), withdrawn: map[string]bool{}, drained: map[string]int{}}
	c.latency = 200 * time.Millisecond
	start := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var all []*member
	var done sync.WaitGroup
	for i := range nodes {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		forever := 1000 * length
		if i%2 == 0 {
			forever = 36*time.Hour + time.Duration(r.IntN(48))*time.Hour
		}
		job, pause := time.Duration(4+r.IntN(40))*time.Hour, time.Duration(1+r.IntN(6))*time.Hour
		m := &member{cluster: c, name: fmt.Sprint("n", i), took: time.Minute + time.Duration(r.IntN(300))*time.Second, boot: "1"}
		m.work = func(at time.Time) bool {
			since := at.Sub(start)
			return since > forever || since > 24*time.Hour && since%(job+pause) < job
		}
		all = append(all, m)
		k := m.keeper(maxAge)
		k.Site, k.Slots = bad{m, share}, bad{m, share}
		done.Go(func() { k.Run(ctx) })
	}
	time.Sleep(24 * time.Hour)
	synctest.Wait()
	for _, m := range all {
		if n := m.certified(); n != 1 {
			t.Errorf("%s was certified %d times on the first day", m.name, n)
		}
	}
	time.Sleep(length - 24*time.Hour)
	stop()
	done.Wait()
	if c.most > most {
		t.Errorf("%d of %d nodes were withdrawn at one time; want at most %d", c.most, nodes, most)
	}
	some := 0
	for i, m := range all {
		if c.drained[m.name] > 0 {
			some++
		}
		last := start
		for _, at := range append(m.made, start.Add(length)) {
			if gap := at.Sub(last); gap > 2*maxAge && i%2 == 1 {
				t.Errorf("%s, which has pauses, was not certified for %v", m.name, gap)
			}
			last = at
		}
		if len(m.made) > 8 {
			t.Errorf("%s was certified %d times in 30 days", m.name, len(m.made))
		}
	}
	if some < waited {
		t.Errorf("%d of %d nodes that are at work for ever waited for their certification", some, nodes/2)
	}
	t.Logf("at most %d withdrawn, %d waited", c.most, some)
}

// A deaf site is not told how a node is while fails is true.
type deaf struct {
	*member
	fails *bool
}

func (d deaf) Act(ctx context.Context, st *certificate.Statement, due string) error {
	if *d.fails {
		return errBad
	}
	return d.member.Act(ctx, st, due)
}

// TestUntoldLongAgo: a node of which the site could not be told is withdrawn with its slot, although
// the same had happened with another slot, days before.
func TestUntoldLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{api: newAPI(1), withdrawn: map[string]bool{}, drained: map[string]int{}}
		m := &member{cluster: c, name: "a", work: func(time.Time) bool { return false }, took: time.Minute, boot: "1"}
		k := m.keeper(7 * 24 * time.Hour)
		fails := true
		k.Site = deaf{m, &fails}
		turn := func() { _ = k.Turn(t.Context()) }
		turn() // certified, and not told
		fails, m.boot = false, "2"
		c.take(0, "another")
		turn() // needs the slot again, and has lost it
		if len(c.withdrawn) != 0 {
			t.Fatal("withdrawn without a slot")
		}
		time.Sleep(3 * k.silence())
		fails = true
		c.take(0, "")
		turn() // certified, and not told
		if got := c.slots[0].Holder; !c.withdrawn["a"] || got != "a" {
			t.Errorf("withdrawn: %v; the slot is %q's", c.withdrawn, got)
		}
	})
}

// TestDies: a keeper that dies with a slot holds up the others for less than an hour.
func TestDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{api: newAPI(4), withdrawn: map[string]bool{}, drained: map[string]int{}}
		idle := func(time.Time) bool { return false }
		dead := &member{cluster: c, name: "dead", work: idle, dies: true}
		ctx, kill := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { dead.keeper(time.Hour).Run(ctx) })
		time.Sleep(time.Minute)
		kill()
		synctest.Wait()
		if slots, err := c.List(t.Context()); err != nil || len(slots) != 1 || slots[0].Holder != "dead" {
			t.Fatalf("it died without a slot: %v, %v", slots, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var all []*member
		for i := range 3 {
			m := &member{cluster: c, name: fmt.Sprint("n", i), work: idle, took: time.Minute}
			all = append(all, m)
			done.Go(func() { m.keeper(24 * time.Hour).Run(ctx) })
		}
		time.Sleep(50 * time.Minute)
		for _, m := range all {
			if m.certified() > 0 {
				t.Errorf("%s was certified while the slot may still have had an owner", m.name)
			}
		}
		time.Sleep(time.Hour)
		stop()
		done.Wait()
		for _, m := range all {
			if m.certified() == 0 {
				t.Errorf("%s was not certified: the dead keeper's slot is held for ever", m.name)
			}
		}
	})
}

// TestBootAtOnce: after a power cut all nodes are certified again, and are withdrawn by turns.
func TestBootAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{api: newAPI(40), withdrawn: map[string]bool{}, drained: map[string]int{}}
		ctx, stop := context.WithCancel(t.Context())
		var all []*member
		var done sync.WaitGroup
		var mu sync.Mutex
		for i := range 40 {
			m := &member{cluster: c, name: fmt.Sprint("n", i), work: func(time.Time) bool { return false }, took: time.Minute, boot: "1"}
			all = append(all, m)
			k := m.keeper(7 * 24 * time.Hour)
			k.Every = 5 * time.Minute
			identify := k.Identify
			k.Identify = func(ctx context.Context) (Machine, error) {
				mu.Lock()
				defer mu.Unlock()
				return identify(ctx)
			}
			done.Go(func() { k.Run(ctx) })
		}
		time.Sleep(12 * time.Hour)
		mu.Lock()
		for _, m := range all {
			m.boot = "2"
		}
		mu.Unlock()
		time.Sleep(12 * time.Hour)
		stop()
		done.Wait()
		if c.most > 2 {
			t.Errorf("%d of 40 nodes were withdrawn at one time", c.most)
		}
		for _, m := range all {
			if len(m.made) != 2 {
				t.Errorf("%s was certified %d times", m.name, len(m.made))
			}
		}
	})
}

func TestShare(t *testing.T) {
	for text, want := range map[string][3]int{"5%": {1, 3, 50}, "100%": {1, 64, 1000}, "2": {2, 2, 2}, "0.5%": {1, 1, 5}} {
		s, err := ParseShare(text)
		if got := [3]int{s.Of(1), s.Of(64), s.Of(1000)}; err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "0%", "101%", "x%", "nan%", "1.5", "5 %"} {
		if s, err := ParseShare(text); err == nil || !strings.Contains(err.Error(), strconv.Quote(text)) {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
}
