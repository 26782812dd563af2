package coll

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/knob"
)

// testConfig is what tests make communicators with: the environment plays no
// part, and nothing waits for long.
func testConfig() Config {
	k := knob.Default()
	k.Timeout = 20 * time.Second
	k.NetPlugin = "none" // whatever this machine has
	return Config{Knobs: k}
}

// withRanks runs f as each rank of a communicator in this process.
func withRanks(t testing.TB, n int, cfg Config, f func(c *Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	comms, err := CommInitAll(ctx, n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() {
			errs[i] = f(c)
			if errs[i] != nil {
				_ = c.Abort()
				return
			}
			errs[i] = c.Destroy()
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// transports are the ways in which the ranks of a test reach one another.
var transports = []struct {
	name string
	set  func(rank int, k *knob.Knobs)
}{
	{"shm", func(int, *knob.Knobs) {}},
	{"socket", func(_ int, k *knob.Knobs) { k.SHMDisable = true }},
	{"mixed", func(rank int, k *knob.Knobs) { k.HostID = fmt.Sprint("host", rank%2) }},
}

// withTransport is withRanks over one of the transports.
func withTransport(t testing.TB, n int, set func(rank int, k *knob.Knobs), f func(c *Comm) error) {
	t.Helper()
	id, err := GetUniqueID(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			cfg := testConfig()
			set(r, cfg.Knobs)
			c, err := CommInitRank(context.Background(), n, id, r, cfg)
			if err != nil {
				errs[r] = err
				return
			}
			if errs[r] = f(c); errs[r] != nil {
				_ = c.Abort()
				return
			}
			errs[r] = c.Destroy()
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAllReduceSum(t *testing.T) {
	for _, tr := range transports {
		for n := 1; n <= 6; n++ {
			t.Run(fmt.Sprintf("%s/%d", tr.name, n), func(t *testing.T) {
				withTransport(t, n, tr.set, func(c *Comm) error {
					for _, count := range []int{1, 2, 7, 100, 1000, 100_000, 1_000_003} {
						if err := sumOnce(c, count); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}

// sumOnce is an AllReduce, out of place and in place.
func sumOnce(c *Comm, count int) error {
	in, out := make([]float32, count), make([]float32, count)
	for i := range in {
		in[i] = float32(c.Rank()*3 + i%1000)
	}
	n := c.Size()
	for _, inPlace := range []bool{false, true} {
		if inPlace {
			copy(out, in)
			in = out
		}
		if err := c.AllReduce(Of(in), Of(out), count, Float32, Sum); err != nil {
			return err
		}
		for i, got := range out {
			if want := float32(3*n*(n-1)/2 + n*(i%1000)); got != want {
				return fmt.Errorf("%s of %d, in place %v: out[%d] = %v; want %v", c.links.Tuner.Pick(0, 4*count).Algorithm, count, inPlace, i, got, want)
			}
		}
	}
	return nil
}
