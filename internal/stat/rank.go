package stat

import (
	"math"
	"slices"
)

// Below is the one-sided Mann-Whitney test (Ann. Math. Statist. 18, 1947): the probability that
// the values of a lie as low among those of b as they do, or lower, if both were drawn from the
// same distribution. Ties count against a being low, so they never make the result too small. The
// result is exact for up to 4,000 pairs of values; beyond it is a normal approximation with
// continuity correction. If one side has no values it is 1.
func Below(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	below := sorted(b)
	u := 0 // pairs in which b's value is not above a's
	for _, v := range a {
		i, _ := slices.BinarySearchFunc(below, v, func(x, v float64) int {
			if x <= v {
				return -1
			}
			return 1
		})
		u += i
	}
	return RankTail(len(a), len(b), u)
}

const exactPairs = 4000

// RankTail is Below for counts: u is the number of pairs of one of a values and one of b values
// in which the second is not above the first. RankTail(a, b, 0) is the lowest possible result for
// these numbers of values.
func RankTail(a, b, u int) float64 {
	if u >= a*b {
		return 1
	}
	if a == 1 || b == 1 {
		return float64(u+1) / float64(a*b+1)
	}
	if a*b > exactPairs {
		mean := float64(a) * float64(b) / 2
		sd := math.Sqrt(float64(a) * float64(b) * float64(a+b+1) / 12)
		return normalTail((float64(u) + 0.5 - mean) / sd)
	}
	// The number of arrangements with U = k is the coefficient of q^k in the Gaussian binomial
	// coefficient of a+b and a. It is multiplied and divided factor by factor, with only the
	// first u+1 coefficients.
	count := make([]float64, u+1)
	count[0] = 1
	for i := 1; i <= a; i++ {
		for k := u; k >= b+i; k-- { // times 1-q^(b+i)
			count[k] -= count[k-b-i]
		}
		for k := i; k <= u; k++ { // over 1-q^i
			count[k] += count[k-i]
		}
	}
	var sum float64
	for _, c := range count {
		sum += c
	}
	return min(1, sum/binomial(a+b, a))
}

func binomial(n, k int) float64 {
	p := 1.0
	for i := 1; i <= k; i++ {
		p = p * float64(n-k+i) / float64(i)
	}
	return p
}

// Additive combines probabilities of independent tests of one hypothesis into one, by their sum
// (Edgington, An additive method for combining probability values from independent experiments,
// J. Psychol. 80, 1972): sum^n/n!, which is exact for sums up to 1 and an upper bound beyond.
// Unlike with a product, one small value among large ones shows nothing: the sum is small only if
// all are.
func Additive(sum float64, n int) float64 {
	if n == 0 || sum <= 0 {
		return 1
	}
	lg, _ := math.Lgamma(float64(n + 1))
	return min(1, math.Exp(float64(n)*math.Log(sum)-lg))
}
