package certify

import (
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

func TestBaseline(t *testing.T) {
	slow := func(st *certificate.Statement) {
		for _, r := range st.Predicate.Results {
			if r.ID == "bandwidth/p2p" {
				m := r.Objects[1].Measured
				m.Value, m.Spread = 300, nil
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(*certificate.Statement)
		fail   bool
		want   result.Verdict
		text   string
	}{
		"same":            {func(*certificate.Statement) {}, true, result.Pass, "against 2026-03-01 12:01 UTC; 0 better"},
		"slower":          {slow, false, result.Warn, "bandwidth/p2p: GPU 1 (GPU-00000001-1111-2222-3333-444444444444) to GPU 0"},
		"slower, failing": {slow, true, result.Fail, "write fell"},
		"another machine": {func(st *certificate.Statement) { st.Predicate.Node.Identity = []string{"x"} }, true, result.Skip, "not of this machine"},
		"an image":        {func(st *certificate.Statement) { st.Predicate.Node = nil }, true, result.Skip, "not of this machine"},
	} {
		now := certificatetest.Node(2)
		tt.change(now)
		o := Baseline{Earlier: certificatetest.Node(2), Tolerance: 0.05, Fail: tt.fail}
		r := o.result(now.Predicate)
		if r.Verdict != tt.want || !strings.Contains(r.Reason, tt.text) {
			t.Errorf("%s: %s: %s; want %s, …%s…", name, r.Verdict, r.Reason, tt.want, tt.text)
		}
		if err := r.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
