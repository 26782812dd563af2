package machine

import (
	"context"
	"strings"
	"testing"
)

func TestHostfileNames(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "",
		"# none\n\n  \n":                       "",
		"a\nb slots=8\n":                       "a b",
		"a:8\nroot@b:4 # second":               "a b",
		"10.0.0.1\nfd00::1":                    "10.0.0.1 fd00::1",
		"fd00::1 slots=8 max-slots=8\r\nc\r\n": "fd00::1 c",
		":8\n@\n":                              "",
	} {
		if got := strings.Join(hostfileNames(in), " "); got != want {
			t.Errorf("hostfileNames(%q) = %s; want %s", in, got, want)
		}
	}
}

// TestLookUp: addresses are themselves, names come from the system, and a name
// that nobody knows says so; all in the order of the question.
func TestLookUp(t *testing.T) {
	got := LookUp(context.Background(), []string{"fd00::1", "localhost", "no-such-host.invalid"})
	if len(got) != 3 || got[0].Addrs[0].String() != "fd00::1" || got[0].Err != "" {
		t.Fatalf("lookUp = %+v", got)
	}
	if len(got[1].Addrs) == 0 || !got[1].Addrs[0].IsLoopback() {
		t.Errorf("localhost = %+v", got[1])
	}
	if got[2].Err == "" || len(got[2].Addrs) > 0 {
		t.Errorf("no-such-host.invalid = %+v", got[2])
	}
}
