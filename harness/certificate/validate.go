package certificate

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/assay-hpc/assay/internal/attest"
)

// Validate reports the first thing in a predicate that no harness would have
// written: a number that cannot be, a name that is missing, not one line of
// visible characters, or there twice. Every reader of certificates goes by it, so
// that what one of them refuses none of the others takes.
func (p *Predicate) Validate() error {
	switch {
	case !isName(p.Suite):
		return fmt.Errorf("suite: %.80q is no name", p.Suite)
	case p.Results == nil:
		return errors.New("results: there is no list of them")
	case p.Started.IsZero() != p.Finished.IsZero():
		return errors.New("started, finished: one of the times is missing")
	case p.Environment.CPUs < 0:
		return fmt.Errorf("environment: %d processors", p.Environment.CPUs)
	case !isOptional(p.Environment.Target) || !isOptional(p.Environment.Recipe):
		return fmt.Errorf("environment: target %.80q, recipe %.80q: one of them is no name", p.Environment.Target, p.Environment.Recipe)
	}
	if p.Node != nil {
		if err := p.Node.validate(); err != nil {
			return fmt.Errorf("node: %w", err)
		}
	}
	var names []string
	for _, m := range p.Machines {
		names = append(names, m.Name)
	}
	if err := distinctNames(names); err != nil {
		return fmt.Errorf("machines: %w", err)
	}
	for i := range p.Results {
		if err := p.Results[i].plausible(); err != nil {
			return fmt.Errorf("result %.80q: %w", p.Results[i].ID, err)
		}
	}
	return nil
}

func (n *Node) validate() error {
	if !isName(n.Name) {
		return fmt.Errorf("%.80q is no name", n.Name)
	}
	if err := distinctNames(n.Identity); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	indexes := map[int]bool{}
	for _, g := range n.GPUs {
		switch {
		case g.Index < 0 || g.Memory < 0:
			return fmt.Errorf("gpus: GPU %d with %d bytes", g.Index, g.Memory)
		case indexes[g.Index]:
			return fmt.Errorf("gpus: there are two GPUs %d", g.Index)
		}
		indexes[g.Index] = true
	}
	var ports []string
	for _, p := range n.Ports {
		if !finite(p.Gbit) || p.Gbit < 0 {
			return fmt.Errorf("ports: %.80q has a rate of %v Gb/s", p.Name, p.Gbit)
		}
		ports = append(ports, p.Name)
	}
	if err := distinctNames(ports); err != nil {
		return fmt.Errorf("ports: %w", err)
	}
	if n.Topology == nil {
		return nil
	}
	for _, p := range n.Topology.Parts {
		if !isName(p.ID) || p.Kind == "" {
			return fmt.Errorf("topology: the part %.80q lacks its kind or a name", p.ID)
		}
	}
	for _, l := range n.Topology.Links {
		if l.Kind == "" || l.Count < 0 || l.GBps < 0 {
			return fmt.Errorf("topology: a link from %.80q to %.80q lacks its kind, or has a number below 0", l.A, l.B)
		}
	}
	return nil
}

// longest is more seconds than any check takes.
const longest = 1e9

// plausible is what Validate asks of a result beyond its own rules.
func (r *Result) plausible() error {
	switch {
	case !isID(r.ID):
		return errors.New("its id is none: want words with slashes between")
	case !isOptional(r.Component):
		return fmt.Errorf("component: %.80q is no name", r.Component)
	case r.Seconds > longest:
		return fmt.Errorf("it took %v seconds", r.Seconds)
	}
	if err := r.Measured.plausible(); err != nil {
		return err
	}
	for _, o := range r.Objects {
		if !isName(o.Name) || !isOptional(o.Peer) || !isOptional(o.ID) || !isOptional(o.Quantity) {
			return fmt.Errorf("object %.80q, peer %.80q, id %.80q, quantity %.80q: one of them is no name", o.Name, o.Peer, o.ID, o.Quantity)
		}
		if err := o.Measured.plausible(); err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	for _, c := range r.Curves {
		if !isName(c.Name) || !isName(c.X) || !isName(c.Y) {
			return fmt.Errorf("the curve %.80q over %.80q in %.80q: one of them is no name", c.Name, c.X, c.Y)
		}
	}
	return nil
}

func (m *Measurement) plausible() error {
	switch {
	case m == nil:
		return nil
	case !isName(m.Unit):
		return fmt.Errorf("unit: %.80q is no name", m.Unit)
	case m.Expected == 0 && m.Ratio != 0:
		return fmt.Errorf("ratio: %v of what is expected, and nothing is", m.Ratio)
	case m.Expected != 0 && !near(m.Ratio, m.Value/m.Expected):
		return fmt.Errorf("ratio: %v; %v of %v is %v", m.Ratio, m.Value, m.Expected, m.Value/m.Expected)
	}
	return nil
}

// near allows for the last digits, which others may compute otherwise.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }

// validateSubjects reports a subject without a name or a SHA-256, and one that is
// there twice.
func validateSubjects(subjects []Subject) error {
	type key struct{ name, digest string }
	seen := map[key]bool{}
	for _, s := range subjects {
		k := key{s.Name, s.Digest["sha256"]}
		if _, err := attest.ImageSubject(s.Name, "sha256:"+k.digest); err != nil || !isName(s.Name) {
			return fmt.Errorf("subject %.80q with the SHA-256 %.80q: it needs a plain name and 64 hex digits in lower case", s.Name, k.digest)
		}
		if seen[k] {
			return fmt.Errorf("subject %.80q stands twice", s.Name)
		}
		seen[k] = true
	}
	return nil
}

func distinctNames(names []string) error {
	seen := map[string]bool{}
	for _, n := range names {
		if !isName(n) || seen[n] {
			return fmt.Errorf("%.80q is no name, or there is another one", n)
		}
		seen[n] = true
	}
	return nil
}

// isName reports whether a text can stand in a line, a label or a path as the name
// of something: some visible characters, with spaces only between them.
func isName(s string) bool {
	return s != "" && strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) })
}

func isOptional(s string) bool { return s == "" || isName(s) }

// isID reports whether a text is a check's id: ids become parts of paths.
func isID(s string) bool {
	for word := range strings.SplitSeq(s, "/") {
		if !isName(word) || word == "." || word == ".." {
			return false
		}
	}
	return true
}
