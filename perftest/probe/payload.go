package probe

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// maxPayload is the largest file of --payload_file_path that is read, in bytes.
const maxPayload = 64 << 20

// fill repeats the words of --payload_file_path through the buffer.
func (c *Config) fill(buffer []byte) error {
	if c.Payload == "" {
		return nil
	}
	i, err := os.Stat(c.Payload)
	if err == nil && i.Size() > maxPayload {
		err = fmt.Errorf("%s has %d bytes, more than %d", c.Payload, i.Size(), maxPayload)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(c.Payload)
	}
	if err != nil {
		return &NotAvailable{"--payload_file_path: " + err.Error()}
	}
	words, err := payload(string(text))
	if err != nil {
		return flagErrorf("--payload_file_path", "%s: %v", c.Payload, err)
	}
	for n := 0; n < len(buffer); {
		n += copy(buffer[n:], words)
	}
	return nil
}

// payload parses 0xaabbccdd,0x11223344: words of 32 bits, of which the lowest byte is sent first.
func payload(text string) (out []byte, err error) {
	for i, word := range strings.Split(strings.TrimSpace(text), ",") {
		digits, ok := strings.CutPrefix(strings.TrimSpace(word), "0x")
		v, err := strconv.ParseUint(digits, 16, 32)
		if !ok || err != nil || len(digits) != 8 {
			return nil, fmt.Errorf("word %d, %.20q, is not one such as 0xaabbccdd", i+1, word)
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	return out, nil
}
