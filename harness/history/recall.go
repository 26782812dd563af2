package history

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// A Recall finds out whether what fails in a certificate failed before. It accepts earlier certificates
// of any machines, in any order, and stores what concerns the same machine, GPUs and ports.
type Recall struct {
	*Collector
	st    *certificate.Statement
	parts map[string]bool
}

// NewRecall returns one that knows no earlier certificate.
func NewRecall(st *certificate.Statement) *Recall {
	fails := map[string]bool{}
	for _, r := range st.Predicate.Results {
		fails[r.ID] = r.Verdict == result.Fail
	}
	r := &Recall{NewCollector(Options{Wants: func(check string) bool { return fails[check] }}), st, map[string]bool{}}
	for _, id := range parts(&st.Predicate) {
		r.parts[id] = true
	}
	return r
}

// Add adds an earlier certificate.
func (r *Recall) Add(st *certificate.Statement) {
	_, digest := Subject(st)
	_, own := Subject(r.st)
	shared := digest == own
	for _, id := range parts(&st.Predicate) {
		shared = shared || r.parts[id]
	}
	if shared {
		r.Collector.Add(st)
	}
}

// Again returns what fails in the certificate, and had failed and passed by the same check before, the
// most frequent first.
func (r *Recall) Again() (again []Offender) {
	r.Collector.Add(r.st)
	name, _ := Subject(r.st)
	for _, o := range r.History().Offenders {
		if last := o.Faults[len(o.Faults)-1]; last.Machine == name && last.To.Equal(r.st.Predicate.Finished) {
			again = append(again, o)
		}
	}
	return again
}

// mostDates is the number of dates that When says.
const mostDates = 4

// When says how often, and on which days it began: "GPU 3 failed 3 times, and passed in between
// (2026-03-01, 2026-05-02, 2026-06-01)". Of many days it says the last.
func (o Offender) When() string {
	var days []string
	if len(o.Faults) > mostDates {
		days = []string{"…"}
	}
	for _, e := range o.Faults[max(0, len(o.Faults)-mostDates):] {
		days = append(days, e.From.UTC().Format(time.DateOnly))
	}
	return fmt.Sprintf("%s failed %d times, and passed in between (%s)", cmp.Or(o.Object, "the machine"), len(o.Faults), strings.Join(days, ", "))
}
