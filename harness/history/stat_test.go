package history

import (
	"math"
	"testing"

	"github.com/assay-hpc/assay/internal/stat"
)

func TestTheilSen(t *testing.T) {
	var x, y []float64
	for i := range 20 {
		x, y = append(x, float64(i)), append(y, 3+2*float64(i))
	}
	y[4], y[11] = 900, -900 // what a mean would follow
	l, ok := theilSen(x, y, reportZ)
	if !ok || l.slope != 2 || l.at0 != 3 || l.low > 2 || l.high < 2 {
		t.Errorf("theilSen = %+v, %v; want a slope of 2 from 3", l, ok)
	}
	if _, ok := theilSen([]float64{1, 1}, []float64{1, 2}, reportZ); ok {
		t.Error("a line through points of one x was found")
	}
	if l, ok := theilSen([]float64{1, 2, 3}, []float64{1, 2, 3}, trendZ); !ok || !math.IsInf(l.low, -1) || !math.IsInf(l.high, 1) {
		t.Errorf("three points have the interval %v to %v; want none", l.low, l.high)
	}
	x, y = nil, nil
	for i := range 10 * blocks {
		x, y = append(x, float64(i)), append(y, 0.5*float64(i))
	}
	if l, ok := theilSen(x, y, reportZ); !ok || math.Abs(l.slope-0.5) > 1e-12 {
		t.Errorf("of many points: %+v, %v; want a slope of 0.5", l, ok)
	}
}

func TestFindStep(t *testing.T) {
	v := []float64{1, 1, 1, 1, 3, 1, 5, 5, 5, 5}
	s, ok := findStep(v, 3, 2)
	if !ok || s.at != 6 || s.before != 1 || s.after != 5 {
		t.Errorf("findStep = %+v, %v; want 1 to 5 at 6", s, ok)
	}
	if _, ok := findStep(v[:4], 3, 2); ok {
		t.Error("four points have a step")
	}
}

// TestCosts holds the running sums against sums that begin anew each time.
func TestCosts(t *testing.T) {
	rng := newRand()
	v := make([]float64, 200)
	for i := range v {
		v[i] = math.Round(10*rng.NormFloat64()) / 2
	}
	for n, got := range costs(v) {
		want := 0.0
		if n > 0 {
			m := stat.Median(v[:n])
			for _, x := range v[:n] {
				want += math.Abs(x - m)
			}
		}
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("costs of %d = %v; want %v", n, got, want)
		}
	}
}

func TestResolution(t *testing.T) {
	for _, tt := range []struct {
		v    []float64
		want float64
	}{
		{[]float64{41, 42, 40}, 1}, {[]float64{55.2, 55}, 0.1}, {[]float64{55.25}, 0.01}, {[]float64{1.0 / 3}, 0}, {[]float64{370.1234567891}, 0}, {[]float64{0}, 1},
	} {
		if got := resolution(tt.v); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("resolution(%v) = %v; want %v", tt.v, got, tt.want)
		}
	}
}
