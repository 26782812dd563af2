package predict

import (
	"slices"
	"testing"
)

func TestParseSizes(t *testing.T) {
	for in, want := range map[string][]int64{
		"8": {8}, "1k,2K": {1024, 2048}, "4M,4096K,1": {1, 4 << 20}, "1M:5M": {1 << 20, 2 << 20, 4 << 20}, "8G:8G": {8 << 30}, "1T": {1 << 40},
	} {
		if got, err := ParseSizes(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseSizes(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", ",", "1,", "-1", "0", "K", "1KK", "1.5M", "1M:", ":1M", "2:1", "1:2:3", "2000T", "99999999999999999999", "0:1"} {
		if got, err := ParseSizes(in); err == nil {
			t.Errorf("ParseSizes(%q) = %v; want an error", in, got)
		}
	}
}

func FuzzParseSizes(f *testing.F) {
	f.Add("1M:16G")
	f.Add("1,2K,3m")
	f.Fuzz(func(t *testing.T, s string) {
		sizes, err := ParseSizes(s)
		if (err == nil) != (len(sizes) > 0) {
			t.Fatalf("ParseSizes(%q) = %v, %v", s, sizes, err)
		}
		for i, n := range sizes {
			if n < 1 || n > maxSize || i > 0 && n <= sizes[i-1] {
				t.Fatalf("ParseSizes(%q) = %v", s, sizes)
			}
		}
	})
}
