package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/hunt"
	"github.com/assay-hpc/assay/internal/clustertest"
)

// trialRate is of each host's link, in bits a second: with four hosts two
// processors carry all of them at once, and have time left.
const trialRate = 100e6

// A trial is what was done to a cluster, and what the hunt said.
type trial struct {
	kind   string
	seed   uint64
	rank   int // of the host; -1: nothing was done to any
	peer   int // the other end of a path; -1: there is none
	what   string
	side   hunt.Direction // in which it is slow
	is     []hunt.Kind    // what it is called
	report *fabric.HuntReport
	wall   time.Duration
	wrong  string // why it is wrong
	exact  bool   // kind and direction are right as well
	output string
}

// A trialKind is done to a host, or to the path from it to another: at first, or while the hunt is
// at work.
type trialKind struct {
	name string
	is   []hunt.Kind
	args []string                            // of the hunt
	link func(*clustertest.Path)             // what is done to the host's link, both ways,
	side func(rng *rand.Rand) hunt.Direction // or in one
	path func(*clustertest.Path)             // what is done to the path
	fail func(rng *rand.Rand, h *clustertest.Host) (what string, later func() error)
}

// watched are the arguments of hunts for what is rare.
var watched = []string{"--for", "150s"}

func eitherSide(rng *rand.Rand) hunt.Direction {
	return []hunt.Direction{hunt.Sending, hunt.Receiving}[rng.IntN(2)]
}

func outages(down, every time.Duration) func(*clustertest.Path) {
	return func(p *clustertest.Path) { p.Down, p.Every = down, every }
}

var trialKinds = []trialKind{
	{name: "half rate", is: []hunt.Kind{hunt.Slow}, link: func(p *clustertest.Path) { p.Rate /= 2 }},
	{name: "12 % slower", is: []hunt.Kind{hunt.Slow}, link: func(p *clustertest.Path) { p.Rate = p.Rate * 88 / 100 }},
	{name: "one direction", is: []hunt.Kind{hunt.Slow}, side: eitherSide, link: func(p *clustertest.Path) { p.Rate /= 2 }},
	{name: "2 % loss", is: []hunt.Kind{hunt.Lossy}, link: func(p *clustertest.Path) { p.Loss = 0.02 }},
	{name: "2 % corrupted", is: []hunt.Kind{hunt.Lossy}, link: func(p *clustertest.Path) { p.Corrupt = 0.02 }},
	{name: "5 ms later", is: []hunt.Kind{hunt.Late, hunt.Slow}, link: func(p *clustertest.Path) { p.Delay = 2500 * time.Microsecond }},
	{name: "2 % twice", is: []hunt.Kind{hunt.Duplicating}, link: func(p *clustertest.Path) { p.Duplicate = 0.02 }},
	{name: "5 % reordered", is: []hunt.Kind{hunt.Reordering, hunt.Slow, hunt.Lossy}, link: func(p *clustertest.Path) { p.Reorder = 0.05 }},
	{name: "dead", fail: func(rng *rand.Rand, h *clustertest.Host) (string, func() error) {
		switch rng.IntN(3) {
		case 0:
			return "killed", func() error { h.Kill(); return nil }
		case 1:
			return "frozen", h.Freeze
		}
		return "its link cut", h.Cut
	}},
	{name: "path dead", is: []hunt.Kind{hunt.Failing}, path: func(p *clustertest.Path) { p.Loss = 1 }},
	{name: "path at half rate", is: []hunt.Kind{hunt.SlowPath}, path: func(p *clustertest.Path) { p.Rate = trialRate / 2 }},
	{name: "path with 2 % loss", is: []hunt.Kind{hunt.Lossy}, path: func(p *clustertest.Path) { p.Loss = 0.02 }},
	{name: "path of small packets", is: []hunt.Kind{hunt.Failing}, path: func(p *clustertest.Path) { p.MTU = 1000 }},
	{name: "dead 1 s of 5", is: []hunt.Kind{hunt.Flapping}, args: watched, link: outages(time.Second, 5*time.Second)},
	{name: "dead 300 ms of 7 s", is: []hunt.Kind{hunt.Flapping}, args: watched, link: outages(300*time.Millisecond, 7*time.Second)},
	{name: "dead 50 ms of 2 s", is: []hunt.Kind{hunt.Flapping}, args: watched, link: outages(50*time.Millisecond, 2*time.Second)},
	{name: "dead 50 ms of 10 s", is: []hunt.Kind{hunt.Flapping}, args: watched, link: outages(50*time.Millisecond, 10*time.Second)},
	{name: "clean"},
	{name: "clean, watched", args: watched},
}

