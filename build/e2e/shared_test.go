package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/base"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/recipe"
)

// sharing is a matrix of two images that share the stages of the harness.
const sharing = `version: 1
repository: registry.example.org/assay
images:
  - name: first-debian12
    distro: debian
    release: "12"
    base: {debootstrap: {suite: bookworm, variant: minbase}}
    platforms: [linux/ARCH]
    tag: "{name}-{recipe}"
    components: {numactl: distro, harness: source}
  - name: second-debian12
    distro: debian
    release: "12"
    base: {debootstrap: {suite: bookworm, variant: minbase}}
    platforms: [linux/ARCH]
    tag: "{name}-{recipe}"
    components: {hwloc: distro, harness: source}
`

// TestSharedStages builds two images as the workflow does, each with a builder and
// a state of its own, as on another machine: the stages that they share come from
// the first one's cache, which .ci/cached sees in the second one's log.
func TestSharedStages(t *testing.T) {
	cold(t)
	addr := buildkit(t)
	if err := base.Check(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "matrix.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(sharing, "ARCH", runtime.GOARCH)), 0o644); err != nil {
		t.Fatal(err)
	}
	w := open(t, file, nil)
	rep, err := w.LockTargets(t.Context(), w.Targets, driver.BuildOptions{Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	for key, why := range rep.Unresolved {
		t.Fatalf("%s is unresolved: %s", key, why)
	}
	turns, err := w.Turns(w.Targets, recipe.Platform{OS: "linux", Arch: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	first, second := turns["first-debian12"], turns["second-debian12"]
	shared := second.Shared["first-debian12"]
	if first.Wave != 0 || second.Wave != 1 || !slices.Contains(shared, "harness-"+runtime.GOARCH) {
		t.Fatalf("Turns = %+v; want the second after the first, for the harness", turns)
	}

	cache := filepath.Join(dir, "cache")
	build := func(target string, args ...string) (log string) {
		state := t.TempDir()
		cmd := assay(t, append([]string{"build", target, "--matrix", file, "--out", "oci:" + filepath.Join(state, "out"), "--progress", "plain"}, args...)...)
		cmd.Env = append(os.Environ(), "ASSAY_STATE_DIR="+state, "BUILDKIT_HOST=")
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", target, err, text)
		}
		log = filepath.Join(dir, target+".log")
		if err := os.WriteFile(log, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return log
	}
	cached := func(log string) (string, error) {
		cmd := exec.Command("../../.ci/cached", log)
		cmd.Stdin = strings.NewReader(strings.Join(shared, "\n") + "\n")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	log := build("first-debian12", "--cache-to", "type=local,mode=max,dest="+cache)
	if out, err := cached(log); err == nil || !strings.Contains(out, "run, though another target has built it: [harness-") {
		t.Errorf("of the first, which had no cache, .ci/cached says %v\n%s", err, out)
	}
	log = build("second-debian12", "--cache-from", "type=local,src="+cache)
	if out, err := cached(log); err != nil {
		text, _ := os.ReadFile(log)
		t.Errorf(".ci/cached: %v\n%s\nof\n%s", err, out, text)
	} else {
		t.Log(out)
	}
}
