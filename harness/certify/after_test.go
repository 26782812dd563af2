package certify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/harness/site"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
)

// script returns a certification by a suite whose check "a" has the given verdicts, one a run, and
// whose check "b" passes. The runs of a list share one measurement, as those of health do.
func script(verdicts ...result.Verdict) *Certification {
	lists := 0
	s := &suite.Suite{Name: "test", Checks: func(context.Context, *suite.Env) ([]suite.Check, error) {
		list := lists
		lists++
		return []suite.Check{
			{ID: "a", Timeout: time.Minute, Run: func(context.Context, *suite.Env) result.Result {
				return result.Result{Verdict: verdicts[min(list, len(verdicts)-1)], Reason: fmt.Sprintf("list %d", list)}
			}},
			{ID: "b", Run: func(context.Context, *suite.Env) result.Result { return result.Passed("") }},
		}, nil
	}}
	checks, _ := s.Checks(context.Background(), nil)
	return &Certification{Options: Options{Timeout: time.Second}, Env: new(suite.Env), Checks: checks, suite: s, file: new(suite.File), notes: new(notes)}
}

// TestRepeat: a check by which the machine failed passes if all of its runs do.
func TestRepeat(t *testing.T) {
	const pass, warn, fail, skip, broken = result.Pass, result.Warn, result.Fail, result.Skip, result.Error
	for _, tt := range []struct {
		runs   []result.Verdict // of the lists: the first is that of the suite itself
		want   result.Verdict
		reason string
	}{
		{[]result.Verdict{pass}, pass, "list 3"},
		{[]result.Verdict{pass, warn, pass, pass}, warn, "list 1"},
		{[]result.Verdict{pass, pass, pass, warn}, warn, "list 3"},
		{[]result.Verdict{pass, pass, pass, fail}, fail, "run 3 of 3: list 3"},
		{[]result.Verdict{pass, fail}, fail, "run 1 of 3: list 1"},
		{[]result.Verdict{pass, pass, broken}, broken, "run 2 of 3: list 2"},
		{[]result.Verdict{pass, skip}, broken, "the machine failed by it before, and now it is skipped: list 1"},
	} {
		c := script(tt.runs...)
		if err := c.Repeat(t.Context(), []string{"a", "a"}, true); err != nil {
			t.Fatal(err)
		}
		results, err := c.runChecks(t.Context(), func(suite.Event) {})
		if err != nil {
			t.Fatal(err)
		}
		if got := results[0]; len(results) != 2 || got.ID != "a" || got.Verdict != tt.want || got.Reason != tt.reason {
			t.Errorf("%v: %s: %s: %s; want %s: %s", tt.runs, got.ID, got.Verdict, got.Reason, tt.want, tt.reason)
		}
		if c.longer != 2*time.Minute || c.Checks[0].Timeout != 3*time.Minute {
			t.Errorf("%v: the suite may take %v longer, the check %v", tt.runs, c.longer, c.Checks[0].Timeout)
		}
		if got := c.repetitions(); got == nil || got.String() != "a, 3 times" {
			t.Errorf("%v: after %v", tt.runs, got)
		}
	}
}

// TestRepeatSelects: what was asked for is run, whatever is selected; what is only known to have failed
// is run if it is selected.
func TestRepeatSelects(t *testing.T) {
	for _, tt := range []struct {
		name       string
		only, skip []string
		failed     []string
		all        bool
		want       string // what is repeated
		err        string
	}{
		{"nothing", nil, nil, nil, true, "[]", ""},
		{"known", nil, nil, []string{"a"}, false, "[a]", ""},
		{"known, and left out", []string{"b"}, nil, []string{"a"}, false, "[]", ""},
		{"known, and of another suite", nil, nil, []string{"diag/memory", "b"}, false, "[b]", ""},
		{"asked for, and left out", nil, []string{"a"}, []string{"a"}, true, "[a]", ""},
		{"the number of GPUs", nil, nil, []string{certificate.GPUsID}, true, "", "say with --gpus N"},
		{"the number of GPUs, known", nil, nil, []string{certificate.GPUsID}, false, "[]", ""},
		{"a baseline", nil, nil, []string{baselineID}, true, "", "name it with --baseline"},
	} {
		c := script(result.Pass)
		c.Only, c.Skip = tt.only, tt.skip
		err := c.Repeat(t.Context(), tt.failed, tt.all)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || exit.Of(err) != exit.Usage {
				t.Errorf("%s: %v; want %q", tt.name, err, tt.err)
			}
			continue
		}
		if got := fmt.Sprint(c.after); err != nil || got != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
		for _, id := range c.after {
			if !c.Wants(id) || c.Deselected(id) {
				t.Errorf("%s: %s is left out", tt.name, id)
			}
		}
	}
	image := script(result.Pass)
	image.file = nil
	if err := image.Repeat(t.Context(), []string{"a"}, true); err == nil || exit.Of(err) != exit.Usage {
		t.Errorf("a suite about an image: %v", err)
	}
	if err := image.Repeat(t.Context(), []string{"a"}, false); err != nil || slices.Contains(image.after, "a") {
		t.Errorf("a suite about an image, of a known failure: %v", err)
	}
}

// TestRecall: a failure says how often it came back, once, and before what was seen.
func TestRecall(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	made := func(day int, v result.Verdict) *certificate.Statement {
		r := result.Result{ID: "diag/memory", Verdict: v}
		if v == result.Fail {
			r.Reason = "GPU 3: 12 errors"
			r.Objects = []result.Object{{Name: "GPU 3", ID: "GPU-3", Verdict: v, Reason: "12 errors"}}
		}
		st := certificate.New(certificate.Predicate{Suite: "node", Started: at.AddDate(0, 0, day), Finished: at.AddDate(0, 0, day), Results: []result.Result{
			r, {ID: "other", Verdict: result.Fail, Reason: "always"},
		}})
		if err := st.SetNode(&certificate.Node{Name: "gpu-1", Identity: []string{"dmi 1"}, GPUs: []certificate.GPU{{Index: 3, UUID: "GPU-3"}}}); err != nil {
			t.Fatal(err)
		}
		return st
	}
	c := script(result.Pass)
	now := made(9, result.Fail)
	c.recall(t.Context(), now) // nothing is known
	if got := now.Predicate.Results[0].Reason; got != "GPU 3: 12 errors" {
		t.Errorf("without a history: %q", got)
	}
	c.Recall = func(_ context.Context, known *history.Recall) {
		for _, st := range []*certificate.Statement{made(0, result.Fail), made(1, result.Pass), made(4, result.Fail), made(5, result.Pass)} {
			known.Add(st)
		}
	}
	c.recall(t.Context(), now)
	if got := now.Predicate.Results[0].Reason; got != "GPU 3 failed 3 times, and passed in between (2026-03-01, 2026-03-05, 2026-03-10): 12 errors" {
		t.Errorf("the third time: %q", got)
	}
	if got := now.Predicate.Results[1].Reason; got != "always" {
		t.Errorf("what never passed: %q", got)
	}
	if _, err := now.Marshal(); err != nil {
		t.Error(err)
	}
	if got := site.Reason(now, 200); got != "assay: diag/memory: GPU 3 failed 3 times, and passed in between (2026-03-01, 2026-03-05, 2026-03-10): 12 errors (+1 more)" {
		t.Errorf("the reason is %q", got)
	}
	well := made(9, result.Pass)
	well.Predicate.Results = well.Predicate.Results[:1]
	well.Predicate.Verdict = result.Pass
	c.Recall = func(context.Context, *history.Recall) { t.Error("the history of a machine that is well was read") }
	c.recall(t.Context(), well)
}
