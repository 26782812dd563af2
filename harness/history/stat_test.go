package history

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFind holds the one pass over all changes and correlations against one least-squares fit for each,
// by the likelihood's definition: the normal density with a full covariance matrix.
func TestFind(t *testing.T) {
	rng := newRand()
	for range 20 {
		n := 7 + rng.IntN(8)
		s := &sample{}
		at := 0.0
		for range n {
			at += 0.3 + 2*rng.Float64()
			s.at, s.y = append(s.at, at), append(s.y, rng.NormFloat64())
		}
		got, ok := s.find(&prior{})
		none := math.Inf(1)
		best := change{gain: math.Inf(-1)}
		one := math.Inf(1)
		for r, rho := range rhos {
			none = min(none, slowly(s, rho, nil))
			for k := 1; k < n; k++ {
				for _, kind := range []shape{step, ramp} {
					if kind == step && (k < minSide || n-k < minSide) || kind == ramp && n-k < minRamp {
						continue
					}
					x := make([]float64, n)
					for i := k; i < n; i++ {
						if x[i] = 1; kind == ramp {
							x[i] = s.at[i] - s.at[k-1]
						}
					}
					if c := slowly(s, rho, x) + doubt[r] + edge(kind, k, n); c < one {
						one, best.at, best.shape = c, k, kind
					}
				}
			}
		}
		if !ok || got.at != best.at || got.shape != best.shape || math.Abs(got.gain-(none-one)) > 1e-6 {
			t.Errorf("find = %+v; want %v at %d with a gain of %v", got, best.shape, best.at, none-one)
		}
	}
}

// slowly returns twice the negative logarithm of the likelihood, up to a constant.
func slowly(s *sample, rho float64, x []float64) float64 {
	n := len(s.y)
	cov := make([][]float64, n)
	place := make([]float64, n) // so that the correlation is rho to the distance
	for i := range n {
		if i > 0 {
			place[i] = place[i-1] + max(0.25, s.at[i]-s.at[i-1])
		}
	}
	for i := range n {
		cov[i] = make([]float64, n)
		for j := range n {
			if i == j {
				cov[i][j] = 1 / (1 - rho*rho)
			} else if rho > 0 {
				cov[i][j] = math.Pow(rho, math.Abs(place[i]-place[j])) / (1 - rho*rho)
			}
		}
	}
	l, logdet := cholesky(cov)
	ones := make([]float64, n)
	for i := range ones {
		ones[i] = 1
	}
	var bases [][]float64
	subtract := func(x, q []float64) {
		d := dot(x, q)
		for i := range x {
			x[i] -= d * q[i]
		}
	}
	for _, b := range [][]float64{ones, x} {
		if b == nil {
			continue
		}
		b = forward(l, b)
		for _, q := range bases {
			subtract(b, q)
		}
		length := math.Sqrt(dot(b, b))
		for i := range b {
			b[i] /= length
		}
		bases = append(bases, b)
	}
	y := forward(l, s.y)
	for _, q := range bases {
		subtract(y, q)
	}
	return float64(n)*math.Log(dot(y, y)/float64(n)) + logdet
}

func cholesky(a [][]float64) (l [][]float64, logdet float64) {
	n := len(a)
	l = make([][]float64, n)
	for i := range n {
		l[i] = make([]float64, n)
		for j := range i + 1 {
			sum := a[i][j]
			for k := range j {
				sum -= l[i][k] * l[j][k]
			}
			if i == j {
				l[i][i] = math.Sqrt(sum)
				logdet += 2 * math.Log(l[i][i])
			} else {
				l[i][j] = sum / l[j][j]
			}
		}
	}
	return l, logdet
}

func forward(l [][]float64, b []float64) []float64 {
	x := slices.Clone(b)
	for i := range x {
		for j := range i {
			x[i] -= l[i][j] * x[j]
		}
		x[i] /= l[i][i]
	}
	return x
}

// TestStudent: the fit's likelihood is larger than that of any fit near it.
func TestStudent(t *testing.T) {
	rng := newRand()
	s := &sample{}
	for i := range 30 {
		s.at, s.y = append(s.at, float64(i)), append(s.y, 3+rng.NormFloat64()/math.Abs(rng.NormFloat64()))
	}
	w := s.whiten(0)
	direct := func(level, sigma float64) (sum float64) {
		for _, y := range s.y {
			e := (y - level) / sigma
			sum += 2*math.Log(sigma) + (freedom+1)*math.Log1p(e*e/freedom)
		}
		return sum
	}
	best := math.Inf(1)
	for level := 0.0; level < 6; level += 0.01 {
		for sigma := 0.1; sigma < 5; sigma *= 1.01 {
			best = min(best, direct(level, sigma))
		}
	}
	raw := slices.Clone(s.y)
	if got := s.student(raw, w.bases, 0, &prior{}); math.Abs(got-best) > 0.05 {
		t.Errorf("student = %v; want %v", got, best)
	}
}

func TestOutliers(t *testing.T) {
	for _, tt := range []struct {
		v    []float64
		want []int
	}{
		{[]float64{0, 0, 0, 9, 0, 0, 0}, []int{3}},
		{[]float64{0, 0, 0, 9, 9, 0, 0, 0}, []int{3, 4}},
		{[]float64{0, 0, 0, 9, 9, 9, 0, 0, 0}, nil},
		{[]float64{9, 0, 0, 0, 0, 0}, []int{0}},
		{[]float64{0, 0, 0, 0, 9, 9}, []int{4, 5}},
		{[]float64{0, 0, 0, 9, 9, 9}, nil},
		{[]float64{0, 0, 9, 9, 9}, []int{0, 1}},
		{[]float64{0, 0, 9}, nil},
		{[]float64{0, 0, 0, 5, 0, 0, 0}, nil},
	} {
		var got []int
		for i, odd := range outliers(tt.v, 1) {
			if odd {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("outliers of %v: %v; want %v", tt.v, got, tt.want)
		}
	}
}

// TestNoisier: noise that grows is found where it does, and noise that stays is not.
func TestNoisier(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	falsely := 0
	for range 1000 {
		v := make([]float64, 60)
		for i := range v {
			v[i] = rng.NormFloat64()
		}
		if _, z := noisier(v); math.Abs(z) > noiseZ {
			falsely++
		}
	}
	if falsely > 2 {
		t.Errorf("%d of 1000 have a change of noise", falsely)
	}
	v := make([]float64, 60)
	for i := range v {
		v[i] = rng.NormFloat64()
		if i >= 30 {
			v[i] *= 6
		}
	}
	if at, z := noisier(v); z < noiseZ || at < 26 || at > 34 {
		t.Errorf("noise that grows at 30: at %d, %v", at, z)
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
