package history

import (
	"math"
	"slices"

	"github.com/assay-hpc/assay/internal/stat"
)

// successive estimates a standard deviation from the differences between neighbours, on which a
// step or a slope has little effect.
func successive(v []float64) float64 {
	if len(v) < 2 {
		return 0
	}
	d := make([]float64, len(v)-1)
	for i := range d {
		d[i] = v[i+1] - v[i]
	}
	return stat.Deviation(d) / math.Sqrt2
}

// resolution returns the step that values were rounded to: the largest power of ten, at most 1,
// of which they are all multiples; 0 for values with more than six decimals.
func resolution(v []float64) float64 {
	for step := 1.0; step > 1e-7; step /= 10 {
		fits := func(x float64) bool {
			k := x / step
			return math.Abs(k-math.Round(k)) < 1e-6*max(1, math.Abs(k)*1e-6)
		}
		if !slices.ContainsFunc(v, func(x float64) bool { return !fits(x) }) {
			return step
		}
	}
	return 0
}

// farOff is how many standard deviations of noise a single outlier is from both its sides.
const farOff = 6

// outliers marks single outliers, one or two certificates long: values that are far from the median
// of the three before and from that of the three after them, on the same side. At the ends what is
// missing on one side is taken from the other, so that the last two may be the beginning of a
// change and are not yet one.
func outliers(v []float64, sigma float64) []bool {
	n := len(v)
	odd := make([]bool, n)
	if n < minPoints-1 {
		return odd
	}
	for i := range v {
		var sides [2]float64
		for side, way := range []int{-1, 1} {
			var near [minSide]float64
			found := 0
			for j := i + way; found < minSide && j >= 0 && j < n; j += way {
				near[found], found = v[j], found+1
			}
			for j := i - way; found < minSide; j -= way {
				near[found], found = v[j], found+1
			}
			sides[side] = v[i] - stat.Median(near[:])
		}
		odd[i] = min(sides[0], sides[1]) > farOff*sigma || max(sides[0], sides[1]) < -farOff*sigma
	}
	for i := 1; i < n-1; i++ { // the middle of three
		if odd[i] && !odd[i-1] && !odd[i+1] && max(math.Abs(v[i]-v[i-1]), math.Abs(v[i]-v[i+1])) <= farOff*sigma {
			odd[i] = false
		}
	}
	return odd
}

// minNoise is the number of values on each side of a change of noise.
const minNoise = 8

// noisier returns where the size of residuals changes most, with the number of standard deviations
// of the rank sum of absolute residuals, which does not depend on their distribution
// (Mann-Whitney's test at each possible time); 0 if there are too few.
func noisier(residuals []float64) (at int, z float64) {
	n := len(residuals)
	if n < 2*minNoise {
		return 0, 0
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch d := math.Abs(residuals[a]) - math.Abs(residuals[b]); {
		case d < 0:
			return -1
		case d > 0:
			return 1
		}
		return 0
	})
	rank := make([]float64, n)
	for i := 0; i < n; {
		j := i
		for j < n && math.Abs(residuals[order[j]]) == math.Abs(residuals[order[i]]) {
			j++
		}
		for k := i; k < j; k++ {
			rank[order[k]] = float64(i+j+1) / 2
		}
		i = j
	}
	sum, all := 0.0, float64(n)
	for k := 1; k <= n-minNoise; k++ {
		sum += rank[k-1]
		if k < minNoise {
			continue
		}
		b := float64(k)
		this := (b*(all+1)/2 - sum) / math.Sqrt(b*(all-b)*(all+1)/12)
		if math.Abs(this) > math.Abs(z) {
			at, z = k, this
		}
	}
	return at, z
}
