package debug

import (
	"math/bits"
	"slices"
	"strings"
	"testing"
)

func TestParseLevel(t *testing.T) {
	for in, want := range map[string]Level{"NONE": None, "VERSION": Version, "WARN": Warn, "INFO": Info, "TRACE": Trace, "info": Info, "Warn": Warn, "ABORT": Info} {
		got, err := ParseLevel(in)
		if err != nil || got != want {
			t.Errorf("ParseLevel(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "1", "DEBUG", "INFO ", "WARNING"} {
		if got, err := ParseLevel(in); err == nil {
			t.Errorf("ParseLevel(%q) = %v; want an error", in, got)
		} else if !strings.Contains(err.Error(), "NONE, VERSION, WARN, INFO, TRACE") {
			t.Errorf("ParseLevel(%q): %v; want the levels named", in, err)
		}
	}
}

func TestParseSubsystems(t *testing.T) {
	for in, want := range map[string]Subsystems{
		"INIT":           Init,
		"init,Coll":      Init | Coll,
		" NET , RAS":     Net | RAS,
		"ALL":            All,
		"ALL,INIT":       All,
		"^INIT":          All &^ Init,
		"^INIT,COLL":     All &^ (Init | Coll),
		"^INIT,^COLL":    All &^ (Init | Coll),
		"^ALL":           0,
		"DESTROY":        Destroy,
		"BOOTSTRAP,ENV":  Bootstrap | Env,
		"TUNING,GRAPH":   Tuning | Graph,
		"INIT,INIT,INIT": Init,
		"INIT,,NET,":     Init | Net,
		"ALLOC_HOST":     AllocHost,
		"":               0,
		"^":              All,
	} {
		got, err := ParseSubsystems(in)
		if err != nil || got != want {
			t.Errorf("ParseSubsystems(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"INIT,^COLL": "negates the whole list",
		"^^INIT":     "negates the whole list",
		"TUNNING":    "did you mean TUNING?",
		"INIT;COLL":  "there is no subsystem",
	} {
		if got, err := ParseSubsystems(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSubsystems(%q) = %v, %v; want an error with %q", in, got, err, want)
		}
	}
}

// TestSubsystemNames: each bit has a name and each name is read back as its bit.
func TestSubsystemNames(t *testing.T) {
	if n := bits.Len32(uint32(All)); n != len(subsystemNames) {
		t.Fatalf("%d bits have %d names", n, len(subsystemNames))
	}
	for i := range subsystemNames {
		s := Subsystems(1 << i)
		if got, err := ParseSubsystems(s.String()); err != nil || got != s {
			t.Errorf("%v is read back as %v, %v", s, got, err)
		}
	}
	if want := []string{"INIT", "BOOTSTRAP", "ENV"}; !slices.Equal(sorted(DefaultSubsystems), sorted(mustParse(t, strings.Join(want, ",")))) {
		t.Errorf("default is %v; want %v", DefaultSubsystems, want)
	}
}

func mustParse(t *testing.T, s string) Subsystems {
	t.Helper()
	set, err := ParseSubsystems(s)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func sorted(s Subsystems) []string {
	return slices.Sorted(slices.Values(strings.Split(s.String(), ",")))
}

// FuzzParseSubsystems: what is accepted reads back as itself.
func FuzzParseSubsystems(f *testing.F) {
	for _, s := range []string{"INIT", "^INIT,^COLL", "ALL", "^ALL", ",", "init , net"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		set, err := ParseSubsystems(in)
		if err != nil || set == 0 {
			return
		}
		if again, err := ParseSubsystems(set.String()); err != nil || again != set {
			t.Errorf("%q gives %v, which reads back as %v, %v", in, set, again, err)
		}
	})
}
