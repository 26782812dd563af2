package report

import (
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/result"
)

// TestResults: what one kind of checks found, as a command of the harness prints it. Checks
// that say the very same are told once.
func TestResults(t *testing.T) {
	lost := func(id string) result.Result {
		return result.Result{ID: id, Title: "something of " + id, Verdict: result.Error, Reason: "GPU 6: no answer in time", Objects: []result.Object{
			{Name: "GPU 5", ID: "GPU-5", Bus: "0000:15:00.0", Verdict: result.Pass, Reason: "0 errors"},
			{Name: "GPU 6", ID: "GPU-6", Verdict: result.Error, Reason: "no answer in time"},
		}}
	}
	r := &result.Report{Kind: "health", Seconds: 0.62, Results: []result.Result{
		lost("gpu/answers"), lost("gpu/ecc/mode"), lost("gpu/mig"),
		{ID: "gpu/row-remap/failed", Title: "every bad row could be remapped", Verdict: result.Fail, Reason: "GPU 3: a bad row of memory could not be remapped",
			Wanted: "none failed (DCGM)", Remedy: "drain the node; run the vendor's field diagnosis, replace the GPU", Objects: []result.Object{
				{Name: "GPU 3", ID: "GPU-3", Bus: "0000:13:00.0", Verdict: result.Fail, Reason: "a bad row of memory could not be remapped"},
				{Name: "GPU 4", ID: "GPU-4", Bus: "0000:14:00.0", Verdict: result.Pass, Reason: "no"},
			}},
		{ID: "gpu/xid", Title: "no GPU reported an error", Verdict: result.Warn, Reason: "GPU 3: Xid 13 (name=\x1b[2J)", Wanted: "none", Remedy: "look at the job"},
		{ID: "node/shm", Title: "/dev/shm is large enough", Verdict: result.Pass, Measured: &result.Measurement{Value: 8, Unit: "GiB"}},
		{ID: "port/count", Title: "all ports are there", Verdict: result.Skip, Reason: "nobody said how many"},
	}}
	r.Sum()
	for name, opt := range map[string]TextOptions{
		"results.txt":       {Head: []string{"GPU 3: NVIDIA H200", "GPU 4: NVIDIA\x1b[2J H200"}},
		"results-quiet.txt": {Quiet: true, Color: true},
	} {
		var b strings.Builder
		if err := Results(&b, r, opt); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "\x1b[2J") {
			t.Errorf("%s: what was read steers the terminal", name)
		}
		golden.Check(t, name, b.String())
	}
}
