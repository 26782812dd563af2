package rendezvous

import (
	"bytes"
	"strings"
	"testing"
)

func TestParseInfo(t *testing.T) {
	for text, want := range map[string]string{
		"peer/3 524288 192.0.2.1:4000 a plugin":               "",
		"peer/3 1 192.0.2.1:4000,[2001:db8::1]:4001 a plugin": "",
		"":                                        "version",
		"peer/2 1 192.0.2.1:4000 a plugin":        "version",
		"peer/3 1 192.0.2.1:4000":                 "version",
		"peer/3 1 192.0.2.1:4000 Socket":          "rank 1 has the network Socket, this rank a plugin",
		"peer/3 0 192.0.2.1:4000 a plugin":        "positive",
		"peer/3 01 192.0.2.1:4000 a plugin":       "positive",
		"peer/3 1  a plugin":                      "not an ip:port",
		"peer/3 1 192.0.2.1:0 a plugin":           "plain form",
		"peer/3 1 [fe80::1%eth0]:5 a plugin":      "plain form",
		"peer/3 1 192.0.2.1:4000, a plugin":       "not an ip:port",
		"peer/3 99999999999 192.0.2.1:4 a plugin": "positive",
	} {
		_, err := ParseInfo([]byte(text), 1, "a plugin")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("ParseInfo(%q) = %v; want %q", text, err, want)
		}
	}
}

func FuzzInfo(f *testing.F) {
	f.Add([]byte("peer/3 524288 192.0.2.1:4000,[2001:db8::1]:4001 a plugin"))
	f.Add([]byte("peer/3 1 [::ffff:1.2.3.4]:1 a plugin"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if i, err := ParseInfo(data, 1, "a plugin"); err == nil && !bytes.Equal(i.Marshal(), data) {
			t.Errorf("%q is accepted, and is %q when written again", data, i.Marshal())
		}
	})
}
