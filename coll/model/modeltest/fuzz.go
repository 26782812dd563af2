package modeltest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/model"
)

// Variables of Fuzz.
const (
	secondsVar = "ASSAY_FUZZ_SECONDS" // how long it runs, in place of the caller's time
	seedVar    = "ASSAY_FUZZ_SEED"    // of the first program; else the time in long runs, 0 in short ones
)

// limit ends a program whose ranks stand still.
const limit = 2 * time.Minute

// Fuzz runs random programs for so long. One that fails is made smaller and printed, ready to be
// put into testdata.
func Fuzz(t *testing.T, d time.Duration, mo model.Options, options func(seed uint64) Options) {
	t.Helper()
	var seed uint64
	if n, err := strconv.Atoi(os.Getenv(secondsVar)); err == nil {
		d = time.Duration(n) * time.Second
		seed = uint64(time.Now().UnixNano())
	}
	if n, err := strconv.ParseUint(os.Getenv(seedVar), 10, 64); err == nil {
		seed = n
	}
	var sum Result
	first, programs, calls := seed, 0, 0
	for end := time.Now().Add(d); programs == 0 || time.Now().Before(end); seed++ {
		p := model.Random(seed, mo)
		o := options(seed)
		res, err := attempt(p, o)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, shrunk(p, o, err))
		}
		for _, s := range p.Steps {
			calls += len(s.Calls)
		}
		programs++
		sum.Bytes, sum.Compared = sum.Bytes+res.Bytes, sum.Compared+res.Compared
	}
	t.Logf("seeds %d to %d: %d programs of %d calls; %d bytes, of which %.1f %% were compared", first, seed-1, programs, calls, sum.Bytes, 100*float64(sum.Compared)/float64(max(1, sum.Bytes)))
	if sum.Compared*2 < sum.Bytes { // 0 of 0: errors were
		t.Error("less than half of the memory was compared")
	}
}

func attempt(p model.Program, o Options) (Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return Run(ctx, p, o)
}

// shrunk returns the smallest program that fails, with its error.
func shrunk(p model.Program, o Options, err error) string {
	last := err
	small := model.Shrink(p, 300, func(q model.Program) bool {
		for range 3 { // it may fail now and then
			if _, err := attempt(q, o); err != nil {
				last = err
				return true
			}
		}
		return false
	})
	return fmt.Sprintf("the smallest that fails, %v:\n%s", last, Format(small))
}

// Format returns a program as a file of testdata: a line for each step.
func Format(p model.Program) string {
	steps := p.Steps
	p.Steps = nil
	var b strings.Builder
	for _, v := range append([]any{p}, anys(steps)...) {
		line, err := json.Marshal(v)
		if err != nil {
			panic(err) // no program has what JSON lacks
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

func anys[T any](all []T) []any {
	out := make([]any, len(all))
	for i := range all {
		out[i] = all[i]
	}
	return out
}

// Parse reads what Format wrote.
func Parse(text string) (p model.Program, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	for err = dec.Decode(&p); err == nil && dec.More(); {
		var s model.Step
		err = dec.Decode(&s)
		p.Steps = append(p.Steps, s)
	}
	return p, err
}

// Files runs the programs of a directory.
func Files(t *testing.T, dir string, o Options) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no programs in ", dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if res, err := attempt(p, o); err != nil || res.Compared == 0 {
				t.Errorf("%v, %+v", err, res)
			}
		})
	}
}
