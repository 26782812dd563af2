//go:build cgo && linux

package verbs

import (
	"encoding/json"
	"testing"

	"github.com/assay-hpc/assay/coll/transport/slots"
)

func TestImmediate(t *testing.T) {
	for _, from := range []uint32{0, 5, 1<<immBits - 2, 1<<32 - 3} {
		for ahead := range uint32(slots.N) {
			if got, parts := parseImmediate(immediate(from+ahead, maxQPs), from); got != ahead || parts != maxQPs {
				t.Errorf("message %d from %d is %d ahead, in %d parts", from+ahead, from, got, parts)
			}
		}
	}
}

// TestPartOf: there is a queue pair for each part.
func TestPartOf(t *testing.T) {
	for n := 1; n <= maxQPs; n++ {
		for _, length := range []int{leastSplit, leastSplit + 1, leastSplit + slots.HeaderSize, 99_999, 512<<10 + slots.HeaderSize} {
			part := partOf(length, n)
			if parts := (length + part - 1) / part; parts > n || part%partAlign != 0 {
				t.Errorf("%d bytes over %d queue pairs: %d parts of %d", length, n, parts, part)
			}
		}
	}
}

// TestHalf: what a peer says of itself is checked.
func TestHalf(t *testing.T) {
	good := half{MTU: 3, QPs: []qpNames{{1, 2}}, GID: [16]byte{15: 1}, Address: 1 << 63, Key: 7}
	parse := func(h half) (half, error) {
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		return parseHalf(b)
	}
	got, err := parse(good)
	if err != nil || got.Address != good.Address || got.GID != good.GID || got.QPs[0] != good.QPs[0] {
		t.Errorf("%+v %v", got, err)
	}
	for name, spoil := range map[string]func(*half){
		"no QPs":       func(h *half) { h.QPs = nil },
		"too many QPs": func(h *half) { h.QPs = make([]qpNames, maxQPs+1) },
		"no MTU":       func(h *half) { h.MTU = 9 },
	} {
		bad := good
		spoil(&bad)
		if _, err := parse(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := parseHalf(nil); err == nil {
		t.Error("nothing is a half")
	}
}
