package sbom

import (
	"maps"
	"slices"
	"strings"

	"github.com/spdx/tools-golang/spdx"

	"github.com/assay-hpc/assay/internal/certificate"
)

const licenseRef = "LicenseRef-"

// licenses collects the licences of a document that are not on SPDX's list, by identifier, with
// the text that the document must then include.
type licenses map[string]*spdx.OtherLicense

func (l licenses) extracted() []*spdx.OtherLicense {
	var out []*spdx.OtherLicense
	for _, id := range slices.Sorted(maps.Keys(l)) {
		out = append(out, l[id])
	}
	return out
}

// all joins the licences of a package's parts: every one of them applies. A text that is not a
// licence expression becomes a LicenseRef as a whole; the parameter where says where its text can
// be read.
func (l licenses) all(declared []string, where string) string {
	var parts []string
	for _, d := range declared {
		if d == "" || d == certificate.NoAssertion {
			continue
		}
		parts = append(parts, l.expression(d, where))
	}
	slices.Sort(parts)
	parts = slices.Compact(parts)
	if len(parts) == 0 {
		return noAssertion
	}
	for i, p := range parts {
		if len(parts) > 1 && strings.Contains(p, " OR ") {
			parts[i] = "(" + p + ")"
		}
	}
	return strings.Join(parts, " AND ")
}

func (l licenses) expression(s, where string) string {
	words := tokens(s)
	if !wellFormed(words) {
		return l.reference(s, where)
	}
	for _, w := range words {
		if strings.HasPrefix(w, licenseRef) {
			l.reference(strings.TrimPrefix(w, licenseRef), where)
		}
	}
	return s
}

// reference records a LicenseRef. Several packages may share one: the first determines where its
// text is.
func (l licenses) reference(name, where string) string {
	id := licenseRef + clean(name)
	if l[id] == nil {
		l[id] = &spdx.OtherLicense{LicenseIdentifier: id, LicenseName: name, ExtractedText: where}
	}
	return id
}

// tokens splits an expression at spaces and around parentheses.
func tokens(s string) []string {
	return strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ").Replace(s))
}

// wellFormed reports whether operands and operators alternate, parentheses are balanced, and
// identifiers contain only characters that SPDX allows.
func wellFormed(words []string) bool {
	depth, operand := 0, true // operand: one is expected
	for _, w := range words {
		ok := true
		switch w {
		case "(":
			ok, depth = operand, depth+1
		case ")":
			ok, depth = !operand && depth > 0, depth-1
		case "AND", "OR", "WITH":
			ok, operand = !operand, true
		default:
			ok, operand = operand && clean(strings.TrimSuffix(w, "+")) == strings.TrimSuffix(w, "+"), false
		}
		if !ok {
			return false
		}
	}
	return depth == 0 && !operand
}
