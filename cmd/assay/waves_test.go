package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/recipe"
)

// TestWaves: with all of the matrix locked, each stage is built by one target of
// each platform; those that need it too are in later waves and know whose cache
// has it; and the workflow has a job for each wave.
func TestWaves(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "matrix.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "matrix.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := driver.Open(driver.Options{Matrix: file, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := fillLock(w); err != nil {
		t.Fatal(err)
	}
	workflow, err := os.ReadFile(filepath.Join("..", "..", ".github", "workflows", "build.yml"))
	if err != nil {
		t.Fatal(err)
	}
	jobs := len(regexp.MustCompile(`(?m)^  wave-\d+:$`).FindAll(workflow, -1))
	for _, arch := range []string{"amd64", "arm64"} {
		p := recipe.Platform{OS: "linux", Arch: arch}
		turns, err := w.Turns(w.Targets, p)
		if err != nil {
			t.Fatal(err)
		}
		builders, shared := map[string]string{}, 0
		for _, target := range w.Targets {
			if !slices.Contains(target.Platforms, p) {
				continue
			}
			turn := turns[target.Name]
			if turn.Wave >= jobs {
				t.Errorf("%s is in wave %d; build.yml has jobs for %d", target.Name, turn.Wave, jobs)
			}
			from := map[string]string{}
			for owner, stages := range turn.Shared {
				if turns[owner].Wave >= turn.Wave {
					t.Errorf("%s of wave %d takes stages from %s of wave %d", target.Name, turn.Wave, owner, turns[owner].Wave)
				}
				for _, s := range stages {
					from[s] = owner
					shared++
				}
			}
			res, err := w.Recipe(target, p, p)
			if err != nil {
				t.Fatal(err)
			}
			for name, hash := range res.Recipe.StageHashes() {
				owner, ok := builders[hash]
				if !ok {
					owner, builders[hash] = "", target.Name
				}
				if from[name] != owner {
					t.Errorf("%s takes stage %s from %q; want from %q", target.Name, name, from[name], owner)
				}
			}
		}
		if shared < 100 {
			t.Errorf("%s: %d times a stage is taken from another target; want 100 and more", arch, shared)
		}
	}
}

// fillLock pins all that the matrix needs, with invented digests, round by round,
// as "assay lock" does: what an entry's recipe asks for may depend on entries
// before it.
func fillLock(w *driver.Workspace) error {
	for range 10 {
		need, err := w.Unlocked(w.Targets, nil)
		if err != nil || len(need) == 0 {
			return err
		}
		for _, t := range w.Targets {
			for _, p := range t.Platforms {
				res, err := w.Recipe(t, p, p)
				if err != nil {
					return err
				}
				for _, m := range res.Missing {
					pin(w.Lock, m, res.Recipe)
				}
			}
		}
	}
	return fmt.Errorf("the lock does not come to an end")
}
