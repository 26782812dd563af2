package coll

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
)

// withLanes runs f on every rank of a communicator, with lanes of an executor's.
func withLanes(t *testing.T, ranks, lanes int, set func(rank int, k *knob.Knobs), f func(c *Comm, on []executor.Lane) error) []error {
	t.Helper()
	fakes(t)
	open := fakeGPUs.Open
	var of sync.Map // by rank
	fakeGPUs.Open = func(ctx context.Context, cfg executor.Config) (executor.Executor, error) {
		var on []executor.Lane
		for range lanes {
			l, err := cfg.Host.Lane(ctx)
			if err != nil {
				return nil, err
			}
			on = append(on, l)
			of.Store(cfg.Rank, on)
		}
		return open(ctx, cfg)
	}
	id, err := GetUniqueID(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, ranks)
	var wg sync.WaitGroup
	for r := range ranks {
		wg.Go(func() {
			cfg := deviceConfig(ranks)
			cfg.Device = &cfg.Devices[r]
			set(r, cfg.Knobs)
			c, err := CommInitRank(t.Context(), ranks, id, r, cfg)
			v, _ := of.Load(r)
			on, _ := v.([]executor.Lane)
			if err == nil { // else another rank has aborted by now
				err = f(c, on)
			}
			errs[r] = err
			for _, l := range on {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			switch {
			case c == nil:
			case err != nil:
				_ = c.Abort()
			default:
				errs[r] = c.Destroy()
			}
		})
	}
	wg.Wait()
	return errs
}

// TestLanes: lanes of an executor and the communicator itself do different operations
// at the same time, over every transport.
func TestLanes(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			colltest.Watch(t)
			const ranks, rounds = 3, 50
			errs := withLanes(t, ranks, 3, tr.set, func(c *Comm, on []executor.Lane) error {
				errs := make([]error, len(on)+1)
				var wg sync.WaitGroup
				for i, do := range []func(*op.Op) error{on[0].Do, on[1].Do, on[2].Do, c.Do} {
					wg.Go(func() { errs[i] = rotate(do, c.Rank(), ranks, rounds, 10+i) })
				}
				wg.Wait()
				return errors.Join(errs...)
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		})
	}
}

// rotate does AllReduces, and Sends and Recvs around the ring, of different sizes
// by lane, and looks at what comes of them.
func rotate(do func(*op.Op) error, rank, ranks, rounds, seed int) error {
	for k := range rounds {
		n := seed*k*k + 1
		send, recv := make([]byte, n), make([]byte, n)
		for i := range send {
			send[i] = byte(seed + k + rank)
		}
		if err := do(&op.Op{Coll: op.AllReduce, Send: send, Recv: recv, Count: n, Type: Uint8, Red: Max}); err != nil {
			return err
		}
		if want := byte(seed + k + ranks - 1); recv[0] != want || recv[n-1] != want {
			return fmt.Errorf("round %d of %d: %d and %d; want %d", k, seed, recv[0], recv[n-1], want)
		}
		next, last := (rank+1)%ranks, (rank+ranks-1)%ranks
		if err := do(&op.Op{Coll: op.SendRecv, Transfers: []op.Transfer{{Peer: next, Data: send, Send: true}, {Peer: last, Data: recv}}}); err != nil {
			return err
		}
		if want := byte(seed + k + last); recv[0] != want || recv[n-1] != want {
			return fmt.Errorf("round %d of %d: received %d and %d; want %d", k, seed, recv[0], recv[n-1], want)
		}
	}
	return nil
}

// TestLaneFails: what fails in a lane has failed for the communicator and all its
// lanes, and an Abort ends what they are doing.
func TestLaneFails(t *testing.T) {
	for name, end := range map[string]func(c *Comm, l executor.Lane) error{
		"a wrong operation": func(c *Comm, l executor.Lane) error {
			b := make([]byte, 8*(1+c.Rank()))
			return l.Do(&op.Op{Coll: op.AllReduce, Send: b, Recv: b, Count: len(b), Type: Uint8})
		},
		"an abort": func(c *Comm, _ executor.Lane) error {
			if c.Rank() == 0 {
				return c.Abort()
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			colltest.Watch(t)
			errs := withLanes(t, 2, 2, transports[0].set, func(c *Comm, on []executor.Lane) error {
				waits := make(chan error)
				go func() { // rank 1 does not call it
					if c.Rank() == 1 {
						waits <- nil
						return
					}
					b := make([]byte, 64)
					waits <- on[1].Do(&op.Op{Coll: op.Broadcast, Root: 1, Send: b, Recv: b, Count: len(b), Type: Uint8})
				}()
				err := end(c, on[0])
				if waited := <-waits; c.Rank() == 0 && waited == nil {
					t.Error("the other lane's operation went well")
				}
				if c.AsyncError() == nil && c.Rank() == 0 {
					t.Error("the communicator is whole")
				}
				return errors.Join(err, c.AsyncError())
			})
			if errs[0] == nil {
				t.Error("rank 0 heard nothing")
			}
		})
	}
}
