package report

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// An axis maps values to pixels.
type axis struct {
	low, high float64 // at the ends
	from, to  float64 // pixels
	log       bool
	ticks     []tick
}

// A tick is a labelled value of an axis.
type tick struct {
	At    float64
	Label string
}

// at returns the pixel position of a value.
func (a *axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log2(v), math.Log2(low), math.Log2(high)
	}
	if high == low {
		return (a.from + a.to) / 2
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

// place adds ticks at the given values.
func (a *axis) place(values []float64, label func(float64) string) {
	for _, v := range values {
		a.ticks = append(a.ticks, tick{a.at(v), label(v)})
	}
}

// drawable reports whether values can be placed on an axis: calculations with them neither overflow
// nor underflow.
func drawable(values []float64) bool {
	for _, v := range values {
		if size := math.Abs(v); size > 1e100 || size < 1e-100 && v != 0 {
			return false
		}
	}
	return len(values) > 0
}

// fromZero returns an axis with round ticks that covers all values and zero.
func fromZero(values []float64, from, to float64, most int) axis {
	low, high := 0.0, 0.0
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	return rounded(low, high, from, to, most)
}

// rounded returns an axis from one round number to another.
func rounded(low, high, from, to float64, most int) axis {
	if size := max(math.Abs(low), math.Abs(high)); size == 0 {
		high = 1
	} else if high-low < 1e-6*size {
		low, high = low-size/20, high+size/20
	}
	step := roundStep((high - low) / float64(most))
	first, last := math.Floor(low/step), math.Ceil(high/step)
	a := axis{low: first * step, high: last * step, from: from, to: to}
	var values []float64
	for i := first; i <= last && len(values) <= 2*most; i++ {
		values = append(values, i*step)
	}
	a.place(values, func(v float64) string { return fmt.Sprintf("%.4g", v) })
	return a
}

// roundStep returns the smallest of 1, 2 and 5 times a power of ten that is at least the given
// step.
func roundStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= least {
			return m * power
		}
	}
	return 10 * power
}

// logarithmic returns an axis for values above zero: by powers of two for bytes, of ten for all
// other units.
func logarithmic(low, high, from, to float64, unit string, most int) axis {
	base, label := 10.0, func(v float64) string { return fmt.Sprintf("%.4g", v) }
	if unit == "B" {
		base, label = 2, bytesText
	}
	a := axis{low: low, high: high, from: from, to: to, log: true}
	first := math.Ceil(math.Log(low)/math.Log(base) - 1e-9)
	last := math.Floor(math.Log(high)/math.Log(base) + 1e-9)
	step := max(1, math.Ceil((last-first+1)/float64(most)))
	var values []float64
	for i := first; i <= last; i += step {
		values = append(values, math.Pow(base, i))
	}
	if len(values) == 0 {
		values = []float64{low}
	}
	a.place(values, label)
	return a
}

// bytesText formats a size in the largest binary unit in which it is at least 1.
func bytesText(v float64) string {
	i := 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	return fmt.Sprintf("%.4g %s", v, units[i])
}

// calendar returns a time axis, in seconds since 1970, with labels at its ends.
func calendar(low, high, from, to float64) axis {
	format := time.DateOnly
	if high-low < 3*24*3600 {
		format = "01-02 15:04"
	}
	a := axis{low: low, high: high, from: from, to: to}
	a.place([]float64{low, high}, func(v float64) string { return time.Unix(int64(v), 0).UTC().Format(format) })
	return a
}

// unitOf returns the name of an axis: its unit, or "size" for bytes, which have the unit in each
// label.
func unitOf(unit string) string {
	if unit == "B" {
		return "size"
	}
	return unit
}

// dots formats points for SVG's polyline.
func dots(points [][2]float64) string {
	var b strings.Builder
	for i, p := range points {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%.1f,%.1f", p[0], p[1])
	}
	return b.String()
}
