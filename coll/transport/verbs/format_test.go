//go:build cgo && linux

package verbs

import (
	"bytes"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
)

func TestHeader(t *testing.T) {
	slot := make([]byte, headerSize+100)
	want := transport.Header{Seq: 3, Sign: 0xffffffff}
	putHeader(slot, 7, 100, want)
	if h, n, err := parseHeader(slot, 7); h != want || n != 100 || err != nil {
		t.Errorf("%v %d %v", h, n, err)
	}
	if _, _, err := parseHeader(slot, 8); err == nil {
		t.Error("a message was taken for another one")
	}
	if _, _, err := parseHeader(slot[:headerSize+99], 7); err == nil {
		t.Error("a message is longer than its slot")
	}
}

func TestImmediate(t *testing.T) {
	for _, from := range []uint32{0, 5, 1<<immBits - 2, 1<<32 - 3} {
		for ahead := range uint32(slots) {
			if got, parts := parseImmediate(immediate(from+ahead, MaxQPs), from); got != ahead || parts != MaxQPs {
				t.Errorf("message %d from %d is %d ahead, in %d parts", from+ahead, from, got, parts)
			}
		}
	}
}

// TestPartOf: there is a queue pair for each part.
func TestPartOf(t *testing.T) {
	for n := 1; n <= MaxQPs; n++ {
		for _, length := range []int{leastSplit, leastSplit + 1, leastSplit + headerSize, 99_999, 512<<10 + headerSize} {
			part := partOf(length, n)
			if parts := (length + part - 1) / part; parts > n || part%partAlign != 0 {
				t.Errorf("%d bytes over %d queue pairs: %d parts of %d", length, n, parts, part)
			}
		}
	}
}

// TestHalf: what a peer says of itself is checked.
func TestHalf(t *testing.T) {
	good := half{Max: 1000, MTU: 3, QPs: []qpNames{{1, 2}}, GID: [16]byte{15: 1}, Address: 1 << 63, Key: 7}
	var b bytes.Buffer
	if err := writeHalf(&b, &good); err != nil {
		t.Fatal(err)
	}
	got, err := readHalf(&b)
	if err != nil || got.Address != good.Address || got.GID != good.GID || got.QPs[0] != good.QPs[0] {
		t.Errorf("%+v %v", got, err)
	}
	for name, spoil := range map[string]func(*half){
		"failure":       func(h *half) { h.Failure = "no" },
		"no QPs":        func(h *half) { h.QPs = nil },
		"too many QPs":  func(h *half) { h.QPs = make([]qpNames, MaxQPs+1) },
		"no MTU":        func(h *half) { h.MTU = 9 },
		"no messages":   func(h *half) { h.Max = 0 },
		"long messages": func(h *half) { h.Max = 1 << 30 },
		"device":        func(h *half) { h.Device = -1 },
	} {
		bad := good
		spoil(&bad)
		b.Reset()
		writeHalf(&b, &bad)
		if _, err := readHalf(&b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := readHalf(bytes.NewReader([]byte{0, 0, 255, 0})); err == nil {
		t.Error("a description of 16 MB is read")
	}
	if i, err := parseInfo(info{4096, "127.0.0.1:1"}.marshal()); err != nil || i != (info{4096, "127.0.0.1:1"}) {
		t.Errorf("%v %v", i, err)
	}
	for _, bad := range []string{"", "verbs/1 0 x", "verbs/0 1 x", "verbs/1 1"} {
		if _, err := parseInfo([]byte(bad)); err == nil {
			t.Errorf("%q is an info", bad)
		}
	}
}
