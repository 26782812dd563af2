package site

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// of returns results with a verdict.
func of(v result.Verdict, ids ...string) (all []result.Result) {
	for _, id := range ids {
		all = append(all, result.Result{ID: id, Verdict: v, Reason: "why"})
	}
	return all
}

// TestMark: a reason has the names of all checks, and they are read from it again.
func TestMark(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("health/gpu/check-%d", i)
	}
	for _, tt := range []struct {
		name    string
		results []result.Result
		earlier []string
		want    string
		read    []string
		others  bool
	}{
		{"pass", of(result.Pass, "a"), nil, "", nil, false},
		{"one", of(result.Fail, "diag/memory"), nil, "assay: diag/memory: why", []string{"diag/memory"}, false},
		{"several", slices.Concat(of(result.Fail, "a/b", "c"), of(result.Error, "x"), of(result.Fail, "d")), nil, "assay: a/b: why (+2 more: c, d)", []string{"a/b", "c", "d"}, false},
		{"not run", of(result.Error, "a", "b"), nil, "assay: not run: a: why (+1 more: b)", []string{"a", "b"}, false},
		{"earlier ones", of(result.Fail, "a"), []string{"y", "z"}, "assay: a: why (+2 more: y, z)", []string{"a", "y", "z"}, false},
		{"nothing shown", of(result.Skip, "a"), nil, "assay: every check was skipped: nothing was shown", nil, false},
		{"too many", of(result.Fail, many...), nil, "", many[:49], true},
	} {
		got := Mark(statement(tt.results...), 200, tt.earlier)
		if tt.want != "" && got != tt.want || len(got) > 200+maxNames+len(ellipsis) {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
		if ids, others := Read(got); !slices.Equal(ids, tt.read) || others != tt.others {
			t.Errorf("%s: Read(%q) = %q, %v; want %q, %v", tt.name, got, ids, others, tt.read, tt.others)
		}
	}
}

// TestName: the checks that are named are read again.
func TestName(t *testing.T) {
	for _, checks := range [][]string{{"a"}, {"a", "b/c"}, {"a", "b", "c"}} {
		if got, others := Read(Name(checks)); !slices.Equal(got, checks) || others {
			t.Errorf("Read(%q) = %q, %v; want %q", Name(checks), got, others, checks)
		}
	}
}

// TestRead: reasons that Mark did not write.
func TestRead(t *testing.T) {
	for reason, want := range map[string]string{
		"":                           "[] false",
		"fan (+1 more: x)":           "[] false",
		"assay: x":                   "[x] false",
		"assay: x: y (+2 more)":      "[x] true",
		"assay: x: y (+3 more: a)":   "[x a] true",
		"assay: x: 2 (+1 more: a, b": "[x] false",
		"assay: two words: y":        "[] false",
		"assay: ":                    "[] false",
	} {
		ids, others := Read(reason)
		if got := fmt.Sprint(ids, others); got != want {
			t.Errorf("Read(%q) = %s; want %s", reason, got, want)
		}
	}
}

// FuzzRead: whatever checks are called and say, their marks name the first, and no check that is
// none of theirs unless it says that there are others.
func FuzzRead(f *testing.F) {
	f.Add("a/b", "c", "(+1 more: x)")
	f.Add("a (+1 more: b)", "c, d", "why: ")
	f.Fuzz(func(t *testing.T, first, second, why string) {
		st := statement(result.Result{ID: first, Verdict: result.Fail, Reason: why}, result.Result{ID: second, Verdict: result.Fail, Reason: why})
		if st.Predicate.Results[0].Validate() != nil || st.Predicate.Results[1].Validate() != nil || oneLine(first) != first || oneLine(second) != second || strings.ContainsAny(first+second, " ,():…") {
			t.Skip()
		}
		mark := Mark(st, 200, nil)
		ids, others := Read(mark)
		if len(first) < 100 && len(second) < 100 && (!slices.Equal(ids, []string{first, second}) || others) {
			t.Errorf("Read(%q) = %q, %v; want %q, %q", mark, ids, others, first, second)
		}
	})
}

// TestUnanswered: a check counts only if it passed and was repeated.
func TestUnanswered(t *testing.T) {
	st := statement(slices.Concat(of(result.Pass, "a", "plain", certificate.GPUsID, certificate.BaselineID), of(result.Warn, "w"), of(result.Skip, "s"), of(result.Fail, "f"))...)
	st.Predicate.After = &certificate.After{Checks: []string{"a", "w", "s", "f"}, Times: 3}
	failed := []string{"a", "plain", certificate.GPUsID, certificate.BaselineID, "w", "s", "f", "none"}
	if got, want := Unanswered(st, failed), []string{"plain", "s", "f", "none"}; !slices.Equal(got, want) {
		t.Errorf("Unanswered = %q; want %q", got, want)
	}
	if got, want := Earlier(st, failed), []string{"plain", "s", "none"}; !slices.Equal(got, want) {
		t.Errorf("Earlier = %q; want %q", got, want)
	}
}
