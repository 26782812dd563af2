// Package fabric is the machines of a job, with one process on each: it brings
// them together, runs commands on all of them at once, gathers what each found
// out about itself, and hunts for those that are slower than the rest. A machine
// that does not start, hangs or dies is named, and the others go on; only the
// first one's end is everybody's.
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

// A Fabric is one machine's part in it. Its methods are called by all machines, in
// the same order, one at a time.
type Fabric struct {
	group *bootstrap.Group
	o     Options
	ctx   context.Context // the process's

	mu    sync.Mutex
	names []string  // of all machines, at the first one
	last  time.Time // of the last exchange
}

// Options of a machine.
type Options struct {
	// Name is this machine's.
	Name string
	// Boot says which interfaces are used, how long to wait for the other
	// machines (Timeout), and how long nothing may be heard of one (Silence).
	Boot bootstrap.Options
	// Run runs a command of the harness, for Fabric.Run and hunts by
	// collectives.
	Run Runner
	// Lost is told at the first machine when another is lost; nil: it is not told.
	Lost func(name, why string)
}

// hello is what a machine says of itself at the beginning.
type hello struct {
	Name string `json:"name"`
}

// Join brings the machines together: all call it. Those that do not come within
// o.Boot.Timeout are lost, and the others go on. ctx is the process's: when it
// ends, the machine leaves.
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
	return f, nil
}

// christen gives each machine a name that no other has.
func (f *Fabric) christen() error {
	if f.Rank() != 0 {
		return nil
	}
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

// Rank is this machine's number, Size how many machines there were to be.
func (f *Fabric) Rank() int { return f.group.Rank() }

// Size is how many machines there were to be, the lost included.
func (f *Fabric) Size() int { return f.group.Size() }

// Name is a machine's. Only the first knows those of all.
func (f *Fabric) Name(rank int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names[rank]
}

// Lost says at the first machine which others are lost, and why.
func (f *Fabric) Lost() map[int]string { return f.group.Lost() }

// left are the machines that are not lost, at the first one.
func (f *Fabric) left() (ranks []int) {
	lost := f.group.Lost()
	for rank := range f.Size() {
		if _, is := lost[rank]; !is {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// Leave ends this machine's part. why, if not nil, is what the others are told.
func (f *Fabric) Leave(why error) { f.group.Close(why) }

// Gone ends when the first machine does; the cause says how.
func (f *Fabric) Gone() context.Context { return f.group.Context() }

// slack is how much longer than the others a machine may take in any case: one whose
// checks run into their time limits has the more to tell.
const slack = 5 * time.Minute

// exchange is the group's. A machine that is alive, and has not come after twice the
// time that went by since the last exchange, and a while, is lost: it hangs.
func (f *Fabric) exchange(b []byte, judge func(all [][]byte) ([][]byte, error)) ([]byte, error) {
	return f.exchangeWithin(slack+time.Since(f.last), b, judge)
}

func (f *Fabric) exchangeWithin(patience time.Duration, b []byte, judge func(all [][]byte) ([][]byte, error)) ([]byte, error) {
	ctx := f.ctx
	if f.Rank() == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	defer func() { f.last = time.Now() }()
	return f.group.Exchange(ctx, b, judge)
}

// Ask has each machine that is left give b, and the first judge what all gave, by
// rank and nil of a lost one. The answer is everybody's.
func (f *Fabric) Ask(b []byte, judge func(all [][]byte) ([]byte, error)) ([]byte, error) {
	return f.exchange(b, func(all [][]byte) ([][]byte, error) {
		answer, err := judge(all)
		return slices.Repeat([][]byte{answer}, len(all)), err
	})
}

// ask is Ask with values.
func ask[T, A any](f *Fabric, own T, judge func(all []*T) (A, error)) (answer A, err error) {
	b, err := json.Marshal(own)
	if err != nil {
		return answer, err
	}
	got, err := f.Ask(b, func(all [][]byte) ([]byte, error) {
		list, err := decoded[T](all)
		if err != nil {
			return nil, err
		}
		answer, err := judge(list)
		if err != nil {
			return nil, err
		}
		return json.Marshal(answer)
	})
	if err == nil {
		err = json.Unmarshal(got, &answer)
	}
	return answer, err
}

// decoded reads what machines gave; nil of a lost one.
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

// errFew: no other machine is left.
var errFew = errors.New("fewer than two machines are left")

// addr is where others reach a machine.
func addr(a netip.Addr) string { return a.WithZone("").String() }
