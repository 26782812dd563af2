package diag

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// paramValues are the given values, by test and parameter.
type paramValues map[string]map[string]float64

// A Plan defines what to run.
type Plan struct {
	Level int // 0: tests were selected by name
	Tests []Test
	// Params apply to the tests that they name.
	Params   paramValues
	Duration time.Duration          // of each test that has test_duration; 0: its default
	Timeout  time.Duration          // of each test; 0: see Longest
	GPUs     []int                  // nil: all
	Limits   map[string]result.Rule // the user's, by figure
}

// levels maps DCGM's names of the levels to their numbers.
var levels = map[string]int{"1": 1, "2": 2, "3": 3, "4": 4, "quick": 1, "short": 1, "medium": 2, "long": 3, "xlong": 4}

// Names lists the names of all tests.
func Names() (names []string) {
	for _, t := range allTests() {
		names = append(names, t.Name)
	}
	return names
}

// Select makes the plan of a run. run is a level, by number or by DCGM's name, or a comma-separated
// list of tests. only and skip restrict its tests.
func Select(run string, only, skip []string) (p Plan, err error) {
	for _, name := range slices.Concat(only, skip) {
		if _, ok := testNamed(name); !ok {
			return p, unknownTest(name)
		}
	}
	named := strings.Split(run, ",")
	p.Level = levels[run]
	if p.Level == 0 {
		for i, name := range named {
			named[i] = strings.TrimSpace(name)
			if _, ok := testNamed(named[i]); !ok {
				return p, fmt.Errorf("-r is a level (1, 2, 3, 4, quick, medium, long, xlong) or names of tests: %w", unknownTest(named[i]))
			}
		}
	}
	for _, t := range allTests() {
		in := slices.Contains(named, t.Name)
		if p.Level > 0 {
			in = t.Level > 0 && t.Level <= p.Level || slices.Contains(only, t.Name)
		}
		if in && (len(only) == 0 || slices.Contains(only, t.Name)) && !slices.Contains(skip, t.Name) {
			p.Tests = append(p.Tests, t)
		}
	}
	if len(p.Tests) == 0 {
		return p, fmt.Errorf("no test is left: -r %s with --only and --skip selects none", run)
	}
	return p, nil
}

func unknownTest(name string) error {
	return fmt.Errorf("there is no test %q; did you mean %q?", name, words.Nearest(name, Names()))
}

// ParseParams parses DCGM's notation, "memtest.test_duration=60;memory.walks=64".
func ParseParams(texts ...string) (paramValues, error) {
	p := paramValues{}
	for _, text := range texts {
		for one := range strings.SplitSeq(text, ";") {
			if one = strings.TrimSpace(one); one == "" {
				continue
			}
			if err := p.parse(one); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

func (p paramValues) parse(text string) error {
	key, value, ok := strings.Cut(text, "=")
	test, name, dot := strings.Cut(key, ".")
	if !ok || !dot {
		return fmt.Errorf("parameter %q is not TEST.PARAMETER=VALUE", text)
	}
	t, ok := testNamed(test)
	if !ok {
		return fmt.Errorf("parameter %q: %w", text, unknownTest(test))
	}
	if _, ok := t.param(name); !ok {
		var names []string
		for _, q := range t.Params {
			if !q.hidden {
				names = append(names, q.Name)
			}
		}
		return fmt.Errorf("parameter %q: %s has %s", text, test, cmp.Or(strings.Join(names, ", "), "no parameters"))
	}
	v, err := paramNumber(value)
	if err != nil {
		return fmt.Errorf("parameter %q: %w", text, err)
	}
	if p[test] == nil {
		p[test] = map[string]float64{}
	}
	p[test][name] = v
	return nil
}

// paramNumber parses a value, which may be a boolean.
func paramNumber(s string) (float64, error) {
	switch strings.ToLower(s) {
	case "true":
		return 1, nil
	case "false":
		return 0, nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, fmt.Errorf("%q is not a number from 0 up, nor true or false", s)
	}
	return v, nil
}

// values returns the values of all parameters of a test.
func (p *Plan) values(t Test) map[string]float64 {
	out := map[string]float64{}
	for _, q := range t.Params {
		out[q.Name] = q.Default
		if q.Name == duration && p.Duration > 0 {
			out[q.Name] = p.Duration.Seconds()
		}
		if v, ok := p.Params[t.Name][q.Name]; ok {
			out[q.Name] = v
		}
	}
	return out
}

// Load is how long a test puts load on the GPUs; 0: it has no duration.
func (p *Plan) Load(t Test) time.Duration {
	return time.Duration(p.values(t)[duration] * float64(time.Second))
}

// Longest is the time limit of a test.
func (p *Plan) Longest(t Test) time.Duration {
	if p.Timeout > 0 {
		return p.Timeout
	}
	return t.Limit + p.Load(t)*3/2
}
