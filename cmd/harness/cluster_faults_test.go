package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/clustertest"
	"github.com/assay-hpc/assay/internal/result"
)

// TestClusterFaults: a host dies, hangs, or is cut off while all work together, or
// is not there at all. The run ends, and the certificate names the host. If it is the
// first one, another writes it.
func TestClusterFaults(t *testing.T) {
	c := newLabour(t, clustertest.Options{})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, tt := range []struct {
		name  string
		first bool                            // it is the first host
		fault func(h *clustertest.Host) error // nil: the host's harness is not started
	}{
		{"killed", false, func(h *clustertest.Host) error { h.Kill(); return nil }},
		{"frozen", false, (*clustertest.Host).Freeze},
		{"cut", false, (*clustertest.Host).Cut},
		{"absent", false, nil},
		{"first-killed", true, func(h *clustertest.Host) error { h.Kill(); return nil }},
		{"first-frozen", true, (*clustertest.Host).Freeze},
		{"first-cut", true, (*clustertest.Host).Cut},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rank, moment := 1+rng.IntN(len(c.Hosts)-1), time.Duration(rng.Int64N(int64(300*time.Millisecond)))
			if tt.first {
				rank = 0
			}
			host := c.Hosts[rank]
			ctx, end := context.WithTimeout(t.Context(), 4*time.Minute)
			defer end()
			var absent []int
			if tt.fault == nil {
				absent = append(absent, rank)
			}
			j := c.job(ctx, tt.name, absent, "certify", "--suite", "/shared/fabric.yaml", "--out", "/shared/"+tt.name+"/", "--wait", "20s", "--silence", "5s")
			if tt.fault != nil {
				// The pattern does not match itself.
				at := host.Command(ctx, "sh", "-c", "until grep -qs 'all_[r]educe' /proc/[0-9]*/cmdline; do sleep 0.02; done")
				if out, err := at.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				time.Sleep(moment)
				if err := tt.fault(host); err != nil {
					t.Fatal(err)
				}
			}
			j.wait(rank)
			host.Kill() // a frozen one never ends
			j.wait(-1)
			host.Boot()
			if ctx.Err() != nil {
				t.Fatalf("%s, %v after the start of what they do together: the run did not end within minutes\n%s", host.Name, moment, j)
			}
			t.Logf("%s, %v after the start of what they do together: the last ended after %v", host.Name, moment, j.last(rank))
			c.named(t, tt.name, rank, j)
		})
	}
}

// last returns when the last rank but one ended.
func (j *clusterJob) last(but int) (wall time.Duration) {
	for i, r := range j.ranks {
		if i != but {
			wall = max(wall, r.wall)
		}
	}
	return wall
}

// named wants a certificate in which one host could not be certified, and the
// others were.
func (c *labour) named(t *testing.T, dir string, rank int, j *clusterJob) {
	t.Helper()
	verdicts := map[string]result.Result{}
	for _, r := range c.certificate(t, filepath.Join(dir, "certificate.json")).Predicate.Results {
		verdicts[r.ID] = r
		if strings.HasPrefix(r.ID, "node/") {
			t.Logf("%s: %s %s", r.ID, r.Verdict, r.Reason)
		}
	}
	for i, h := range c.Hosts {
		want, r := result.Pass, verdicts["node/"+h.Name]
		if i == rank {
			want = result.Error
			if r.ID == "" {
				r = verdicts[fmt.Sprintf("node/rank %d", rank)] // it never said its name
			}
		}
		if r.Verdict != want || want == result.Error && r.Reason == "" {
			t.Errorf("%s: %q, %q; want %s\n%s", h.Name, r.Verdict, r.Reason, want, j)
		}
	}
}
