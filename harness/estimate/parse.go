package estimate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Rate is in bytes per second, one direction.
type Rate float64

// String prints GB/s, and Gb/s as is usual for networks.
func (r Rate) String() string {
	return fmt.Sprintf("%.4g GB/s (%.4g Gb/s)", float64(r)/1e9, float64(r)*8/1e9)
}

// rateUnits are the units of a rate. Case distinguishes bytes from bits.
var rateUnits = func() map[string]float64 {
	units := map[string]float64{}
	for prefix, factor := range map[string]float64{"M": 1e6, "G": 1e9, "T": 1e12} {
		for _, u := range []string{"B/s", "Bps"} {
			units[prefix+u] = factor
		}
		for _, u := range []string{"b/s", "bps", "bit/s"} {
			units[prefix+u] = factor / 8
		}
	}
	return units
}()

// ParseRate reads a rate with its unit: 300GB/s, 200Gb/s, 1.6Tb/s, or several links with the same
// rate: 8x200Gb/s. An upper-case B is a byte, a lower-case b a bit.
func ParseRate(s string) (Rate, error) {
	links, rest := 1.0, strings.TrimSpace(s)
	if before, after, ok := strings.Cut(rest, "x"); ok {
		n, err := strconv.Atoi(strings.TrimSpace(before))
		if err != nil || n < 1 || n > 1<<20 {
			return 0, fmt.Errorf("%q: what stands before the x is the number of links", s)
		}
		links, rest = float64(n), strings.TrimSpace(after)
	}
	i := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i <= 0 {
		return 0, fmt.Errorf("%q is not a rate with its unit, such as 300GB/s, 200Gb/s or 8x200Gb/s", s)
	}
	v, err := strconv.ParseFloat(rest[:i], 64)
	if err != nil || !(v > 0) {
		return 0, fmt.Errorf("%q: %q is not a number more than 0", s, rest[:i])
	}
	unit := strings.TrimSpace(rest[i:])
	factor, ok := rateUnits[unit]
	if !ok {
		for name := range maps.Keys(rateUnits) {
			if strings.EqualFold(name, unit) {
				return 0, fmt.Errorf("%q: write GB/s for bytes, or Gb/s for bits", s)
			}
		}
		return 0, fmt.Errorf("%q: unit %q; want one of %s", s, unit, strings.Join(slices.Sorted(maps.Keys(rateUnits)), ", "))
	}
	r := links * v * factor
	if r > maxQuantity {
		return 0, fmt.Errorf("%q is more than any link has", s)
	}
	return Rate(r), nil
}

// ParseParams reads a number of parameters: 2e9, 2B, 350M, 1.8T.
func ParseParams(s string) (float64, error) {
	digits, factor := s, 1.0
	if n := len(s); n > 0 {
		switch s[n-1] &^ 0x20 {
		case 'M':
			digits, factor = s[:n-1], 1e6
		case 'B':
			digits, factor = s[:n-1], 1e9
		case 'T':
			digits, factor = s[:n-1], 1e12
		}
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsInf(v, 0) || !(v*factor >= 1) || v*factor > maxQuantity || strings.ContainsAny(digits, "xX_pP") {
		return 0, fmt.Errorf("%q is not a number of parameters such as 2e9, 2B or 350M", s)
	}
	return v * factor, nil
}

// dtypes maps names of types to their size in bytes.
var dtypes = map[string]float64{"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "fp4": 0.5}

// ParseDType returns the size of an element in bytes.
func ParseDType(s string) (float64, error) {
	if b, ok := dtypes[strings.ToLower(s)]; ok {
		return b, nil
	}
	return 0, fmt.Errorf("type %q; want one of %s", s, strings.Join(slices.Sorted(maps.Keys(dtypes)), ", "))
}
