package fabric

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/hunt"
)

// A driver runs the hunts on the first machine, one for each kind of port, and turns the
// measurements that they request into tasks for each machine.
type driver struct {
	f      *Fabric
	o      HuntOptions
	plan   plan
	setups []*setup
	hunts  []*running
	cancel context.CancelFunc
}

// A running is one hunt. It runs on its own goroutine and blocks while it waits for a measurement.
type running struct {
	port   string
	seats  []int // rank of each of its nodes
	asks   chan request
	gives  chan []hunt.Sample
	done   chan struct{}
	report *hunt.Report
	err    error

	groups [][]int          // being measured, by node
	quiet  bool             // with small packets alone
	parts  []partialResults // results so far, by group
}

// A request is what a hunt wants measured.
type request struct {
	groups [][]int
	quiet  bool
}

// A partialResults holds the results of a group so far.
type partialResults struct {
	first found   // of the first machine
	ends  [2]Ends // of a pair
	err   error
}

// newDriver chooses the tool and starts the hunts.
func newDriver(ctx context.Context, f *Fabric, o HuntOptions, setups []*setup) (*driver, error) {
	d := &driver{f: f, o: o, setups: setups, plan: plan{Tool: o.Tool, Duration: o.Duration, Bytes: o.Bytes}}
	left := f.left()
	switch {
	case len(left) < 2:
		return nil, errFew
	case len(left) < 3 && o.Tool == Coll:
		return nil, errors.New("a hunt by collectives takes three machines: two are one group, and there is none to compare it with")
	}
	ports := map[string][]int{}
	for _, rank := range left {
		for _, port := range setups[rank].Ports {
			ports[port] = append(ports[port], rank)
		}
	}
	// A port name that fewer than half of the machines have is not a kind of port of the cluster.
	maps.DeleteFunc(ports, func(_ string, ranks []int) bool { return len(ranks) < 2 || 2*len(ranks) < len(left) })
	switch {
	case o.Tool == RDMA && len(ports) == 0:
		return nil, errors.New("no RDMA port that is up has the same name on two machines and on half of all")
	case o.Tool == Auto && len(ports) > 0:
		d.plan.Tool = RDMA
	case o.Tool == Auto:
		d.plan.Tool = TCP
	}
	if d.plan.Duration == 0 {
		d.plan.Duration = map[Tool]time.Duration{TCP: 200 * time.Millisecond}[d.plan.Tool]
	}
	if d.plan.Duration == 0 {
		d.plan.Duration = 500 * time.Millisecond
	}
	if d.plan.Tool != RDMA {
		ports = map[string][]int{"": left}
	}
	ctx, d.cancel = context.WithCancel(ctx)
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		d.start(ctx, port, ports[port])
	}
	return d, nil
}

