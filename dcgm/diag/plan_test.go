package diag

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func names(p Plan) (out []string) {
	for _, t := range p.Tests {
		out = append(out, t.Name)
	}
	return out
}

// TestSelect: levels include the lower ones, as DCGM's do; what is named is run
// though no level has it.
func TestSelect(t *testing.T) {
	upTo := func(level int) string {
		var names []string
		for _, t := range allTests() {
			if t.Level > 0 && t.Level <= level {
				names = append(names, t.Name)
			}
		}
		return strings.Join(names, " ")
	}
	two := "software memory pcie p2p"
	for _, tt := range []struct {
		run        string
		only, skip []string
		want       string
	}{
		{"1", nil, nil, "software"},
		{"quick", nil, nil, "software"},
		{"2", nil, nil, two},
		{"medium", nil, nil, two},
		{"3", nil, nil, upTo(3)},
		{"4", nil, nil, upTo(4)},
		{"xlong", nil, []string{"memtest", "software"}, strings.Replace(strings.TrimPrefix(upTo(4), "software "), "memtest ", "", 1)},
		{"3", []string{"pcie", "memory"}, nil, "memory pcie"},
		{"1", []string{"sm_stress"}, nil, "sm_stress"},
		{"sm_stress, memory", nil, nil, "memory sm_stress"},
	} {
		p, err := Select(tt.run, tt.only, tt.skip)
		if got := strings.Join(names(p), " "); err != nil || got != tt.want {
			t.Errorf("-r %s, only %v, skip %v: %s, %v; want %s", tt.run, tt.only, tt.skip, got, err, tt.want)
		}
	}
	for _, tt := range []struct {
		run        string
		only, skip []string
		want       string
	}{
		{"5", nil, nil, "level (1, 2, 3, 4"},
		{"memry", nil, nil, `did you mean "memory"?`},
		{"2", []string{"pci"}, nil, `did you mean "pcie"?`},
		{"2", nil, []string{"p2"}, `did you mean "p2p"?`},
		{"1", nil, []string{"software"}, "selects none"},
	} {
		if _, err := Select(tt.run, tt.only, tt.skip); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("-r %s, only %v, skip %v: %v; want %q", tt.run, tt.only, tt.skip, err, tt.want)
		}
	}
}

// TestParams: DCGM's notation, and what is wrong with others.
func TestParams(t *testing.T) {
	p, err := ParseParams("memtest.test_duration=60; memory.walks=64;", "diagnostic.use_doubles=false")
	if want := "map[diagnostic:map[use_doubles:0] memory:map[walks:64] memtest:map[test_duration:60]]"; err != nil || fmt.Sprint(p) != want {
		t.Errorf("%v, %v; want %s", p, err, want)
	}
	for text, want := range map[string]string{
		"memtest":                  "not TEST.PARAMETER=VALUE",
		"memtest.test_duration":    "not TEST.PARAMETER=VALUE",
		"memtst.test_duration=1":   `did you mean "memtest"?`,
		"memory.test_duration=1":   "memory has minimum_allocation_percentage, walks, max_memory_mb",
		"software.x=1":             "software has no parameters",
		"memory.walks=many":        `"many" is not a number`,
		"memory.walks=-1":          "not a number from 0 up",
		"memory.walks=NaN":         "not a number from 0 up",
		"memory.walks=inf":         "not a number from 0 up",
		"memory.walks=1;pcie.no=1": "pcie has copies",
	} {
		if _, err := ParseParams(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func FuzzParams(f *testing.F) {
	f.Add("memtest.test_duration=60;memory.walks=64")
	f.Add(";; pcie.copies = 1")
	f.Add("memory.walks=1e999")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseParams(text)
		if err != nil {
			return
		}
		for test, values := range p {
			found, ok := testNamed(test)
			if !ok {
				t.Fatalf("%q: there is no test %q", text, test)
			}
			for name, v := range values {
				if _, ok := found.param(name); !ok || v < 0 || v != v {
					t.Errorf("%q: %s.%s=%v", text, test, name, v)
				}
			}
		}
	})
}

// TestValues: a duration holds for tests that load GPUs so long, a parameter comes
// before it, and the limit follows.
func TestValues(t *testing.T) {
	params, err := ParseParams("memtest.test_duration=20")
	if err != nil {
		t.Fatal(err)
	}
	p := Plan{Duration: 5 * time.Second, Params: params}
	for _, tt := range []struct {
		test string
		want float64
	}{{"memtest", 20}, {"diagnostic", 5}, {"memory", 0}} {
		test, _ := testNamed(tt.test)
		if got := p.values(test)[duration]; got != tt.want {
			t.Errorf("%s: %v s; want %v", tt.test, got, tt.want)
		}
		if least := time.Duration(tt.want * float64(time.Second)); p.Longest(test) <= least {
			t.Errorf("%s: to be done within %v", tt.test, p.Longest(test))
		}
	}
	p.Timeout = time.Second
	if got := p.Longest(allTests()[0]); got != time.Second {
		t.Errorf("limit %v", got)
	}
}

// TestTests: what a user can name is unique, complete and has its place.
func TestTests(t *testing.T) {
	if all := Names(); len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
		t.Errorf("a name is there twice: %v", all)
	}
	for _, x := range allTests() {
		if x.Title == "" || x.run == nil || x.Limit == 0 || x.Level > 4 {
			t.Errorf("%s is not complete", x.Name)
		}
		for _, p := range x.Params {
			if p.Usage == "" {
				t.Errorf("%s.%s says nothing of itself", x.Name, p.Name)
			}
		}
	}
}
