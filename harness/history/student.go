package history

import "math"

// freedom is the number of degrees of freedom of Student's t in [sample.confirm].
const freedom = 5

// confirm returns the gain of a change with innovations of Student's t instead of normal ones, so
// that what a few outliers make is not taken for a change.
func (s *sample) confirm(c *change, p *prior) float64 {
	n := len(s.y)
	x := make([]float64, n)
	for i := c.at; i < n; i++ {
		x[i] = 1
		if c.shape == ramp {
			x[i] = (s.at[i] - s.at[c.at-1]) / (s.at[n-1] - s.at[c.at-1])
		}
	}
	none, one := math.Inf(1), math.Inf(1)
	for r, rho := range rhos {
		w := s.whiten(rho, x)
		none = min(none, s.student(w.y, w.bases[:1], r, p)+w.logdet+p.rho[r])
		one = min(one, s.student(w.y, w.bases, r, p)+w.logdet+p.rho[r]+doubt[r])
	}
	return none - one - edge(c.shape, c.at, n)
}

// student fits the values to the bases by iteratively reweighted least squares (Lange, Little and
// Taylor, J. Amer. Statist. Assoc. 84, 1989) and returns twice the negative logarithm of the
// likelihood.
func (s *sample) student(y []float64, bases [][]float64, r int, p *prior) float64 {
	n := len(y)
	e := make([]float64, n)
	weights := make([]float64, n)
	for i := range weights {
		weights[i] = 1
	}
	var square float64
	for round := range 12 {
		fit(e, y, bases, weights)
		sum := p.weight * p.square[r]
		for i, v := range e {
			sum += weights[i] * v * v
		}
		was := square
		square = max(sum/(float64(n)+p.weight), s.floor*s.floor, 1e-300)
		for i, v := range e {
			weights[i] = (freedom + 1) / (freedom + v*v/square)
		}
		if round > 1 && math.Abs(square-was) < 1e-4*square {
			break
		}
	}
	cost := (float64(n)+p.weight)*math.Log(square) + p.weight*p.square[r]/square
	for _, v := range e {
		cost += (freedom + 1) * math.Log1p(v*v/(freedom*square))
	}
	return cost
}

// fit sets e to the residuals of a weighted least-squares fit of y to one or two bases.
func fit(e, y []float64, bases [][]float64, weights []float64) {
	var aa, ab, bb, ay, by float64
	a, b := bases[0], bases[len(bases)-1]
	for i, w := range weights {
		aa, ab, bb = aa+w*a[i]*a[i], ab+w*a[i]*b[i], bb+w*b[i]*b[i]
		ay, by = ay+w*a[i]*y[i], by+w*b[i]*y[i]
	}
	ca, cb := ay/aa, 0.0
	if det := aa*bb - ab*ab; len(bases) > 1 && det > 0 {
		ca, cb = (ay*bb-by*ab)/det, (by*aa-ay*ab)/det
	}
	for i := range e {
		e[i] = y[i] - ca*a[i] - cb*b[i]
	}
}
