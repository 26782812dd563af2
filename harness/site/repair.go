package site

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// Failed returns the checks by which a certificate is no pass: those that failed, or else those that
// could not be carried out.
func Failed(st *certificate.Statement) (checks []string) {
	worst := st.Predicate.Verdict
	if worst != result.Fail && worst != result.Error {
		return nil
	}
	for _, r := range st.Predicate.Results {
		if r.Verdict == worst {
			checks = append(checks, r.ID)
		}
	}
	return checks
}

// Unanswered returns which of the checks by which a machine failed before a certificate does not
// answer. It answers those that passed, and were measured harder than usual because the machine had
// failed by them, or that only compare.
func Unanswered(st *certificate.Statement, failed []string) (checks []string) {
	p := &st.Predicate
	for _, id := range failed {
		i := slices.IndexFunc(p.Results, func(r result.Result) bool { return r.ID == id })
		passed := i >= 0 && (p.Results[i].Verdict == result.Pass || p.Results[i].Verdict == result.Warn)
		compares := id == certificate.GPUsID || id == certificate.BaselineID
		if !passed || !compares && (p.After == nil || !slices.Contains(p.After.Checks, id)) {
			checks = append(checks, id)
		}
	}
	return checks
}

// Earlier returns which checks, by which a machine failed before, are still open after a certificate
// that is no pass, but for those that it names itself.
func Earlier(st *certificate.Statement, failed []string) []string {
	named := Failed(st)
	return slices.DeleteFunc(Unanswered(st, failed), func(id string) bool { return slices.Contains(named, id) })
}

// maxNames is the maximum length of the names of further checks in a mark.
const maxNames = 1000

// Mark is [Reason] with the ids of the further checks, from which [Read] takes them: those of the
// certificate, and earlier ones that are still open. The names may exceed the limit.
func Mark(st *certificate.Statement, limit int, earlier []string) string {
	text := reason(st, limit, earlier)
	further := earlier
	if named := Failed(st); len(named) > 0 {
		further = slices.Concat(named[1:], earlier)
	}
	head, found := strings.CutSuffix(text, " more)")
	if !found || len(further) == 0 {
		return text
	}
	names := ": "
	for i, id := range further {
		if i > 0 {
			names += ", "
		}
		if len(names)+len(id) > maxNames {
			names += ellipsis
			break
		}
		names += oneLine(id)
	}
	return head + " more" + names + ")"
}

// Name returns a reason of which Read reads the checks, of which there is one at least.
func Name(checks []string) string {
	if len(checks) == 1 {
		return Prefix + checks[0]
	}
	return fmt.Sprintf("%s%s (+%d more: %s)", Prefix, checks[0], len(checks)-1, strings.Join(checks[1:], ", "))
}

var (
	markID   = regexp.MustCompile(`^([^\s:]+)(?:: |$)`)
	markMore = regexp.MustCompile(` \(\+(\d+) more(?:: ([^()]*))?\)$`)
)

// Read returns the checks that a reason of [Mark] or [Reason] names, and whether there are others
// that it does not name. Another reason names none.
func Read(reason string) (checks []string, others bool) {
	text, ours := strings.CutPrefix(reason, Prefix)
	if !ours {
		return nil, false
	}
	if m := markMore.FindStringSubmatchIndex(text); m != nil {
		count, _ := strconv.Atoi(text[m[2]:m[3]])
		if m[4] >= 0 {
			checks = strings.Split(strings.TrimSuffix(text[m[4]:m[5]], ", "+ellipsis), ", ")
		}
		others = count != len(checks)
		text = text[:m[0]]
	}
	if m := markID.FindStringSubmatch(strings.TrimPrefix(text, notRun)); m != nil {
		checks = append([]string{m[1]}, checks...)
	}
	return checks, others
}