// start starts a hunt among the given machines.
func (d *driver) start(ctx context.Context, port string, seats []int) {
	r := &running{port: port, seats: seats, asks: make(chan request), gives: make(chan []hunt.Sample), done: make(chan struct{})}
	o := d.o.Options
	if d.plan.Tool != Coll {
		o.GroupSize = 0
	} else {
		o.GroupSize = min(o.GroupSize, len(seats))
	}
	o.Switch, o.Groups = d.groups(seats)
	if begun := time.Now(); d.o.For > 0 && d.plan.Tool != Coll {
		o.Watch = func() bool { return time.Since(begun) < d.o.For }
	}
	if d.plan.Tool == RDMA {
		o.LateBy, o.HeldBy = lateBy, heldBy
	}
	if len(d.hunts) == 0 {
		o.Progress = d.o.Progress
	}
	d.hunts = append(d.hunts, r)
	go func() {
		defer close(r.done)
		r.report, r.err = hunt.Run(ctx, len(seats), func(ctx context.Context, groups [][]int, quiet bool) ([]hunt.Sample, error) {
			select {
			case r.asks <- request{groups, quiet}:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			select {
			case samples := <-r.gives:
				return samples, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}, o)
	}()
}

// leastSwitch is how many machines a switch has, at least, on average, where smaller groups are known.
const leastSwitch = 4

// groups numbers the machines' switches, and the other groups that their places name ("pod.rack.tray"),
// the largest first. It returns nil if the place of any machine is unknown.
func (d *driver) groups(seats []int) (switches []int, groups [][]int) {
	depth := math.MaxInt
	for _, rank := range seats {
		at := d.setups[rank].At
		if at == "" {
			return nil, nil
		}
		depth = min(depth, strings.Count(at, "."))
	}
	known := 1 // groups of the level above
	for level := range depth + 1 {
		number := map[string]int{}
		var of []int
		for _, rank := range seats {
			at := d.setups[rank].At
			if level < depth {
				at = strings.Join(strings.Split(at, ".")[:level+1], ".")
			}
			if _, is := number[at]; !is {
				number[at] = len(number)
			}
			of = append(of, number[at])
		}
		if len(number) == known {
			continue
		}
		known = len(number)
		if switches == nil || len(seats) >= leastSwitch*known {
			switches = of
		}
		groups = append(groups, of)
	}
	return switches, groups
}

// group returns the name of the group that some machines are, or "".
func (d *driver) group(ranks []int) string {
	if len(ranks) < 2 {
		return ""
	}
	lost := d.f.Lost()
	for at := d.setups[ranks[0]].At; at != ""; at = at[:max(0, strings.LastIndexByte(at, '.'))] {
		same := true
		for rank, s := range d.setups {
			inside := s != nil && (s.At == at || strings.HasPrefix(s.At, at+"."))
			if _, is := lost[rank]; inside != slices.Contains(ranks, rank) && !is {
				same = false
			}
		}
		if same {
			return at
		}
	}
	return ""
}

// stop cancels the hunts and waits for them.
func (d *driver) stop() {
	d.cancel()
	for _, r := range d.hunts {
		<-r.done
	}
}

// next processes the results of all machines and returns the next task for each.
func (d *driver) next(all [][]byte) ([][]byte, error) {
	lost := d.f.Lost()
	results, err := decoded[[]found](all)
	if err != nil {
		return nil, err
	}
	for rank, list := range results {
		if list == nil {
			continue
		}
		for _, one := range *list {
			if err := d.take(rank, one); err != nil {
				return nil, err
			}
		}
	}
	tasks := make([]task, len(all))
	going := 0
	for number, r := range d.hunts {
		if r.groups != nil {
			select {
			case r.gives <- r.samples(lost):
			case <-r.done:
			}
			r.groups = nil
		}
		select {
		case ask := <-r.asks:
			r.groups, r.quiet = ask.groups, ask.quiet
			going++
			d.assign(number, r, lost, tasks)
		case <-r.done:
		}
	}
	if going == 0 || len(d.f.left()) < 2 {
		for rank := range tasks {
			tasks[rank] = task{End: true}
		}
	}
	out := make([][]byte, len(all))
	for rank := range out {
		if out[rank], err = json.Marshal(tasks[rank]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// assign tells the members of each group what to do.
func (d *driver) assign(number int, r *running, lost map[int]string, tasks []task) {
	r.parts = make([]partialResults, len(r.groups))
	for g, group := range r.groups {
		token := ""
		if d.plan.Tool == Coll {
			token = rand.Text()
		}
		if slices.ContainsFunc(group, func(node int) bool { _, is := lost[r.seats[node]]; return is }) {
			continue // samples reports the loss
		}
		for me, node := range group {
			rank := r.seats[node]
			j := job{Hunt: number, Group: g, Me: me, Size: len(group), Port: r.port, Token: token, Quiet: r.quiet}
			switch {
			case d.plan.Tool == Coll:
				j.First = d.setups[r.seats[group[0]]].Host
			case me == 0 && d.plan.Tool == TCP:
				j.Peer = d.setups[r.seats[group[1]]].Addr
			case me == 0:
				j.Peer = d.setups[r.seats[group[1]]].Host
			}
			tasks[rank].Jobs = append(tasks[rank].Jobs, j)
		}
	}
}

// take stores one result of a machine in the part of its group.
func (d *driver) take(rank int, one found) error {
	if one.Hunt < 0 || one.Hunt >= len(d.hunts) {
		return fmt.Errorf("%s has a result of hunt %d; there are %d", d.f.Name(rank), one.Hunt, len(d.hunts))
	}
	r := d.hunts[one.Hunt]
	if one.Group < 0 || one.Group >= len(r.groups) || one.Me < 0 || one.Me >= len(r.groups[one.Group]) || r.seats[r.groups[one.Group][one.Me]] != rank {
		return fmt.Errorf("%s has a result of a group that it is not in", d.f.Name(rank))
	}
	p := &r.parts[one.Group]
	if one.Error != "" {
		p.err = errors.Join(p.err, fmt.Errorf("%s: %s", d.f.Name(rank), one.Error))
	}
	if one.Me == 0 {
		p.first = one
	}
	if one.Me < len(p.ends) {
		p.ends[one.Me] = one.Ends
	}
	return nil
}

// samples returns the results of the round. A group with a lost member has no value.
func (r *running) samples(lost map[int]string) []hunt.Sample {
	out := make([]hunt.Sample, len(r.groups))
	for g, group := range r.groups {
		p, s := &r.parts[g], &out[g]
		for _, node := range group {
			if why, is := lost[r.seats[node]]; is {
				s.Dead = append(s.Dead, node)
				s.Err = errors.New(why)
			}
		}
		switch {
		case s.Err != nil:
		case p.err != nil:
			s.Err = p.err
		case p.first.There == nil:
			s.Err = errors.New("nothing was measured")
		default:
			s.Flow, s.RTT, s.Tail, s.Tries = *p.first.There, p.first.RTT, p.first.Tail, p.first.Tries
			s.Resent = max(s.Resent, p.ends[0].Large.resentShare())
			if p.first.Back != nil {
				back := *p.first.Back
				back.Resent = max(back.Resent, p.ends[1].Large.resentShare())
				addCounted(p.ends, p.first.Held, &s.Packets, &back.Packets)
				s.Back = &back
			}
		}
	}
	return out
}

// A door is where the listening machine of a pair accepts its peer.
type door struct {
	Hunt  int    `json:"hunt"`
	Group int    `json:"group"`
	At    Doors  `json:"at"`
	Error string `json:"error,omitempty"`
}

// route tells the measuring machines where their peers listen.
func (d *driver) route(all [][]byte) ([][]byte, error) {
	lists, err := decoded[[]door](all)
	if err != nil {
		return nil, err
	}
	to := make([][]door, len(all))
	for rank, list := range lists {
		if list == nil {
			continue
		}
		for _, at := range *list {
			if at.Hunt < 0 || at.Hunt >= len(d.hunts) || at.Group < 0 || at.Group >= len(d.hunts[at.Hunt].groups) {
				return nil, fmt.Errorf("%s waits for a pair that there is not", d.f.Name(rank))
			}
			r := d.hunts[at.Hunt]
			first := r.seats[r.groups[at.Group][0]]
			to[first] = append(to[first], at)
		}
	}
	out := make([][]byte, len(all))
	for rank := range out {
		if out[rank], err = json.Marshal(to[rank]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
