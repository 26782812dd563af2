package coll

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

// openConformers makes a communicator for the suite, ended with the test.
func openConformers(t *testing.T, n int, set func(rank int, k *knob.Knobs)) []colltest.Comm {
	t.Helper()
	id, err := GetUniqueID(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	all, errs := make([]colltest.Comm, n), make([]error, n)
	comms := make([]*Comm, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			cfg := testConfig()
			set(r, cfg.Knobs)
			comms[r], errs[r] = CommInitRank(context.Background(), n, id, r, cfg)
			all[r] = comms[r]
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { destroyAll(t, comms) })
	return all
}

func TestConformance(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			o := colltest.Options{}
			if testing.Short() && tr.name != "shm" {
				o.Ranks = []int{2, 3, 5}
			}
			colltest.Run(t, o, func(t *testing.T, n int) []colltest.Comm { return openConformers(t, n, tr.set) })
		})
	}
}

// Every algorithm does its collective, whether the tuner would take it or not.
func TestAlgorithms(t *testing.T) {
	for _, tr := range transports {
		for c := range op.SendRecv {
			for _, a := range schedule.Algorithms(c) {
				if a == schedule.CollNet { // needs a network that reduces
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%s", tr.name, c, a), func(t *testing.T) {
					o := colltest.Options{Only: []op.Collective{c}, Ranks: []int{2, 3, 4, 7}}
					switch {
					case testing.Short() && tr.name == "mixed":
						o.Ranks = []int{5}
					case testing.Short() || tr.name != "shm":
						o.Ranks = []int{2, 5}
					}
					colltest.Run(t, o, func(t *testing.T, n int) []colltest.Comm {
						all := openConformers(t, n, tr.set)
						for _, r := range all {
							r.(*Comm).forced = &forced{c, choose.Choice{Algorithm: a, Channels: 1}}
						}
						return all
					})
				})
			}
		}
	}
}
