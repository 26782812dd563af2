package probe

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestPayload: words are repeated through the buffer, the lowest byte first.
func TestPayload(t *testing.T) {
	name := filepath.Join(t.TempDir(), "words")
	c := Config{Payload: name}
	var absent *NotAvailable
	if err := c.fill(nil); !errors.As(err, &absent) {
		t.Errorf("no file: %v", err)
	}
	for text, want := range map[string][]byte{
		"0xaabbccdd,0x00000001\n":   {0xdd, 0xcc, 0xbb, 0xaa, 1, 0, 0, 0, 0xdd, 0xcc},
		" 0x01020304 , 0x05060708 ": {4, 3, 2, 1, 8, 7, 6, 5, 4, 3},
		"":                          nil,
		"0xaabbccdd,":               nil,
		"aabbccdd":                  nil,
		"0xaabbccdde":               nil,
		"0xaabbccd":                 nil,
		"0x-abbccdd":                nil,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 10)
		err := c.fill(buffer)
		var bad *FlagError
		if want == nil && !errors.As(err, &bad) || want != nil && (err != nil || !bytes.Equal(buffer, want)) {
			t.Errorf("%q: % x, %v", text, buffer, err)
		}
	}
}

func TestCoreList(t *testing.T) {
	for text, want := range map[string][]int{
		"0": {0}, "0-2,8": {0, 1, 2, 8}, "3, 1,2-3\n": {3, 1, 2}, "": nil, "1-": nil, "-1": nil, "2-1": nil, "0-1024": nil, "a": nil,
	} {
		if got, err := coreList(text); !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}
