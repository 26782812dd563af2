package site

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/certificate/certificatetest"
)

func statement(results ...certificate.Result) *certificate.Statement {
	return certificate.New(certificate.Predicate{Suite: "node", Results: results})
}

func TestReason(t *testing.T) {
	fail := func(id, reason, remedy string, objects ...certificate.Object) certificate.Result {
		return certificate.Result{ID: id, Verdict: certificate.Fail, Reason: reason, Remedy: remedy, Objects: objects}
	}
	good := certificate.Object{Name: "GPU 0", Verdict: certificate.Pass}
	bad := certificate.Object{Name: "GPU 3", Verdict: certificate.Fail, Reason: "2 errors"}
	pair := certificate.Object{Name: "GPU 3", Peer: "GPU 4", Verdict: certificate.Fail, Reason: "slow"}
	pass := certificate.Result{ID: "a", Verdict: certificate.Pass}
	broken := certificate.Result{ID: "b", Verdict: certificate.Error, Reason: "timed out"}
	skip := certificate.Result{ID: "c", Verdict: certificate.Skip, Reason: "no GPU"}
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
		{"error", statement(pass, broken), 200, "assay: not carried out: b: timed out"},
		{"lines", statement(fail("x", "one\n\ttwo\x1b[31m\u202ethree\xff\x00", "")), 200, "assay: x: one two [31m three"},
		{"cut", statement(fail("x", "0123456789012345", "remedy"), fail("y", "2", "")), 33, "assay: x: 0123456789… (+1 more)"},
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
		r := certificate.Result{ID: id, Verdict: certificate.Fail, Reason: reason, Remedy: remedy, Objects: []certificate.Object{{Name: object, Verdict: certificate.Fail}}}
		got := Reason(statement(append(make([]certificate.Result, 1+max(0, n%100)), r, r)...), 80)
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
