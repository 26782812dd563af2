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
	rank   int            // of the host; -1: nothing was done to any
	what   string         // was done to it
	side   hunt.Direction // in which it is slow
	report *fabric.HuntReport
	wall   time.Duration
	wrong  string // why it is wrong
	exact  bool   // kind and direction are right as well
	output string
}

// A trialKind is done to a host: at first, or while the hunt is at work. It
// says what it was.
type trialKind struct {
	name string
	fail func(tr *trial, rng *rand.Rand, h *clustertest.Host) (what string, later func() error)
}

var trialKinds = []trialKind{
	{"half rate", func(_ *trial, _ *rand.Rand, h *clustertest.Host) (string, func() error) {
		h.SetLink(clustertest.Link{Send: trialRate / 2, Receive: trialRate / 2})
		return "half the rate, both ways", nil
	}},
	{"2 % loss", func(_ *trial, _ *rand.Rand, h *clustertest.Host) (string, func() error) {
		h.SetLink(clustertest.Link{Send: trialRate, Receive: trialRate, SendLoss: 0.02, ReceiveLoss: 0.02})
		return "2 % of packets lost, both ways", nil
	}},
	{"one direction", func(tr *trial, rng *rand.Rand, h *clustertest.Host) (string, func() error) {
		l := clustertest.Link{Send: trialRate, Receive: trialRate}
		if tr.side = hunt.Sending; rng.IntN(2) == 0 {
			tr.side, l.Receive = hunt.Receiving, trialRate/2
		} else {
			l.Send = trialRate / 2
		}
		h.SetLink(l)
		return "half the rate, " + string(tr.side), nil
	}},
	{"dead", func(tr *trial, rng *rand.Rand, h *clustertest.Host) (string, func() error) {
		switch rng.IntN(3) {
		case 0:
			return "killed", func() error { h.Kill(); return nil }
		case 1:
			return "frozen", h.Freeze
		}
		return "its link cut", h.Cut
	}},
	{"clean", nil},
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
	tr := &trial{kind: kind.name, seed: seed, rank: -1, side: hunt.Both}
	var later func() error
	// The first machine's is where the report is written, so it cannot be dead.
	first, moment := 0, time.Duration(0)
	if kind.name == "dead" {
		first, moment = 1, 300*time.Millisecond+time.Duration(rng.Int64N(int64(time.Second)))
	}
	var host *clustertest.Host
	if kind.fail != nil {
		tr.rank = first + rng.IntN(len(c.Hosts)-first)
		host = c.Hosts[tr.rank]
		tr.what, later = kind.fail(tr, rng, host)
	}
	ctx, end := context.WithTimeout(t.Context(), 10*time.Minute)
	defer end()
	j := c.job(ctx, fmt.Sprintf("%s-%d", strings.Fields(kind.name)[0], seed), nil, "hunt", "--tool", "tcp", "--duration", "150ms", "--silence", "3s", "--output", "json", "--seed", strconv.FormatUint(seed, 10))
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
		host.Link = clustertest.Link{Send: trialRate, Receive: trialRate}
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
		suspects = append(suspects, s.Machines...)
		if s.Direction != tr.side && s.Direction != hunt.Both && tr.side != hunt.Both {
			tr.wrong = fmt.Sprintf("it is slow %s, and said to be %s", tr.side, s.Direction)
		}
		kind := hunt.Slow
		if tr.kind == "2 % loss" {
			kind = hunt.Lossy
		}
		tr.exact = tr.exact && s.Kind == kind && s.Direction == tr.side
	}
	for _, l := range tr.report.Lost {
		lost = append(lost, l.Machine)
	}
	var wantSuspects, wantLost []string
	switch {
	case tr.kind == "dead":
		wantLost = []string{c.Hosts[tr.rank].Name}
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
		fmt.Fprintf(&b, ", %s is %s (%s, at %.2f of the usual, %.1f %% resent)", strings.Join(s.Machines, "+"), s.Kind, s.Direction, s.Ratio, 100*s.Resent)
	}
	for _, l := range tr.report.Lost {
		fmt.Fprintf(&b, ", %s is lost: %s", l.Machine, l.Reason)
	}
	fmt.Fprintf(&b, " in %d rounds", tr.report.Rounds)
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
