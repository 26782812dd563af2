package result

import "testing"

func TestWorst(t *testing.T) {
	for _, tt := range []struct {
		want Verdict
		of   []Verdict
	}{
		{Skip, nil}, {Skip, []Verdict{"", Skip}}, {Pass, []Verdict{Skip, Pass}}, {Warn, []Verdict{Pass, Warn, Skip}},
		{Error, []Verdict{Warn, Error, Pass}}, {Fail, []Verdict{Error, Fail}},
	} {
		if got := Worst(tt.of...); got != tt.want {
			t.Errorf("Worst(%q) = %s; want %s", tt.of, got, tt.want)
		}
	}
}

// A quantity's direction and its limits agree: a value that is better never fails where a
// worse one passes, on either side of a limit.
func TestDirections(t *testing.T) {
	for _, q := range table {
		kind := AtLeast
		if q.Better == Lower {
			kind = AtMost
		}
		if got := BetterOf("own/"+q.Name, q.Name, q.Unit, kind); got != q.Better {
			t.Errorf("%s in %s: %v; want %v", q.Name, q.Unit, got, q.Better)
		}
		l := Limit{Value: 10, Kind: kind, Source: "test"}
		better, worse := 11.0, 9.0
		if q.Better == Lower {
			better, worse = worse, better
		}
		if !l.Passes(better) || l.Passes(worse) || !l.Passes(10) {
			t.Errorf("%s in %s: a limit on its side takes %v: %v, %v: %v", q.Name, q.Unit, better, l.Passes(better), worse, l.Passes(worse))
		}
	}
}

// TestAdd: a result is as bad as its worst problem, and has the first remedy of problems as bad.
func TestAdd(t *testing.T) {
	type problem struct {
		v              Verdict
		reason, remedy string
	}
	for _, tt := range []struct {
		of   []problem
		want Result
	}{
		{nil, Result{Verdict: Pass}},
		{[]problem{{Skip, "not watched", "x"}}, Result{Verdict: Pass, Reason: "not watched"}},
		{[]problem{{Warn, "a", "x"}, {Fail, "b", ""}, {Fail, "c", "y"}, {Fail, "d", "z"}, {Error, "e", "w"}}, Result{Verdict: Fail, Reason: "a; b; c; d; e", Remedy: "y"}},
		{[]problem{{Fail, "a", "x"}, {Warn, "b", "y"}}, Result{Verdict: Fail, Reason: "a; b", Remedy: "x"}},
		{[]problem{{Warn, "a", "x"}, {Error, "", ""}}, Result{Verdict: Error, Reason: "a"}},
	} {
		got := Result{Verdict: Pass}
		for _, p := range tt.of {
			got.Add(p.v, p.reason, p.remedy)
		}
		if got.Verdict != tt.want.Verdict || got.Reason != tt.want.Reason || got.Remedy != tt.want.Remedy {
			t.Errorf("%v: %+v; want %+v", tt.of, got, tt.want)
		}
	}
}
