package stat

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func near(a, b, within float64) bool { return math.Abs(a-b) <= within }

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values      []float64
		median, mad float64
	}{
		{[]float64{3}, 3, 0},
		{[]float64{4, 1}, 2.5, 1.5 * normalMAD},
		{[]float64{9, 1, 2}, 2, 1 * normalMAD},
		{[]float64{1, 8, 4, 2}, 3, 1.5 * normalMAD},
		{[]float64{1, 2, 3, 4, 1e9}, 3, 1 * normalMAD},
	} {
		before := slices.Clone(tt.values)
		if got := Median(tt.values); got != tt.median {
			t.Errorf("Median(%v) = %v; want %v", tt.values, got, tt.median)
		}
		if got := MAD(tt.values); !near(got, tt.mad, 1e-12) {
			t.Errorf("MAD(%v) = %v; want %v", tt.values, got, tt.mad)
		}
		if !slices.Equal(before, tt.values) {
			t.Errorf("the argument became %v", tt.values)
		}
	}
}

// TestMedianInterval: coverage is what it says, with a skewed distribution.
func TestMedianInterval(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 5, 6, 20, 101} {
		const trials = 4000
		hit, promised := 0, 0.0
		for range trials {
			values := make([]float64, n)
			for i := range values {
				values[i] = rng.ExpFloat64()
			}
			in := MedianInterval(values, 0.95)
			promised = in.Confidence
			if in.Low <= math.Ln2 && math.Ln2 <= in.High {
				hit++
			}
		}
		got := float64(hit) / trials
		if !near(got, promised, 0.02) {
			t.Errorf("n = %d: %v of the intervals hold the median; they say %v", n, got, promised)
		}
		if n >= 6 && promised < 0.95 {
			t.Errorf("n = %d: confidence %v", n, promised)
		}
	}
	// The table of Conover, Practical Nonparametric Statistics: n = 10 has the
	// second and the ninth value with 97.9 %.
	in := MedianInterval([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.95)
	if in.Low != 2 || in.High != 9 || !near(in.Confidence, 0.9785, 1e-4) {
		t.Errorf("MedianInterval(1…10) = %+v", in)
	}
}

// belowRef counts all arrangements.
func belowRef(a, b, u int) float64 {
	all, low := 0, 0
	for bits := range 1 << (a + b) {
		ones, pairs, zeros := 0, 0, 0
		for i := range a + b {
			if bits>>i&1 == 1 {
				ones++
				pairs += zeros
			} else {
				zeros++
			}
		}
		if ones != a {
			continue
		}
		all++
		if pairs <= u {
			low++
		}
	}
	return float64(low) / float64(all)
}

func TestBelow(t *testing.T) {
	for a := 1; a <= 6; a++ {
		for b := 1; b <= 6; b++ {
			for u := range a*b + 1 {
				if got, want := RankTail(a, b, u), belowRef(a, b, u); !near(got, want, 1e-12) {
					t.Fatalf("RankTail(%d, %d, %d) = %v; want %v", a, b, u, got, want)
				}
			}
		}
	}
	for _, tt := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, 2}, []float64{3, 4}, 1.0 / 6},
		{[]float64{3, 4}, []float64{1, 2}, 1},
		{[]float64{1, 1}, []float64{1, 1}, 1}, // ties show nothing
		{nil, []float64{1}, 1},
		{[]float64{1}, nil, 1},
	} {
		if got := Below(tt.a, tt.b); !near(got, tt.want, 1e-12) {
			t.Errorf("Below(%v, %v) = %v; want %v", tt.a, tt.b, got, tt.want)
		}
	}
	// At the border between exact and approximate both agree.
	if exact, approx := RankTail(40, 100, 1500), RankTail(40, 101, 1515); !near(exact, approx, 0.001) {
		t.Errorf("exact %v, approximate %v", exact, approx)
	}
}

// TestAdditive: a combined probability is never smaller than it may be.
func TestAdditive(t *testing.T) {
	if got := Additive(0.5, 2); !near(got, 0.125, 1e-12) {
		t.Errorf("Additive(0.5, 2) = %v", got)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 5, 12} {
		const trials = 100_000
		for _, level := range []float64{0.2, 0.05, 0.01} {
			hit := 0
			for range trials {
				sum := 0.0
				for range n {
					sum += rng.Float64()
				}
				if Additive(sum, n) <= level {
					hit++
				}
			}
			if got := float64(hit) / trials; got > level*1.1 || level <= 0.05 && got < level*0.6 {
				t.Errorf("n = %d: %v of the sums are at or below the level %v", n, got, level)
			}
		}
	}
}

func TestSketch(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var whole Sketch
	parts := make([]Sketch, 7)
	var values []float64
	for range 20_000 {
		v := math.Exp(3 * rng.NormFloat64())
		if rng.IntN(50) == 0 {
			v = 0
		}
		values = append(values, v)
		if err := whole.Add(v); err != nil {
			t.Fatal(err)
		}
		if err := parts[rng.IntN(len(parts))].Add(v); err != nil {
			t.Fatal(err)
		}
	}
	var merged Sketch
	rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for i := range parts {
		merged.Merge(&parts[i])
	}
	if !reflect.DeepEqual(whole, merged) {
		t.Error("merged parts are not the whole")
	}
	slices.Sort(values)
	for _, q := range []float64{0, 0.01, 0.05, 0.5, 0.95, 0.999, 1} {
		want := values[int(q*float64(len(values)-1))]
		if got := whole.Quantile(q); !near(got, want, SketchError*want+1e-12) {
			t.Errorf("Quantile(%v) = %v; want %v", q, got, want)
		}
	}
	for _, v := range []float64{-1, math.NaN(), math.Inf(1)} {
		if whole.Add(v) == nil {
			t.Errorf("Add(%v) is no error", v)
		}
	}
	b, err := json.Marshal(merged)
	if err != nil {
		t.Fatal(err)
	}
	var again Sketch
	if err := json.Unmarshal(b, &again); err != nil {
		t.Fatal(err)
	}
	if err := again.Validate(); err != nil || !reflect.DeepEqual(again, merged) {
		t.Errorf("it came back as another one: %v", err)
	}
	again.Count++
	if again.Validate() == nil {
		t.Error("a sketch whose counts do not add up is valid")
	}
}
