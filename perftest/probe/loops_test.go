//go:build cgo && linux

package probe

import (
	"errors"
	"syscall"
	"testing"
)

// TestArrayTooLarge: memory that the system refuses is an error.
func TestArrayTooLarge(t *testing.T) {
	for _, n := range []int{1 << 50, 1 << 61} { // more than an address has, and a size that overflows
		if s, err := array[uint64](n); !errors.Is(err, syscall.ENOMEM) || s != nil {
			t.Errorf("array(%d) = %d values, %v; want ENOMEM", n, len(s), err)
		}
	}
	s, err := array[uint64](3)
	if err != nil || len(s) != 3 {
		t.Fatalf("array(3) = %d values, %v; want 3", len(s), err)
	}
	free(s)
}
