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
