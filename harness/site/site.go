// Package site states in one line what a certificate means for its machine. The line is for
// schedulers, which decide whether the machine gets work, and for the people who read their
// reasons. The packages below determine what each scheduler is told, and how.
package site

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// Prefix begins every reason that assay writes, and no other.
const Prefix = "assay: "

// notRun stands before the first check of a certificate whose checks could not be carried out.
const notRun = "not run: "

// Reason returns why a certificate is not a pass, in one line of at most limit bytes that begins
// with [Prefix]: check, thing, what was seen, remedy, and the number of further checks. Where that
// is too long, what was seen is shortened before the remedy, which says what to do. For a pass it
// returns "". Control characters are left out.
func Reason(st *certificate.Statement, limit int) string { return reason(st, limit, nil) }

// reason is Reason of a machine that also failed by earlier checks.
func reason(st *certificate.Statement, limit int, earlier []string) string {
	p := &st.Predicate
	worst, lead := result.Fail, ""
	switch p.Verdict {
	case result.Pass:
		return ""
	case result.Skip:
		return cut(Prefix+"every check was skipped: nothing was shown", limit)
	case result.Error:
		worst, lead = result.Error, notRun
	}
	var first *result.Result
	count := len(earlier)
	for i := range p.Results {
		if r := &p.Results[i]; r.Verdict == worst {
			if count++; first == nil {
				first = r
			}
		}
	}
	more := ""
	if count > 1 {
		more = fmt.Sprintf(" (+%d more)", count-1)
	}
	head := oneLine(Prefix+lead+first.ID+": ") + " "
	what, remedy := oneLine(seen(first)), oneLine(first.Remedy)
	if remedy != "" {
		remedy = "; " + remedy
	}
	room := limit - len(more) - len(head)
	if len(what)+len(remedy) > room {
		what = cut(what, max(room-len(remedy), room/leastSeen))
		remedy = cut(remedy, max(room-len(what), 0))
	}
	return cut(head+what+remedy, limit-len(more)) + more
}

// leastSeen is the share of a line that what was seen has in any case: a sixth.
const leastSeen = 6

// seen returns a result's reason with the name of the first object at fault, unless the reason
// contains it.
func seen(r *result.Result) string {
	i := slices.IndexFunc(r.Objects, func(o result.Object) bool { return o.Verdict == r.Verdict })
	if i < 0 || strings.Contains(r.Reason, r.Objects[i].Name) {
		return r.Reason
	}
	name := r.Objects[i].Name
	if peer := r.Objects[i].Peer; peer != "" {
		name += " to " + peer
	}
	return name + ": " + r.Reason
}

// oneLine replaces what cannot be printed with spaces: line ends, escape sequences, invalid
// bytes, characters that change the direction of writing.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// Shorten makes one line of at most limit bytes.
func Shorten(s string, limit int) string { return cut(oneLine(s), limit) }

const ellipsis = "…"

// cut shortens a line to limit bytes, between characters.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := max(limit-len(ellipsis), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimRight(s[:end], " ") + ellipsis
}
