package membw

import (
	"cmp"
	"slices"
)

// median of values, of which there is one at least.
func median(values []float64) float64 {
	s := slices.Clone(values)
	slices.SortFunc(s, cmp.Compare[float64])
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

func mean(values []float64) float64 { return sum(values) / float64(len(values)) }