// numberOf reads a number from the environment.
func numberOf(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestFabricTrials has harness hunt find hosts that were made slow, lossy or dead
// at random, ASSAY_FABRIC_TRIALS times each, among ASSAY_FABRIC_HOSTS hosts (8;
// fewer take more rounds). ASSAY_FABRIC_SEED is the first trial's seed, the others'
// follow; ASSAY_FABRIC_KIND restricts them to a kind.
func TestFabricTrials(t *testing.T) {
	count := int(numberOf(t, "ASSAY_FABRIC_TRIALS", 0))
	if count == 0 {
		t.Skip("ASSAY_FABRIC_TRIALS says how many: make test ONLY=fabric TRIALS=50")
	}
	c := newLabour(t, clustertest.Options{Hosts: int(numberOf(t, "ASSAY_FABRIC_HOSTS", 8)), Rate: trialRate})
	seed := numberOf(t, "ASSAY_FABRIC_SEED", uint64(time.Now().UnixNano()))
	t.Logf("%d hosts, ASSAY_FABRIC_SEED=%d", len(c.Hosts), seed)
	var done []*trial
	for i := range count {
		for _, kind := range trialKinds {
			if only := os.Getenv("ASSAY_FABRIC_KIND"); only != "" && only != kind.name {
				continue
			}
			tr := c.try(t, kind, seed+uint64(i))
			done = append(done, tr)
			t.Logf("%d %s: %s: %v", i+1, kind.name, tr, tr.wall.Round(10*time.Millisecond))
			if tr.wrong != "" {
				t.Errorf("trial %d is wrong: %s; ASSAY_FABRIC_KIND=%q ASSAY_FABRIC_SEED=%d repeats it\n%s", i+1, tr.wrong, kind.name, tr.seed, tr.output)
			}
		}
	}
	t.Logf("\n%s", table(done))
}

// try makes one trial. What it does follows from the seed; when, as far as
// the machine lets it.
func (c *labour) try(t *testing.T, kind trialKind, seed uint64) *trial {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	tr := &trial{kind: kind.name, seed: seed, rank: -1, peer: -1, side: hunt.Both, is: kind.is}
	var later func() error
	// The first machine's is where the report is written and where all others join, so it cannot be
	// dead, nor the path to it.
	first, moment := 0, time.Duration(0)
	if kind.path != nil {
		first = 1
	}
	if kind.fail != nil {
		first, moment = 1, 300*time.Millisecond+time.Duration(rng.Int64N(int64(time.Second)))
	}
	var host *clustertest.Host
	if kind.fail != nil || kind.link != nil || kind.path != nil {
		tr.rank = first + rng.IntN(len(c.Hosts)-first)
		host = c.Hosts[tr.rank]
	}
	whole := clustertest.Path{Rate: trialRate}
	switch {
	case kind.fail != nil:
		tr.what, later = kind.fail(rng, host)
	case kind.link != nil:
		l, changed := clustertest.Link{Send: whole, Receive: whole}, whole
		kind.link(&changed)
		if kind.side != nil {
			tr.side = kind.side(rng)
		}
		if tr.side != hunt.Receiving {
			l.Send = changed
		}
		if tr.side != hunt.Sending {
			l.Receive = changed
		}
		host.SetLink(l)
		tr.what = string(tr.side)
	case kind.path != nil:
		tr.peer = 1 + (tr.rank+rng.IntN(len(c.Hosts)-2))%(len(c.Hosts)-1)
		var p clustertest.Path
		kind.path(&p)
		host.SetPath(c.Hosts[tr.peer], p)
		defer host.SetPath(c.Hosts[tr.peer], clustertest.Path{})
		tr.what = fmt.Sprintf("to rank %d", tr.peer)
	}
	ctx, end := context.WithTimeout(t.Context(), 10*time.Minute)
	defer end()
	j := c.job(ctx, fmt.Sprintf("%s-%d", strings.NewReplacer(" ", "-", ",", "", "%", "").Replace(kind.name), seed), nil, append([]string{"hunt", "--tool", "tcp", "--duration", "150ms", "--silence", "3s", "--output", "json", "--seed", strconv.FormatUint(seed, 10)}, kind.args...)...)
	if later != nil {
		time.Sleep(moment)
		tr.what = fmt.Sprintf("%s after %v", tr.what, moment.Round(time.Millisecond))
		if err := later(); err != nil {
			t.Fatal(err)
		}
	}
	<-j.ranks[0].done
	tr.wall = j.ranks[0].wall
	if later != nil {
		j.wait(tr.rank)
		host.Kill() // a frozen one never ends
	}
	j.wait(-1)
	tr.output = j.String()
	tr.report, tr.wrong = new(fabric.HuntReport), ""
	if err := json.Unmarshal(j.ranks[0].stdout.Bytes(), tr.report); err != nil {
		tr.wrong = fmt.Sprintf("the first machine's report: %v", err)
	} else {
		tr.judge(c)
	}
	if host != nil {
		host.Link = clustertest.Link{Send: whole, Receive: whole}
		if later != nil {
			host.Boot()
		} else {
			host.SetLink(host.Link)
		}
	}
	return tr
}

// judge holds what the hunt said against what was done: exactly that host is named,
// and not for the wrong direction.
func (tr *trial) judge(c *labour) {
	var suspects, lost []string
	tr.exact = true
	for _, s := range tr.report.Suspects {
		suspects = append(suspects, append(slices.Clone(s.Machines), s.Peers...)...)
		if s.Direction != tr.side && s.Direction != hunt.Both && tr.side != hunt.Both {
			tr.wrong = fmt.Sprintf("it is slow %s, and called %s", tr.side, s.Direction)
		}
		tr.exact = tr.exact && slices.Contains(tr.is, s.Kind) && (tr.peer >= 0 || s.Direction == tr.side)
	}
	slices.Sort(suspects)
	for _, l := range tr.report.Lost {
		lost = append(lost, l.Machine)
	}
	var wantSuspects, wantLost []string
	switch {
	case tr.kind == "dead":
		wantLost = []string{c.Hosts[tr.rank].Name}
	case tr.peer >= 0:
		wantSuspects = []string{c.Hosts[min(tr.rank, tr.peer)].Name, c.Hosts[max(tr.rank, tr.peer)].Name}
	case tr.rank >= 0:
		wantSuspects = []string{c.Hosts[tr.rank].Name}
	}
	switch {
	case !slices.Equal(slices.Compact(suspects), wantSuspects):
		tr.wrong = fmt.Sprintf("suspects %q; want %q", suspects, wantSuspects)
	case !slices.Equal(lost, wantLost):
		tr.wrong = fmt.Sprintf("lost %q; want %q", lost, wantLost)
	case tr.rank < 0 && tr.report.Outcome == hunt.Found || tr.rank >= 0 && tr.report.Outcome != hunt.Found:
		tr.wrong = fmt.Sprintf("the verdict is %s", tr.report.Outcome)
	}
}

func (tr *trial) String() string {
	var b strings.Builder
	if tr.rank >= 0 {
		fmt.Fprintf(&b, "rank %d, %s; ", tr.rank, tr.what)
	}
	fmt.Fprintf(&b, "the hunt says %s", tr.report.Outcome)
	for _, s := range tr.report.Suspects {
		fmt.Fprintf(&b, ", %s is %s (%s, at %.2f of the usual, %.1f %% resent)", strings.Join(append(slices.Clone(s.Machines), s.Peers...), "+"), s.Kind, s.Direction, s.Ratio, 100*s.Resent)
	}
	for _, l := range tr.report.Lost {
		fmt.Fprintf(&b, ", %s is lost: %s", l.Machine, l.Reason)
	}
	fmt.Fprintf(&b, " in %d rounds", tr.report.Rounds)
	for _, s := range tr.report.Suspects {
		fmt.Fprintf(&b, "; %s", s.Text)
	}
	return b.String()
}

// table sums trials up.
func table(all []*trial) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "kind\ttrials\tright\twith kind and direction\tundecided\trounds, median\tseconds, median\tmost")
	for _, kind := range trialKinds {
		var right, exact, undecided int
		var rounds []int
		var walls []time.Duration
		for _, tr := range all {
			if tr.kind != kind.name {
				continue
			}
			if tr.wrong == "" {
				right++
				if tr.exact {
					exact++
				}
			}
			if tr.report.Outcome == hunt.Undecided || len(tr.report.Undecided) > 0 {
				undecided++
			}
			rounds, walls = append(rounds, tr.report.Rounds), append(walls, tr.wall)
		}
		if n := len(walls); n > 0 {
			slices.Sort(rounds)
			slices.Sort(walls)
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%.1f\t%.1f\n", kind.name, n, right, exact, undecided, rounds[n/2], walls[n/2].Seconds(), walls[n-1].Seconds())
		}
	}
	w.Flush()
	return b.String()
}
