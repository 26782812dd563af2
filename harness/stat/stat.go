// Package stat is the statistics of measurements that are noisy, skewed and have
// outliers: medians rather than means, ranks rather than normal distributions.
// Nothing here takes a value's distribution for known.
//
// The functions are pure, keep their arguments as they are, and panic where
// there is no value at all.
package stat

import (
	"math"
	"slices"
)

// Median is the middle value; of an even number the mean of the two in the
// middle.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// normalMAD makes a median absolute deviation comparable with a standard
// deviation: it is 1/Φ⁻¹(3/4).
const normalMAD = 1.4826022185056018

// MAD is the median absolute deviation from the median, times 1.4826, so that it
// estimates the standard deviation where values are normal. Half of the values
// may be anything (Rousseeuw and Croux, Alternatives to the Median Absolute
// Deviation, J. Amer. Statist. Assoc. 88, 1993).
func MAD(values []float64) float64 {
	m := Median(values)
	rest := make([]float64, len(values))
	for i, v := range values {
		rest[i] = v - m
	}
	return Deviation(rest)
}

// Deviation is MAD of residuals, whose middle is 0.
func Deviation(residuals []float64) float64 {
	abs := make([]float64, len(residuals))
	for i, r := range residuals {
		abs[i] = math.Abs(r)
	}
	return normalMAD * Median(abs)
}

// Moments are the mean, and the standard deviation of these values alone. They are
// for tools' formats that have them: one outlier moves both.
func Moments(values []float64) (mean, deviation float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v
	}
	mean /= n
	for _, v := range values {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / n)
}

// An Interval is what a value lies in, with a confidence that is at least the
// one asked for.
type Interval struct {
	Low, High  float64
	Confidence float64
}

// MedianInterval is a confidence interval of the median of what values are
// drawn from, whatever its distribution: two order statistics, chosen by the
// binomial distribution (David and Nagaraja, Order Statistics, 3rd ed., 7.1).
// Where there are too few values for the confidence it is all of them, and says
// what confidence that is.
func MedianInterval(values []float64, confidence float64) Interval {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	// Both ends move inwards while the tails outside stay small enough. below is
	// the probability of fewer than k values being under the median.
	k, below := 0, math.Exp2(-float64(n))
	term := below
	in := Interval{s[0], s[n-1], 1 - 2*below}
	for k+1 < (n+1)/2 {
		k++
		term *= float64(n-k+1) / float64(k)
		below += term
		if 1-2*below < confidence {
			break
		}
		in = Interval{s[k], s[n-1-k], 1 - 2*below}
	}
	in.Confidence = max(in.Confidence, 0)
	return in
}

// NormalTail is the probability that a standard normal value is below z.
func NormalTail(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
