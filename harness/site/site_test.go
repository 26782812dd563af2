package site

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

func statement(results ...result.Result) *certificate.Statement {
	return certificate.New(certificate.Predicate{Suite: "node", Results: results})
}

func TestReason(t *testing.T) {
	fail := func(id, reason, remedy string, objects ...result.Object) result.Result {
		return result.Result{ID: id, Verdict: result.Fail, Reason: reason, Remedy: remedy, Objects: objects}
	}
	good := result.Object{Name: "GPU 0", Verdict: result.Pass}
	bad := result.Object{Name: "GPU 3", Verdict: result.Fail, Reason: "2 errors"}
	pair := result.Object{Name: "GPU 3", Peer: "GPU 4", Verdict: result.Fail, Reason: "slow"}
	pass := result.Result{ID: "a", Verdict: result.Pass}
	broken := result.Result{ID: "b", Verdict: result.Error, Reason: "timed out"}
	skip := result.Result{ID: "c", Verdict: result.Skip, Reason: "no GPU"}
	for _, tt := range []struct {
		name  string
		st    *certificate.Statement
		limit int
		want  string
	}{
		{"pass", statement(pass, skip), 200, ""},
		{"nothing shown", statement(skip), 200, "assay: every check was skipped: nothing was shown"},
		{"no object", statement(pass, fail("gpu/count", "7 GPUs, not 8", "")), 200, "assay: gpu/count: 7 GPUs, not 8"},
		{"object", statement(fail("gpu/ecc", "2 errors", "reset the GPU", good, bad)), 200, "assay: gpu/ecc: GPU 3: 2 errors; reset the GPU"},
		{"named already", statement(fail("gpu/ecc", "GPU 3: 2 errors", "reset the GPU", good, bad)), 200, "assay: gpu/ecc: GPU 3: 2 errors; reset the GPU"},
		{"pair", statement(fail("p2p", "slow", "", pair)), 200, "assay: p2p: GPU 3 to GPU 4: slow"},
		{"several, and an error", statement(broken, fail("x", "1", "do it"), fail("y", "2", ""), fail("z", "3", "")), 200, "assay: x: 1; do it (+2 more)"},
		{"error", statement(pass, broken), 200, "assay: not run: b: timed out"},
		{"lines", statement(fail("x", "one\n\ttwo\x1b[31m\u202ethree\xff\x00", "")), 200, "assay: x: one two [31m three"},
		{"cut", statement(fail("x", "0123456789012345", "remedy"), fail("y", "2", "")), 33, "assay: x: 01…; remedy (+1 more)"},
		{"long observation", statement(fail("health/gpu/count", "PCI has 7 GPUs, not 8; "+strings.Repeat("the driver cannot be asked ", 9), "look for the missing GPU, drain and reboot", bad), fail("y", "2", "")), 200,
			"assay: health/gpu/count: GPU 3: PCI has 7 GPUs, not 8; the driver cannot be asked the driver cannot be asked the driver cannot be asked the dri…; look for the missing GPU, drain and reboot (+1 more)"},
		{"long remedy", statement(fail("health/pci/acs", strings.Repeat("0000:17:00.0 ", 20), strings.Repeat("turn it off. ", 10)+"end", bad)), 200,
			"assay: health/pci/acs: GPU 3: 0000:17:00.0 0000:17:00.0 0000:1…; " + strings.Repeat("turn it off. ", 10) + "end"},
		{"cut between characters", statement(fail("x", "41 °°°°°°", "")), 20, "assay: x: 41 °°…"},
		{"fits", statement(fail("x", "41 °C", "")), 16, "assay: x: 41 °C"},
		{"sample", certificatetest.Node(8), 200, "assay: bandwidth/h2d: GPU 0: 31.2 GB/s, less than 48; look at the slot's width and generation"},
	} {
		if got := Reason(tt.st, tt.limit); got != tt.want || len(got) > tt.limit {
			t.Errorf("%s: Reason = %q, %d bytes; want %q, at most %d", tt.name, got, len(got), tt.want, tt.limit)
		}
	}
}

// FuzzReason: whatever a check says, the reason is one line that can be printed
// and is recognised as ours.
func FuzzReason(f *testing.F) {
	f.Add("gpu/ecc", "GPU 3: 2\nerrors", "reset it", "GPU 3", 3)
	f.Add("\xff", "\u2028", "\x1b]0;", "", 1)
	f.Fuzz(func(t *testing.T, id, reason, remedy, object string, n int) {
		r := result.Result{ID: id, Verdict: result.Fail, Reason: reason, Remedy: remedy, Objects: []result.Object{{Name: object, Verdict: result.Fail}}}
		got := Reason(statement(append(make([]result.Result, 1+max(0, n%100)), r, r)...), 80)
		if len(got) > 80 || !utf8.ValidString(got) || !strings.HasPrefix(got, Prefix) {
			t.Errorf("Reason = %q, %d bytes", got, len(got))
		}
		for _, c := range got {
			if !unicode.IsPrint(c) {
				t.Errorf("Reason = %q has %q", got, c)
			}
		}
	})
}
