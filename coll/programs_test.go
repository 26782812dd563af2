package coll_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/model"
	"github.com/assay-hpc/assay/coll/model/modeltest"
)

// opened makes communicator 0 of a program, of ranks that are threads on so many hosts.
func opened(hosts int) func(ctx context.Context, p model.Program) ([]*coll.Comm, error) {
	return func(ctx context.Context, p model.Program) ([]*coll.Comm, error) {
		config := func(rank int) (coll.Config, error) {
			k, _, err := knob.Load(append(p.Env, "NCCL_CONF_FILE=/dev/null"), nil)
			if err != nil {
				return coll.Config{}, err
			}
			k.Timeout, k.NetPlugin = time.Minute, "none"
			if hosts > 1 {
				k.HostID = fmt.Sprint("host", rank%hosts)
			}
			return coll.Config{Knobs: k}, nil
		}
		cfg, err := config(0)
		if err != nil {
			return nil, err
		}
		id, err := coll.GetUniqueID(cfg)
		if err != nil {
			return nil, err
		}
		comms, errs := make([]*coll.Comm, p.Ranks), make([]error, p.Ranks)
		var wg sync.WaitGroup
		for r := range comms {
			wg.Go(func() {
				cfg, err := config(r)
				if err == nil {
					comms[r], err = coll.CommInitRank(ctx, p.Ranks, id, r, cfg)
				}
				errs[r] = err
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return nil, err
			}
		}
		return comms, nil
	}
}

// TestPrograms: random programs leave in memory what the model says: groups whose calls depend on
// one another, all types and reductions, in place and not, splits, several communicators, one to
// nine ranks on one to three hosts, and settings.
func TestPrograms(t *testing.T) {
	d := 2 * time.Minute
	if testing.Short() {
		d = 20 * time.Second
	}
	modeltest.Fuzz(t, d, model.Options{}, func(seed uint64) modeltest.Options {
		return modeltest.Options{Open: opened(1 + int(seed/2%3)), Together: seed%2 == 1, Late: seed % 5}
	})
}

// TestOddPrograms: of ranks that call a collective differently, all get an error that names who does.
func TestOddPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("what it finds takes more than seconds: make test ONLY=long runs it")
	}
	modeltest.Fuzz(t, 2*time.Minute, model.Options{Memory: 8 << 10, Steps: 4, Ranks: 5}, func(seed uint64) modeltest.Options {
		return modeltest.Options{Open: opened(1 + int(seed%3)), Odd: seed + 1}
	})
}

// TestStoppedPrograms: while one rank aborts, no other has wrong data without an error, and each gets one that names it.
func TestStoppedPrograms(t *testing.T) {
	d := 2 * time.Minute
	if testing.Short() {
		d = 10 * time.Second
	}
	modeltest.Fuzz(t, d, model.Options{Memory: 32 << 10, Ranks: 5}, func(seed uint64) modeltest.Options {
		return modeltest.Options{Open: opened(1 + int(seed%3)), Late: seed % 5, Stop: seed + 1}
	})
}

// TestPastPrograms: programs that once gave wrong results.
func TestPastPrograms(t *testing.T) {
	for _, together := range []bool{false, true} {
		modeltest.Files(t, "testdata/programs", modeltest.Options{Open: opened(1), Together: together})
	}
}
