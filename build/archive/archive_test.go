package archive

import (
	"bytes"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
)

func TestOf(t *testing.T) {
	for _, tt := range []struct{ suite, arch, scheme, sources string }{
		{"bookworm", "arm64", "debian:", "deb http://h/r bookworm main\ndeb http://h/r bookworm-updates main\ndeb http://h/r-security bookworm-security main\n"},
		{"duke", "amd64", "debian:", "deb http://h/r duke main\ndeb http://h/r duke-updates main\ndeb http://h/r-security duke-security main\n"},
		{"noble", "amd64", "ubuntu:", "deb http://h/r noble main universe multiverse\ndeb http://h/r noble-updates main universe multiverse\ndeb http://h/r noble-security main universe multiverse\n"},
		{"noble", "arm64", "ubuntu-ports:", "deb http://h/r noble main universe multiverse\ndeb http://h/r noble-updates main universe multiverse\ndeb http://h/r noble-security main universe multiverse\n"},
		{"resolute", "arm64", "ubuntu:", "deb http://h/r resolute main universe multiverse\ndeb http://h/r resolute-updates main universe multiverse\ndeb http://h/r resolute-security main universe multiverse\n"},
	} {
		a := Of(tt.suite, tt.arch)
		if got := a.Sources("http://h/r", tt.suite); a.Scheme != tt.scheme || got != tt.sources {
			t.Errorf("Of(%q, %q) has %q and the sources\n%swant %q and\n%s", tt.suite, tt.arch, a.Scheme, got, tt.scheme, tt.sources)
		}
	}
}

// TestUbuntuKey: the file has one key, the archive's.
func TestUbuntuKey(t *testing.T) {
	keys, err := openpgp.ReadKeyRing(bytes.NewReader(ubuntuKey))
	if err != nil || len(keys) != 1 {
		t.Fatalf("%d keys, %v; want one", len(keys), err)
	}
	want := []byte{0xF6, 0xEC, 0xB3, 0x76, 0x24, 0x74, 0xED, 0xA9, 0xD2, 0x1B, 0x70, 0x22, 0x87, 0x19, 0x20, 0xD1, 0x99, 0x1B, 0xC9, 0x3C}
	if got := keys[0].PrimaryKey.Fingerprint; !bytes.Equal(got, want) {
		t.Errorf("the key is %X; want %X", got, want)
	}
}
