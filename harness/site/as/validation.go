package as

import (
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// A verdict is a NodeVerdict of NVIDIA's Health Validation, as far as its documentation shows it.
type verdict struct {
	Severity   string      `json:"overall_severity"`
	Components []component `json:"affected_components"`
}

// A component sums up the checks of a category that did not pass.
type component struct {
	Category string   `json:"category"`
	Severity string   `json:"max_severity"`
	Checks   []string `json:"check_ids"`
	Entities []string `json:"entities"`
}

// severities are the words for verdicts, the worst first. Checks that were not made say nothing.
var severities = []struct {
	of   result.Verdict
	word string
}{{result.Fail, "CRITICAL"}, {result.Error, "UNKNOWN"}, {result.Warn, "WARNING"}}

// categories are by words in a check's id; the first that fits counts.
var categories = []struct {
	name  string
	words []string
}{
	{"XID", []string{"xid", "sxid"}},
	{"NVLINK", []string{"nvlink", "nvlink_stress", "nvswitch"}},
	{"INFINIBAND", []string{"port", "mesh"}},
	{"CPU", []string{"cpu", "cpus", "numa", "host"}},
	{"GPU", []string{"gpu", "gpus", "diag", "bandwidth", "coll"}},
}

func category(id string) string {
	parts := strings.Split(id, "/")
	for _, c := range categories {
		if slices.ContainsFunc(parts, func(p string) bool { return slices.Contains(c.words, p) }) {
			return c.name
		}
	}
	return "NODE"
}

// healthValidation is the verdict of NVIDIA's Health Validation. A pass with warnings is a WARNING
// there.
func healthValidation(st *certificate.Statement, _ func(string) string) (any, error) {
	p := &st.Predicate
	v := verdict{Severity: "UNKNOWN", Components: []component{}}
	if p.Verdict == result.Pass {
		v.Severity = "PASS"
	}
	for _, s := range severities {
		if p.Verdict == s.of || p.Verdict == result.Pass && result.Count(p.Results)[s.of] > 0 {
			v.Severity = s.word
		}
		for i := range p.Results {
			if r := &p.Results[i]; r.Verdict == s.of {
				v.add(r, s.word)
			}
		}
	}
	return v, nil
}

// add adds a result to its category, whose worst results come first.
func (v *verdict) add(r *result.Result, severity string) {
	name := category(r.ID)
	i := slices.IndexFunc(v.Components, func(c component) bool { return c.Category == name })
	if i < 0 {
		i = len(v.Components)
		v.Components = append(v.Components, component{Category: name, Severity: severity, Entities: []string{}})
	}
	c := &v.Components[i]
	c.Checks = append(c.Checks, r.ID)
	for _, o := range r.Objects {
		if o.Verdict == r.Verdict && !slices.Contains(c.Entities, o.Name) {
			c.Entities = append(c.Entities, o.Name)
		}
	}
}
