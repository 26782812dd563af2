package grammar

import (
	"strings"
	"testing"
)

func TestArgs(t *testing.T) {
	wantsValue := func(name string) bool { return name == "key" || name == "o" }
	for in, want := range map[string]string{
		"":                       "",
		"a":                      "a",
		"a -v b":                 "-v a b",
		"a --key k b":            "--key k a b",
		"a --key=k b -o x":       "--key=k -o x a b",
		"a --key":                "--key a",
		"a - -v":                 "-v a -",
		"a -v -- --key k -o":     "-v a -- --key k -o",
		"a --key -v b --unknown": "--key -v --unknown a b",
	} {
		if got := strings.Join(flagsFirst(strings.Fields(in), wantsValue), " "); got != want {
			t.Errorf("flagsFirst(%s) = %s; want %s", in, got, want)
		}
	}
}
