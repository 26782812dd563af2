package certificate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/result"
)

// Validate reports the first thing in a predicate that no harness would have written: an
// impossible number, or a name that is missing, repeated, or not one line of visible characters.
// All readers of certificates use it, so that they all refuse the same ones.
func (p *Predicate) Validate() error {
	switch {
	case !result.IsName(p.Suite):
		return fmt.Errorf("suite: %.80q is not a name", p.Suite)
	case p.Results == nil:
		return errors.New("results: there is no list of them")
	case p.Started.IsZero() != p.Finished.IsZero():
		return errors.New("started, finished: one of the times is missing")
	case p.Environment.CPUs < 0:
		return fmt.Errorf("environment: %d processors", p.Environment.CPUs)
	case !optional(p.Environment.Target) || !optional(p.Environment.Recipe):
		return fmt.Errorf("environment: target %.80q, recipe %.80q: one of them is not a name", p.Environment.Target, p.Environment.Recipe)
	}
	if p.Node != nil {
		if err := p.Node.validate(); err != nil {
			return fmt.Errorf("node: %w", err)
		}
	}
	if s := p.Selected; s != nil && (len(s.Only)+len(s.Skip) == 0 || slices.ContainsFunc(slices.Concat(s.Only, s.Skip), func(p string) bool { return !result.IsName(p) })) {
		return fmt.Errorf("selected: only %.80q, skip %.80q: there is no pattern, or one is not a name", s.Only, s.Skip)
	}
	if a := p.After; a != nil && (a.Times < 2 || len(a.Checks) == 0 || slices.ContainsFunc(a.Checks, func(id string) bool {
		return !slices.ContainsFunc(p.Results, func(r result.Result) bool { return r.ID == id })
	})) {
		return fmt.Errorf("after: checks %.80q, %d times: there is none, one has no result, or it was not repeated", a.Checks, a.Times)
	}
	if err := p.Limits.validate(); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	var names []string
	for _, m := range p.Machines {
		names = append(names, m.Name)
	}
	if err := distinctNames(names); err != nil {
		return fmt.Errorf("machines: %w", err)
	}
	seen := map[string]bool{}
	for i := range p.Results {
		r := &p.Results[i]
		if seen[r.ID] {
			return fmt.Errorf("two results have the id %q", r.ID)
		}
		seen[r.ID] = true
		if err := r.Validate(); err != nil {
			return err
		}
	}
	return nil
}

func (l *Limits) validate() error {
	if l == nil {
		return nil
	}
	if sum, err := hex.DecodeString(l.SHA256); err != nil || len(sum) != sha256.Size || l.SHA256 != strings.ToLower(l.SHA256) || l.File == "" || l.Checks == nil {
		return fmt.Errorf("file %.80q, sha256 %.80q: the file's name, the SHA-256 of its bytes or the list of its checks is missing", l.File, l.SHA256)
	}
	for id, c := range l.Checks {
		switch {
		case !result.IsName(id) || c.Source == "":
			return fmt.Errorf("%.80q lacks a name or a source", id)
		case c.Severity != "fail" && c.Severity != "warn" && c.Severity != "info":
			return fmt.Errorf("%s: severity %.80q", id, c.Severity)
		case c.Limit != nil && !finite(*c.Limit):
			return fmt.Errorf("%s: the limit is no number", id)
		}
	}
	return nil
}

func (n *Node) validate() error {
	if !result.IsName(n.Name) {
		return fmt.Errorf("%.80q is not a name", n.Name)
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
		if !result.IsName(p.ID) || p.Kind == "" {
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

// validateSubjects reports a subject without a name or a SHA-256, or a repeated one.
func validateSubjects(subjects []Subject) error {
	type key struct{ name, digest string }
	seen := map[key]bool{}
	for _, s := range subjects {
		k := key{s.Name, s.Digest["sha256"]}
		if _, err := attest.ImageSubject(s.Name, "sha256:"+k.digest); err != nil || !result.IsName(s.Name) {
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
		if !result.IsName(n) || seen[n] {
			return fmt.Errorf("%.80q is not a name, or there is another one", n)
		}
		seen[n] = true
	}
	return nil
}

// optional reports whether a text is a name, or empty.
func optional(s string) bool { return s == "" || result.IsName(s) }

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
