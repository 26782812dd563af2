package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/assay-hpc/assay/coll/bootstrap"
)

// What happens when the first machine is lost: follow connects this machine to the next first one
// at once, also while it does something else. The operation in which machines are at that moment
// begins again: they first agree in resume which one that is. All machines call the same operations
// in the same order, and an operation ends with an answer to all, so some may have had the answer
// and others not; those get it from the former.

// An outcome is the answer with which an operation ended on all machines.
type outcome struct {
	Done   int    `json:"done"` // operations that are complete
	Answer []byte `json:"answer,omitempty"`
	Error  string `json:"error,omitempty"`
}

// follow keeps this machine connected to the first machine, whichever that is.
func (f *Fabric) follow(ctx context.Context, g *bootstrap.Group) {
	for {
		select {
		case <-g.Context().Done():
		case <-ctx.Done():
			f.end(context.Cause(ctx))
			return
		}
		next, err := g.Next(ctx) // an error if the first machine ended the job
		if err != nil {
			f.end(err)
			return
		}
		g = next
		f.mu.Lock()
		f.next = next
		close(f.moved)
		f.moved = make(chan struct{})
		f.mu.Unlock()
	}
}

// firstLost reports whether the first machine was lost during the current operation.
func (f *Fabric) firstLost() bool {
	return errors.Is(context.Cause(f.group.Context()), bootstrap.ErrLost)
}

// operation runs what all machines do together, again if the first machine is lost meanwhile. do
// returns the answer that all machines have at its end.
func (f *Fabric) operation(do func() ([]byte, error)) ([]byte, error) {
	for {
		missed, err := f.resume()
		switch {
		case err != nil:
			return nil, err
		case missed != nil:
			f.done, f.outcome = f.done+1, *missed
			if missed.Error != "" {
				return nil, errors.New(missed.Error)
			}
			return missed.Answer, nil
		}
		answer, err := do()
		if err != nil && f.firstLost() {
			continue
		}
		f.done, f.outcome = f.done+1, outcome{Answer: answer}
		if err != nil {
			f.outcome.Error = err.Error()
		}
		return answer, err
	}
}

// resume returns when this machine is connected to a first one, and has agreed with the others
// which operation is next. If that is a later one than this machine's, the outcome of this
// machine's is returned.
func (f *Fabric) resume() (missed *outcome, err error) {
	for {
		moved, err := f.connected()
		if !moved || err != nil {
			return nil, err
		}
		b, err := json.Marshal(outcome{f.done, f.outcome.Answer, f.outcome.Error})
		if err != nil {
			return nil, err
		}
		b, err = f.exchange(b, missing)
		switch {
		case err == nil && len(b) == 0:
			return nil, nil
		case err == nil:
			missed = new(outcome)
			if err = json.Unmarshal(b, missed); err == nil && missed.Done != f.done+1 {
				err = fmt.Errorf("this machine has done %d steps and others %d: all machines must run the same suite with the same flags", f.done, missed.Done)
			}
			return missed, err
		case !f.firstLost():
			return nil, err
		}
	}
}

// connected waits until this machine is connected to a first one, and reports whether that is
// another one than before.
func (f *Fabric) connected() (moved bool, err error) {
	for {
		f.mu.Lock()
		next, change := f.next, f.moved
		f.mu.Unlock()
		if next != f.group {
			f.group = next
			return true, nil
		}
		if !f.firstLost() {
			return false, nil
		}
		select {
		case <-change:
		case <-f.ended.Done():
			return false, context.Cause(f.ended)
		}
	}
}

// missing answers the machines that have missed the last outcome with it.
func missing(all [][]byte) ([][]byte, error) {
	states, err := decoded[outcome](all)
	if err != nil {
		return nil, err
	}
	var latest outcome
	for _, s := range states {
		// Some have more of it than others: see share.
		if s != nil && (s.Done > latest.Done || s.Done == latest.Done && len(s.Answer) > len(latest.Answer)) {
			latest = *s
		}
	}
	b, err := json.Marshal(latest)
	if err != nil {
		return nil, err
	}
	answers := make([][]byte, len(all))
	for rank, s := range states {
		if s != nil && s.Done < latest.Done {
			answers[rank] = b
		}
	}
	return answers, nil
}

// Together runs what all machines do together, and what the first one does with the result. do is
// called again if the first machine is lost before it has done that.
func (f *Fabric) Together(do func() error) error {
	_, err := f.operation(func() ([]byte, error) {
		if err := do(); err != nil {
			return nil, err
		}
		return f.ask(nil, func([][]byte) ([]byte, error) { return nil, nil })
	})
	return err
}

// UntilGone returns a context that ends with ctx, and when this machine cannot continue, because
// the first machine left, or was lost and no other takes over.
func (f *Fabric) UntilGone(ctx context.Context) (context.Context, func()) {
	return until(ctx, f.ended)
}

// untilLost returns a context that ends with ctx, and when the first machine is lost.
func (f *Fabric) untilLost(ctx context.Context) (context.Context, func()) {
	return until(ctx, f.group.Context())
}

func until(ctx, gone context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(gone, func() { cancel(context.Cause(gone)) })
	return ctx, func() { stop(); cancel(nil) }
}
