// Package stat contains statistics for measurements that are noisy, skewed and have outliers:
// medians instead of means, ranks instead of normal distributions. Nothing here assumes a
// distribution of the values.
//
// The functions are pure, do not modify their arguments, and panic if there are no values.
package stat

import (
	"math"
	"slices"
)

// Median returns the middle value; for an even number of values the mean of the two in the
// middle.
func Median(values []float64) float64 {
	s := sorted(values)
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

func sorted(values []float64) []float64 {
	s := slices.Clone(values)
	slices.Sort(s)
	return s
}

// normalMAD scales a median absolute deviation to a standard deviation: it is 1/Φ⁻¹(3/4).
const normalMAD = 1.4826022185056018

// MAD is the median absolute deviation from the median, times 1.4826, so that it estimates the
// standard deviation of normal values. Half of the values may be arbitrary (Rousseeuw and Croux,
// Alternatives to the Median Absolute Deviation, J. Amer. Statist. Assoc. 88, 1993).
func MAD(values []float64) float64 {
	m := Median(values)
	rest := make([]float64, len(values))
	for i, v := range values {
		rest[i] = v - m
	}
	return Deviation(rest)
}

// Deviation is MAD for residuals, with a median of 0.
func Deviation(residuals []float64) float64 {
	abs := make([]float64, len(residuals))
	for i, r := range residuals {
		abs[i] = math.Abs(r)
	}
	return normalMAD * Median(abs)
}

// Moments returns the mean and the standard deviation of these values alone. They are for tools'
// formats that contain them: one outlier changes both.
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

// An Interval is where a value lies, with a confidence that is at least the requested one if
// there are enough values.
type Interval struct {
	Low, High  float64
	Confidence float64
}

// MedianInterval returns a confidence interval of the median of the distribution that values are
// drawn from, whatever it is: two order statistics, chosen by the binomial distribution (David
// and Nagaraja, Order Statistics, 3rd ed., 7.1). With too few values for the confidence the
// interval spans all of them, and Confidence is what that achieves.
func MedianInterval(values []float64, confidence float64) Interval {
	s := sorted(values)
	n := len(s)
	// Both ends move inwards while the tails outside stay small enough. below is the probability
	// that k values or fewer are below the median.
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

// normalTail returns the probability that a standard normal value is below z.
func normalTail(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }

// AtLeast is the probability of k or more successes in n trials, each with the probability p.
func AtLeast(k, n int, p float64) float64 {
	switch {
	case k <= 0:
		return 1
	case k > n || p <= 0:
		return 0
	case p >= 1:
		return 1
	}
	// From the term for k on, which is the largest where this matters.
	log := func(i int) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(i + 1))
		c, _ := math.Lgamma(float64(n - i + 1))
		return a - b - c + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p)
	}
	sum := 0.0
	for i := k; i <= n; i++ {
		sum += math.Exp(log(i))
	}
	return min(sum, 1)
}
