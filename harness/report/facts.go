package report

import (
	"fmt"
	"strconv"
	"time"

	"github.com/assay-hpc/assay/harness/certificate"
)

// A fact is a line about where a certificate comes from.
type fact struct{ Name, Value string }

// facts lists what a certificate is about and where it was made, without what
// it does not know and without control characters.
func facts(s *certificate.Statement) []fact {
	p := &s.Predicate
	e := p.Environment
	var out []fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, fact{name, printable(value)})
		}
	}
	for _, sub := range s.Subject {
		add("image", subject(sub))
	}
	add("target", e.Target)
	add("recipe", e.Recipe)
	add("platform", e.Platform)
	add("system", e.OS)
	add("kernel", e.Kernel)
	add("processor", e.CPU)
	if e.CPUs > 0 {
		add("processors", strconv.Itoa(e.CPUs))
	}
	add("harness", join(p.Harness.Version, p.Harness.Commit))
	add("started", p.Started.Format(time.RFC3339))
	add("took", fmt.Sprint(p.Finished.Sub(p.Started)))
	return out
}

// subject names an image as registries do.
func subject(s certificate.Subject) string {
	if d := s.Digest["sha256"]; d != "" {
		return s.Name + "@sha256:" + d
	}
	return s.Name
}
