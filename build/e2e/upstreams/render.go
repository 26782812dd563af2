package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
)

type target = matrix.Target

func platform(s string) (recipe.Platform, error) { return recipe.ParsePlatform(s) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

const head = `# What was executed on real sources

Written by ` + "`go run ./build/e2e/upstreams`" + ` from [upstreams.json](upstreams.json), which builds' layouts and logs are recorded in. A component
counts as executed on its real source in a row where that row's image was built by the recipe of that day's matrix.yaml and
matrix.lock, whose checksums are the upstream's own, and passed its gate. On a stand-in it was executed where TestStandinMatrix, of
` + "`make test ONLY=all`" + `, built the same version by the same code from stand-ins of the upstreams: that shows that the recipes hang together,
and nothing of the upstreams.

`

// render writes the document.
func render(rec *Record, targets []target) string {
	var b strings.Builder
	b.WriteString(head)
	images(&b, rec)
	components(&b, rec, targets)
	return b.String()
}

func images(b *strings.Builder, rec *Record) {
	b.WriteString("## Images\n| image | platform | built | of | digest |\n|---|---|---|---|---|\n")
	for _, r := range rec.Runs {
		of := "real sources"
		if r.Standin {
			of = "stand-ins"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | `%s` |\n", r.Target, r.Platform, r.Date, of, r.Image)
	}
	b.WriteString("\n")
}

// A componentVersion is one component at one version, in whichever images contain it.
type componentVersion struct {
	name, version string
	rows          int      // of the matrix
	real, standin []string // targets
	sources       []string
	steps         []Step
}

func components(b *strings.Builder, rec *Record, targets []target) {
	parts := map[[2]string]*componentVersion{}
	for _, t := range targets {
		for _, c := range t.Components {
			p := parts[[2]string{c.Name, c.Version}]
			if p == nil {
				p = &componentVersion{name: c.Name, version: c.Version}
				parts[[2]string{c.Name, c.Version}] = p
			}
			p.rows++
			p.place(rec, t)
		}
	}
	for _, p := range parts {
		for _, r := range rec.Runs {
			if r.Standin && r.has(p) != nil {
				p.standin = append(p.standin, r.Target)
			}
		}
	}
	list := slices.SortedFunc(maps.Values(parts), func(x, y *componentVersion) int {
		return cmp.Or(cmp.Compare(x.name, y.name), matrix.CompareVersions(x.version, y.version))
	})
	b.WriteString("## Components\n| component | version | rows | executed on the real source in | executed on a stand-in in | compiled in |\n|---|---|---|---|---|---|\n")
	for _, p := range list {
		standin := rows(p.standin)
		if len(p.real)+len(p.standin) == 0 {
			standin = "**not executed**"
		}
		fmt.Fprintf(b, "| %s | %s | %d | %s | %s | %s |\n", p.name, p.version, p.rows, rows(p.real), standin, seconds(p.steps))
	}
	b.WriteString("\n## Sources\n| component | source | SHA-256 |\n|---|---|---|\n")
	for _, p := range list {
		for _, s := range slices.Compact(slices.Sorted(slices.Values(p.sources))) {
			fmt.Fprintf(b, "| %s %s | %s |\n", p.name, p.version, s)
		}
	}
	if len(rec.Notes) > 0 {
		b.WriteString("\n## What was checked instead\n")
		for _, name := range sortedKeys(rec.Notes) {
			fmt.Fprintf(b, "- **%s**: %s\n", name, rec.Notes[name])
		}
	}
}

// has returns the run's component that matches a part; nil if the run lacks it or has another
// version.
func (r Run) has(p *componentVersion) *Component {
	for i, c := range r.Components {
		// A version that is a word is determined elsewhere: "distro", "source", "devel". The
		// version of a Debian package may have an epoch: "1:3.3.6".
		if word := p.version[0] > '9'; c.Name == p.name && (c.Version == p.version || strings.HasSuffix(c.Version, ":"+p.version) || word) {
			return &r.Components[i]
		}
	}
	return nil
}

// place records whether a target's component was executed on its real source.
func (p *componentVersion) place(rec *Record, t target) {
	for _, r := range rec.Runs {
		c := r.has(p)
		if r.Standin || r.Target != t.Name || c == nil {
			continue
		}
		p.real = append(p.real, t.Name)
		p.steps = append(p.steps, c.Steps...)
		for _, s := range c.Sources {
			if strings.HasPrefix(s.URL, "https://") && s.Digest != "" && c.Name != "harness" {
				p.sources = append(p.sources, fmt.Sprintf("%s | `%s`", s.URL, strings.TrimPrefix(s.Digest, "sha256:")))
			}
		}
	}
}

// rows lists up to four targets by name; for more it gives the count, the first and the last.
func rows(names []string) string {
	if len(names) > 4 {
		return fmt.Sprintf("%d rows, %s … %s", len(names), names[0], names[len(names)-1])
	}
	return strings.Join(names, ", ")
}

func seconds(steps []Step) string {
	var out []string
	for _, s := range steps {
		text := fmt.Sprintf("%.0f s", s.Seconds)
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}
