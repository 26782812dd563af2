package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/build/recipe"
)

// TestTimes: of each step the last few times are kept, and what nobody builds any
// longer is forgotten.
func TestTimes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if ts, err := readTimes(dir); err != nil || ts.median("a") != nil {
		t.Errorf("before the first build: %v, %v; want nothing", ts, err)
	}
	if err := rememberTimes(dir, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a build without times makes the directory (%v)", err)
	}
	for _, s := range []float64{1000, 1, 9, 2, 8, 3} {
		if err := rememberTimes(dir, map[string][]time.Duration{"a": {time.Duration(s * float64(time.Second))}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := rememberTimes(dir, map[string][]time.Duration{"b": {time.Second, 2 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	ts, err := readTimes(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ts["a"].Seconds, []float64{1, 9, 2, 8, 3}; !slices.Equal(got, want) {
		t.Errorf("kept %v; want the last five, %v", got, want)
	}
	if a, b := ts.median("a"), ts.median("b"); a == nil || *a != 3 || b == nil || *b != 1.5 {
		t.Errorf("medians %v and %v; want 3 and 1.5", a, b)
	}
	ts.add(map[string][]time.Duration{"b": {time.Second}}, time.Now().Add(timesAge+time.Hour))
	if ts.median("a") != nil || ts.median("b") == nil {
		t.Errorf("after a year: %v; want b alone", ts)
	}

	// Builds at the same time lose nothing of each other.
	var wg sync.WaitGroup
	for _, name := range []string{"c", "d", "e", "f"} {
		wg.Go(func() {
			if err := rememberTimes(dir, map[string][]time.Duration{name: {time.Second}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if ts, err = readTimes(dir); err != nil || len(ts) != 6 {
		t.Errorf("%d steps after four builds at once, %v; want 6", len(ts), err)
	}

	// A damaged file is an error for who reads, and is replaced.
	if err := os.WriteFile(filepath.Join(dir, timesFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readTimes(dir); err == nil || !strings.Contains(err.Error(), timesFile) {
		t.Errorf("readTimes of a damaged file: %v; want the file's name", err)
	}
	if err := rememberTimes(dir, map[string][]time.Duration{"g": {time.Second}}); err != nil {
		t.Fatal(err)
	}
	if ts, err = readTimes(dir); err != nil || len(ts) != 1 {
		t.Errorf("after a damaged file: %v, %v", ts, err)
	}
}

// dryRun is a dry run of targets of the real matrix, all pinned.
func dryRun(t *testing.T, known map[string][]time.Duration, names ...string) (*Workspace, *DryRun) {
	t.Helper()
	t.Setenv("GOPROXY", "https://goproxy.example.test") // else the go command is asked, which writes into HOME
	w := open(t, Options{Matrix: own(t)})
	w.Lock.Epoch = 1_767_225_600
	targets, err := w.Select(names)
	if err != nil {
		t.Fatal(err)
	}
	pin(t, w, targets)
	if err := rememberTimes(w.StateDir, known); err != nil {
		t.Fatal(err)
	}
	run, err := w.DryRun(BuildOptions{Names: names, OutDir: filepath.Join(t.TempDir(), "out")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(run.Output); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the output directory is there (%v)", err)
	}
	return w, run
}

// TestDryRun: every step of every recipe is there, what several images share once.
func TestDryRun(t *testing.T) {
	names := []string{"fabric-debian12", "cuda12.4-debian13", "cuda12.4-debian13-runtime"}
	w, run := dryRun(t, nil, names...)
	native := recipe.Platform{OS: "linux", Arch: strings.TrimPrefix(run.Builder, "linux/")}
	full := map[int]dryStep{}
	kinds := map[string]bool{}
	shared := 0
	for _, dt := range run.Targets {
		ts, err := w.Select([]string{dt.Target})
		if err != nil {
			t.Fatal(err)
		}
		if plan, err := w.plan(ts[0]); err != nil || len(dt.Tags) == 0 || dt.Tags[0] != plan.Tag {
			t.Errorf("%s: tags %q; want %q first (%v)", dt.Target, dt.Tags, plan.Tag, err)
		}
		for i, img := range dt.Images {
			mk, err := w.Recipe(ts[0], ts[0].Platforms[i], native)
			if err != nil {
				t.Fatal(err)
			}
			if len(img.Stages) != len(mk.Recipe.Stages) || len(img.After) == 0 {
				t.Fatalf("%s %s: %d stages; the recipe has %d", dt.Target, img.Platform, len(img.Stages), len(mk.Recipe.Stages))
			}
			for j, s := range img.Stages {
				var steps, want []string
				for _, st := range s.Steps {
					if st.Shared {
						shared++
						if st.Does != nil || full[st.Number].Title != st.Title {
							t.Errorf("%s: step %d, %q, refers to %q", dt.Target, st.Number, st.Title, full[st.Number].Title)
						}
					} else if _, ok := full[st.Number]; ok {
						t.Errorf("step %d is described twice", st.Number)
					} else {
						full[st.Number] = st
					}
					for _, step := range full[st.Number].Does {
						steps = append(steps, fmt.Sprint(step))
						kinds[fmt.Sprintf("%T", step)] = true
					}
				}
				for _, step := range mk.Recipe.Stages[j].Steps {
					want = append(want, fmt.Sprint(step))
				}
				if diff := cmp.Diff(want, steps); diff != "" {
					t.Errorf("%s: stage %s has other steps (-recipe +dry run):\n%s", dt.Target, s.Name, diff)
				}
			}
		}
	}
	if shared == 0 {
		t.Error("no step is shared; the two CUDA images have NCCL in common")
	}
	if e := run.Estimate; e.Known != 0 || e.Sum != 0 || e.Longest != 0 || e.Steps <= len(full) {
		t.Errorf("the estimate without earlier builds is %+v of %d steps", e, len(full))
	}
	for _, kind := range []string{"recipe.Run", "recipe.Apt", "recipe.Copy", "recipe.File"} {
		if !kinds[kind] {
			t.Errorf("there is no %s", kind)
		}
	}
	for _, d := range run.Downloads {
		if d.Digest == "" || d.Size != 0 {
			t.Errorf("%+v; want the lock's digest and no size", d)
		}
	}
	sets := map[string]int64{}
	for _, s := range run.Packages {
		if _, ok := sets[s.Name]; ok {
			t.Errorf("the set %s is there twice", s.Name)
		}
		sets[s.Name] = s.Download
	}
	for _, name := range []string{"fabric-debian12/amd64", "fabric-debian12/arm64", "base-bookworm-minbase/amd64", "cuda12.4-debian13/amd64"} {
		if sets[name] != 1 {
			t.Errorf("the set %s is of %d bytes; want the lock's 1", name, sets[name])
		}
	}
	text, err := json.Marshal(run)
	if err != nil || strings.Contains(string(text), ":null") {
		t.Errorf("as JSON: %v, with null: %v", err, strings.Contains(string(text), ":null"))
	}
}

// TestEstimate: steps that wait for each other add up, others do not.
func TestEstimate(t *testing.T) {
	s := func(n int) []time.Duration { return []time.Duration{time.Duration(n) * time.Second} }
	first, _ := dryRunOfOne(t, nil)
	known := map[string][]time.Duration{
		"[make] base-bookworm-minbase linux/amd64":       s(100),
		"[image amd64] install fabric-debian12 packages": s(1000), "[image amd64] gather 1 packages": s(3),
		"[image amd64] write /opt/assay/image.json": s(7),
		"[gate amd64] certify fabric-debian12":      s(20), "[export] fabric-debian12 amd64": s(30), "[finish] fabric-debian12 amd64": s(40),
		"[download] x_1_amd64.deb":  s(5),
		"[another] step, of nobody": s(100_000),
	}
	run, image := dryRunOfOne(t, known)
	stages := first.Targets[0].Images[0].Stages
	if len(image.Steps) != len(stages[len(stages)-1].Steps) {
		t.Fatalf("%d steps", len(image.Steps))
	}
	if got := image.Steps[0].Seconds; got == nil || *got != 1003 {
		t.Errorf("the packages take %v; want 1003 s, with their gathering", got)
	}
	// The base's packages are fetched, the base made; the image's are fetched meanwhile.
	const chain = 5 + 100 + 1003 + 7 + 20 + 30 + 40
	if e := run.Estimate; e.Longest != chain || e.Sum <= chain || e.Sum > chain+4*5 || e.Steps != first.Estimate.Steps {
		t.Errorf("the longest chain is of %v s, of %v in %d steps; want %v, of a download or two more, in %d", e.Longest, e.Sum, e.Steps, chain, first.Estimate.Steps)
	}
}

func dryRunOfOne(t *testing.T, known map[string][]time.Duration) (*DryRun, dryStage) {
	t.Helper()
	t.Setenv("GOPROXY", "https://goproxy.example.test") // else the go command is asked, which writes into HOME
	w := open(t, Options{Matrix: own(t)})
	targets, err := w.Select(nil)
	if err != nil {
		t.Fatal(err)
	}
	pin(t, w, targets)
	if err := rememberTimes(w.StateDir, known); err != nil {
		t.Fatal(err)
	}
	run, err := w.DryRun(BuildOptions{OutDir: filepath.Join(t.TempDir(), "out"), Platforms: []recipe.Platform{amd64}})
	if err != nil {
		t.Fatal(err)
	}
	stages := run.Targets[0].Images[0].Stages
	return run, stages[len(stages)-1]
}
