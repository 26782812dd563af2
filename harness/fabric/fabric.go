// Package fabric joins the machines of a job, with one process on each. It runs commands on all of
// them at once, gathers the results of their own checks, and hunts for those that are slower than
// the rest. A machine that does not start, hangs or dies is named, and the others continue. If it
// was the first machine, to which all others are connected, another one becomes the first.
package fabric

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
)

// A Fabric is one machine's end of the job. All machines call its methods in the same order, one at
// a time. One machine is the first: it judges, writes, and is rank 0 until that is lost.
type Fabric struct {
	group *bootstrap.Group // in which the current operation takes place
	o     Options
	ctx   context.Context // the process's

	mu    sync.Mutex
	names []string         // of all machines, at the first one and its deputies
	next  *bootstrap.Group // differs from group after the first machine was lost, until resume
	moved chan struct{}    // closed when next changes

	last    time.Time // of the last exchange
	done    int       // operations that are complete
	outcome outcome   // of the last one

	following sync.WaitGroup // the goroutine that follows from group to group
	quit      context.CancelFunc
	ended     context.Context // ends when this machine cannot continue, with the reason
	end       context.CancelCauseFunc
}

// Options of a machine.
type Options struct {
	// Name is the name of this machine.
	Name string
	// Boot sets the interfaces to use, how long to wait for the other machines (Timeout), and how
	// long a machine may stay silent (Silence).
	Boot bootstrap.Options
	// Run runs a command of the harness, for Fabric.Run and hunts by
	// collectives.
	Run Runner
	// Lost is called on the first machine when another machine is lost, also on one that becomes
	// the first because that one was. It may be nil.
	Lost func(name, why string)
}

// hello is what a machine reports about itself when it joins.
type hello struct {
	Name string `json:"name"`
}

// Join connects the machines. All of them call it. A machine that does not join within
// o.Boot.Timeout is lost, and the others continue. ctx is the context of the process: when it ends,
// the machine leaves.
func Join(ctx context.Context, w bootstrap.World, o Options) (*Fabric, error) {
	f := &Fabric{o: o, ctx: ctx, names: make([]string, w.Size), last: time.Now()}
	for rank := range f.names {
		f.names[rank] = fmt.Sprintf("rank %d", rank)
		if host := w.Host(rank); host != "" {
			f.names[rank] = host
		}
	}
	f.names[w.Rank] = o.Name
	me, err := json.Marshal(hello{o.Name})
	if err != nil {
		return nil, err
	}
	o.Boot.OnDeath = func(rank int, why string) {
		if o.Lost != nil {
			o.Lost(f.Name(rank), why)
		}
	}
	f.group, err = bootstrap.Await(ctx, w, me, o.Boot)
	if err != nil {
		return nil, fmt.Errorf("finding the other machines of the job (%s): %w", w.Launcher, err)
	}
	if err := f.christen(); err != nil {
		f.group.Close(err)
		return nil, err
	}
	f.next, f.moved = f.group, make(chan struct{})
	f.ended, f.end = context.WithCancelCause(context.Background())
	ctx, f.quit = context.WithCancel(ctx)
	f.following.Go(func() { f.follow(ctx, f.group) })
	return f, nil
}

// christen gives each machine a unique name.
func (f *Fabric) christen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := map[string]int{}
	for rank := range f.names {
		if b := f.group.Here(rank); b != nil {
			var h hello
			if err := json.Unmarshal(b, &h); err != nil {
				return fmt.Errorf("rank %d says of itself %.80q: all machines must run the same harness", rank, b)
			}
			f.names[rank] = h.Name
		}
		name := f.names[rank]
		if count[name]++; count[name] > 1 {
			f.names[rank] = fmt.Sprintf("%s (rank %d)", name, rank)
		}
	}
	return nil
}

// Rank returns this machine's rank.
func (f *Fabric) Rank() int { return f.group.Rank() }

// Size returns the planned number of machines, including the lost ones.
func (f *Fabric) Size() int { return f.group.Size() }

// First reports whether this machine is the first.
func (f *Fabric) First() bool { return f.Rank() == f.group.Root() }

// Name returns the name of a machine. Only the first machine and its deputies know all names.
func (f *Fabric) Name(rank int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names[rank]
}

// Lost returns, on the first machine, the lost machines and the reasons.
func (f *Fabric) Lost() map[int]string { return f.group.Lost() }

// left returns, on the first machine, the machines that are not lost.
func (f *Fabric) left() (ranks []int) {
	lost := f.group.Lost()
	for rank := range f.Size() {
		if _, is := lost[rank]; !is {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// Minority reports, on the first machine, whether fewer than half of the machines that joined are
// left. If the others were not lost but cannot be reached, they have another first machine.
func (f *Fabric) Minority() bool {
	joined := 0
	for rank := range f.Size() {
		if f.group.Here(rank) != nil {
			joined++
		}
	}
	return 2*len(f.left()) < joined
}

// Stopped returns an error if this process was stopped for so long that the others go on without
// it, and have another first machine if it was that.
func (f *Fabric) Stopped() error { return f.group.Stopped() }

// Leave ends this machine's part. If why is not nil, it is sent to the others.
func (f *Fabric) Leave(why error) {
	f.quit()
	f.following.Wait()
	f.next.Close(why)
	f.end(bootstrap.ErrClosed)
}

// slack is how much longer than the others a machine may always take: a machine with checks that
// run into their time limits is late, but has the most to report.
const slack = 5 * time.Minute

// exchange is Group.Exchange with a timeout. A machine that is alive counts as hung, and is lost,
// if it does not arrive within slack plus twice the time since the last exchange.
func (f *Fabric) exchange(b []byte, judge func(all [][]byte) ([][]byte, error)) ([]byte, error) {
	return f.exchangeWithin(slack+time.Since(f.last), b, judge)
}

func (f *Fabric) exchangeWithin(patience time.Duration, b []byte, judge func(all [][]byte) ([][]byte, error)) ([]byte, error) {
	ctx := f.ctx
	if f.First() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	defer func() { f.last = time.Now() }()
	return f.group.Exchange(ctx, b, judge)
}

// Ask sends b of each remaining machine to the first one, which calls judge with all of them, by
// rank (nil for a lost machine). All machines receive judge's answer.
func (f *Fabric) Ask(b []byte, judge func(all [][]byte) ([]byte, error)) ([]byte, error) {
	return f.operation(func() ([]byte, error) { return f.ask(b, judge) })
}

// ask is Ask as a part of an operation.
func (f *Fabric) ask(b []byte, judge func(all [][]byte) ([]byte, error)) ([]byte, error) {
	return f.exchange(b, func(all [][]byte) ([][]byte, error) {
		answer, err := judge(all)
		return slices.Repeat([][]byte{answer}, len(all)), err
	})
}

// decoded decodes the values of the machines; nil for a lost machine.
func decoded[T any](all [][]byte) ([]*T, error) {
	out := make([]*T, len(all))
	for rank, b := range all {
		if b == nil {
			continue
		}
		out[rank] = new(T)
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(out[rank]); err != nil {
			return nil, fmt.Errorf("rank %d gave %.80q: all machines must run the same harness with the same flags", rank, b)
		}
	}
	return out, nil
}

// errFew means that no other machine is left.
var errFew = errors.New("fewer than two machines are left")

// addr returns the address at which others reach a machine.
func addr(a netip.Addr) string { return a.WithZone("").String() }
