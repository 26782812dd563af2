package driver

import (
	"bytes"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	assay "github.com/assay-hpc/assay"
	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/result"
)

var (
	amd64 = recipe.Platform{OS: "linux", Arch: "amd64"}
	arm64 = recipe.Platform{OS: "linux", Arch: "arm64"}
)

// site keeps the user's own configuration out of a test.
func site(t *testing.T) (config string) {
	t.Helper()
	config = t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("ASSAY_STATE_DIR", t.TempDir())
	return config
}

func open(t *testing.T, o Options) *Workspace {
	t.Helper()
	w, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// own copies the real matrix to a directory of the test's own, with an empty
// lock.
func own(t *testing.T) (file string) {
	t.Helper()
	site(t)
	file = filepath.Join(t.TempDir(), "matrix.yaml")
	if err := os.WriteFile(file, assay.Matrix, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// pin enters into the lock what the targets lack, round by round.
func pin(t *testing.T, w *Workspace, targets []matrix.Target) {
	t.Helper()
	sum := strings.Repeat("12", 32)
	for range 10 {
		need, err := w.Unlocked(targets, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(need) == 0 {
			return
		}
		for _, list := range need {
			for _, m := range list {
				switch m.Kind {
				case component.MissingImage:
					w.Lock.Images[m.Key] = lock.Entry{Digest: "sha256:" + sum, From: "test"}
				case component.MissingDownload:
					w.Lock.Downloads[m.Key] = lock.Entry{Digest: "sha256:" + sum, From: "test"}
				default:
					w.Lock.Debs[m.Key] = lock.PackageSet{Request: m.Request, Packages: []recipe.Deb{{Name: "x", Version: "1", Arch: m.Platform.Arch, URL: "debian:x", SHA256: sum, Size: 1}}}
				}
			}
		}
	}
	t.Fatal("the lock never satisfies the recipes")
}

// TestPlan plans the real matrix: while nothing is locked, and when all is.
func TestPlan(t *testing.T) {
	w := open(t, Options{Matrix: own(t)})
	w.Lock.Epoch = 1_767_225_600
	plan, err := w.Plan(w.Targets)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plan {
		if len(p.Missing) == 0 || p.Hash != "" || p.FullTag != "" || !strings.Contains(p.Tag, "{recipe}") {
			t.Errorf("%s with an empty lock: %d missing, hash %q, tag %q", p.Name, len(p.Missing), p.Hash, p.FullTag)
		}
	}
	pin(t, w, w.Targets)
	if plan, err = w.Plan(w.Targets); err != nil {
		t.Fatal(err)
	}
	tags, hashes := map[string]string{}, map[string]string{}
	for _, p := range plan {
		if len(p.Missing) > 0 || len(p.Hash) != 64 || strings.Contains(p.Tag, "{") || !strings.Contains(p.Tag, p.Hash[:7]) || p.FullTag != w.File.Repository+":"+p.Tag {
			t.Errorf("%s: missing %q, hash %q, tag %q", p.Name, p.Missing, p.Hash, p.FullTag)
		}
		for _, tag := range append([]string{p.Tag}, p.Moving...) {
			if who, ok := tags[tag]; ok {
				t.Errorf("%s and %s are both tagged %s", who, p.Name, tag)
			}
			tags[tag] = p.Name
		}
		if who, ok := hashes[p.Hash]; ok {
			t.Errorf("%s and %s have one hash", who, p.Name)
		}
		hashes[p.Hash] = p.Name
	}
	again, err := w.Plan(w.Targets)
	if diff := cmp.Diff(plan, again); err != nil || diff != "" {
		t.Errorf("a second plan differs: %v\n%s", err, diff)
	}
	w.Lock.Epoch++
	later, err := w.Plan(w.Targets[:1])
	if err != nil || later[0].Hash == plan[0].Hash {
		t.Errorf("another date of the lock gives the same hash (%v)", err)
	}
}

func TestSelect(t *testing.T) {
	w := open(t, Options{Matrix: own(t)})
	got, err := w.Select(nil)
	if err != nil || len(got) != 1 || got[0].Name != "fabric-debian12" {
		t.Errorf("Select() = %d targets, %v; want the matrix's first alone", len(got), err)
	}
	if got, err = w.Select([]string{"*"}); err != nil || len(got) != len(w.Targets) {
		t.Errorf("Select(*) = %d targets, %v; want all %d", len(got), err, len(w.Targets))
	}
	if _, err = w.Select([]string{"fabric-debian11"}); exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "fabric-debian12") {
		t.Errorf("Select of a misspelt name = %v; want bad input with the nearest", err)
	}
}

func TestPlatformsOf(t *testing.T) {
	target := matrix.Target{Platforms: []recipe.Platform{amd64, arm64}}
	for _, tt := range []struct{ only, want []recipe.Platform }{
		{nil, []recipe.Platform{amd64, arm64}},
		{[]recipe.Platform{arm64}, []recipe.Platform{arm64}},
		{[]recipe.Platform{arm64, amd64}, []recipe.Platform{amd64, arm64}},
		{[]recipe.Platform{{OS: "linux", Arch: "riscv64"}}, nil},
	} {
		if got := platformsOf(target, tt.only); !slices.Equal(got, tt.want) {
			t.Errorf("platformsOf(%v) = %v; want %v", tt.only, got, tt.want)
		}
	}
}

// TestNotLocked: a build that lacks something says what, and the command that
// mends it.
func TestNotLocked(t *testing.T) {
	err := NotLockedError("matrix.lock", map[string][]component.Missing{
		"fabric-debian12": {
			{Kind: component.MissingBase, Key: "base-bookworm-minbase/amd64", Platform: amd64},
			{Kind: component.MissingDebs, Key: "fabric-debian12/amd64", Platform: amd64},
			{Kind: component.MissingDownload, Key: "https://downloads.example.org/x.tar.gz"},
			{Kind: component.MissingDownload, Key: "https://downloads.example.org/x.tar.gz"}, // for another platform
		},
		"cuda12.9.1-ubuntu24.04": {{Kind: component.MissingImage, Key: "docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04"}},
	})
	if exit.Of(err) != exit.Usage {
		t.Errorf("it is a %T; want exit status 2", err)
	}
	golden.Check(t, "notlocked.golden", err.Error()+"\n")
}

// TestBuildRefuses: nothing is started for a build that is not locked.
func TestBuildRefuses(t *testing.T) {
	file := own(t)
	w := open(t, Options{Matrix: file})
	out := filepath.Join(t.TempDir(), "out")
	res, err := w.Build(t.Context(), BuildOptions{OutDir: out, Builders: []string{"unix:///nonexistent/buildkitd.sock"}})
	if res != nil || exit.Of(err) != exit.Usage {
		t.Fatalf("Build = %v, %v; want bad input", res, err)
	}
	for _, part := range []string{strings.TrimSuffix(file, ".yaml") + ".lock does not pin", "base base-bookworm-minbase/amd64", "assay lock fabric-debian12", "--unlocked"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q:\n%v", part, err)
		}
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the output directory is there (%v)", err)
	}
}

// TestLockFile: entries survive the file; what no target needs is stale.
func TestLockFile(t *testing.T) {
	file := own(t)
	w := open(t, Options{Matrix: file})
	w.Lock.Epoch = 1_767_225_600
	targets, err := w.Select(nil)
	if err != nil {
		t.Fatal(err)
	}
	pin(t, w, targets)
	if err := w.WriteLock(); err != nil {
		t.Fatal(err)
	}
	again := open(t, Options{Matrix: file})
	if diff := cmp.Diff(w.Lock, again.Lock); diff != "" {
		t.Errorf("the lock (-written +read):\n%s", diff)
	}
	if need, err := again.Unlocked(targets, nil); err != nil || len(need) > 0 {
		t.Errorf("Unlocked after all is written: %v, %v", need, err)
	}
	if info, err := os.Stat(again.LockPath); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the lock's mode is %v (%v)", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".matrix-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	before := *again.Lock
	again.Lock.Downloads["https://downloads.example.org/old.tar.gz"] = lock.Entry{From: "resolved"}
	stale, err := again.Stale()
	if want := []string{"https://downloads.example.org/old.tar.gz"}; err != nil || !slices.Equal(stale, want) {
		t.Errorf("Stale() = %q, %v; want %q", stale, err, want)
	}
	if len(again.Lock.Downloads) != len(before.Downloads) {
		t.Error("Stale changes the lock")
	}
	if err := again.Prune(); err != nil {
		t.Fatal(err)
	}
	if _, ok := again.Lock.Downloads["https://downloads.example.org/old.tar.gz"]; ok {
		t.Error("Prune keeps what no target needs")
	}
	// What other targets need and nobody has resolved is shown, with the
	// published checksum where there is one.
	if len(again.Lock.Images) == 0 {
		t.Error("Prune does not enter the bases of CUDA images")
	}
	for ref, e := range again.Lock.Images {
		if e.Digest != "" || e.From != "unresolved" {
			t.Errorf("%s is %+v; nobody has resolved it", ref, e)
		}
	}
	for url, e := range again.Lock.Downloads {
		if p, ok := component.Published()[url]; ok && e.From != "test" && e.Digest != "sha256:"+p.SHA256 {
			t.Errorf("%s is %+v; its publisher says %s", url, e, p.SHA256)
		}
	}

	if err := again.Forget(targets); err != nil {
		t.Fatal(err)
	}
	need, err := again.Unlocked(targets, nil)
	if err != nil || len(need["fabric-debian12"]) == 0 {
		t.Errorf("after Forget, Unlocked = %v, %v; want all of it", need, err)
	}
}

func TestEmbedded(t *testing.T) {
	site(t)
	t.Chdir(t.TempDir())
	w := open(t, Options{})
	if w.LockPath != "" || w.File.Name != "matrix.yaml (embedded)" || w.lockName() != "matrix.lock (embedded)" {
		t.Errorf("without a file, it opens %q with %q", w.File.Name, w.lockName())
	}
	if err := w.WriteLock(); exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "--matrix") {
		t.Errorf("WriteLock of the embedded lock = %v; want the remedy", err)
	}
	if _, err := w.LockTargets(t.Context(), nil, BuildOptions{}); exit.Of(err) != exit.Usage {
		t.Errorf("LockTargets of the embedded lock = %v", err)
	}
	// A matrix in the working directory goes first.
	if err := os.WriteFile("matrix.yaml", assay.Matrix, 0o644); err != nil {
		t.Fatal(err)
	}
	if w = open(t, Options{}); w.LockPath != "matrix.lock" {
		t.Errorf("with ./matrix.yaml, the lock is %q", w.LockPath)
	}
}

func TestOpenErrors(t *testing.T) {
	file := own(t)
	lockFile := strings.TrimSuffix(file, ".yaml") + ".lock"
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("version: 1\nimage: []\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lockFile, []byte("version: 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"no file", Options{Matrix: file + ".gone"}, file + ".gone"},
		{"a bad matrix", Options{Matrix: bad}, bad + ":2:1"},
		{"a bad lock", Options{Matrix: file}, lockFile + ": version 3 is not 1"},
		{"a bad mirror", Options{Matrix: file, Mirrors: []string{"docker.io"}}, `--mirror "docker.io" is not FROM=TO`},
	} {
		_, err := Open(tt.o)
		if exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Open = %v; want bad input with %s", tt.name, err, tt.want)
		}
	}
}

// TestMirrorFile: a site's mirrors are in a file, those of the command line
// come first.
func TestMirrorFile(t *testing.T) {
	file := own(t)
	config := site(t)
	if got, want := configFile(), filepath.Join(config, "assay", "mirrors"); got != want {
		t.Fatalf("ConfigFile() = %q; want %q", got, want)
	}
	if err := os.MkdirAll(filepath.Join(config, "assay"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(configFile(), []byte("# our site\n\n  docker.io=site.example.org  \nquay.io=site.example.org/quay\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w := open(t, Options{Matrix: file, Mirrors: []string{"docker.io=other.example.org"}})
	for in, want := range map[string]string{"docker.io/a:1": "other.example.org/a:1", "quay.io/b:1": "site.example.org/quay/b:1"} {
		if got := w.Mirror.Image(in); got != want {
			t.Errorf("Image(%s) = %q; want %q", in, got, want)
		}
	}
}

func TestStateDir(t *testing.T) {
	t.Setenv("ASSAY_STATE_DIR", "relative")
	if got, err := defaultStateDir(); err != nil || !filepath.IsAbs(got) {
		t.Errorf("DefaultStateDir() = %q, %v; want an absolute path", got, err)
	}
	t.Setenv("ASSAY_STATE_DIR", "")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	if got, err := defaultStateDir(); err != nil || got != "/cache/assay" {
		t.Errorf("DefaultStateDir() = %q, %v", got, err)
	}
}

// TestFirstOpen: a set is resolved in its stage only when all below it is pinned;
// else what it waits for is named.
func TestFirstOpen(t *testing.T) {
	image := func(digest string) recipe.Source {
		return recipe.Source{Kind: recipe.FromImage, Ref: "x", Digest: digest}
	}
	stage := func(name string) recipe.Source { return recipe.Source{Kind: recipe.FromStage, Ref: name} }
	debs := []recipe.Deb{{Name: "x"}}
	for _, tt := range []struct {
		name string
		last []recipe.Step
		from recipe.Source
		n    int
		want string
	}{
		{"nothing below", nil, image("d"), 0, ""},
		{"the base is open", nil, image(""), 0, "x"},
		{"an open set before it", []recipe.Step{recipe.Apt{Set: "s/amd64"}}, image("d"), 1, "s/amd64"},
		{"an open set behind it", []recipe.Step{recipe.Apt{}}, image("d"), 0, ""},
		{"a set before it", []recipe.Step{recipe.Apt{Debs: debs}}, image("d"), 1, ""},
		{"from a stage that is pinned", nil, stage("good"), 0, ""},
		{"from a stage that is open", nil, stage("open"), 0, "o/amd64"},
		{"a copy from a stage that is open", []recipe.Step{recipe.Copy{From: stage("open")}}, image("d"), 1, "o/amd64"},
		{"a mount of an open download", []recipe.Step{recipe.Run{Mounts: []recipe.Mount{{From: recipe.Source{Kind: recipe.FromURL, Ref: "u"}}}}}, image("d"), 1, "u"},
		{"a mount of a cache", []recipe.Step{recipe.Run{Mounts: []recipe.Mount{{From: recipe.Source{Kind: recipe.CacheVolume, Ref: "c"}}}}}, image("d"), 1, ""},
		{"from nothing", nil, recipe.Source{Kind: recipe.Scratch}, 0, ""},
	} {
		r := &recipe.Recipe{Stages: []recipe.Stage{
			{Name: "good", From: image("d"), Steps: []recipe.Step{recipe.Apt{Debs: debs}}},
			{Name: "open", From: image("d"), Steps: []recipe.Step{recipe.Apt{Set: "o/amd64"}}},
			{Name: "last", From: tt.from, Steps: tt.last},
		}}
		if got := firstOpen(r, "last", tt.n); got != tt.want {
			t.Errorf("%s: firstOpen = %q; want %q", tt.name, got, tt.want)
		}
	}
}

func TestGateError(t *testing.T) {
	st := &certificate.Statement{}
	st.Predicate.Results = []result.Result{
		{ID: "component/openmpi/version", Verdict: result.Fail, Reason: "the output does not match \"4.1.4\"", Output: "mpirun 4.1.5\nmore\n"},
		{ID: "libraries", Verdict: result.Pass},
		{ID: "gpu", Verdict: result.Skip, Reason: "there is none"},
		{ID: "mpi", Verdict: result.Error, Reason: "timed out"},
		{ID: "libraries", Verdict: result.Fail, Reason: "libgomp.so.1 is missing", Output: "1309 files\nlibgomp.so.1 is missing\n"},
	}
	golden.Check(t, "gate.golden", gateError("fabric-debian12", arm64, st).Error()+"\n")
}

// TestBuildHash: the record of an image is found by what decides its bytes.
func TestBuildHash(t *testing.T) {
	w := open(t, Options{Matrix: own(t)})
	w.Lock.Epoch = 1
	target := w.Targets[0]
	b := &build{Workspace: w}
	if got := b.buildHash(target, amd64); got != "" {
		t.Errorf("the hash of an image that is not locked is %q", got)
	}
	pin(t, w, w.Targets[:1])
	seen := map[string]string{b.buildHash(target, amd64): "amd64"}
	for what, change := range map[string]func(){
		"arm64":   func() {},
		"zstd":    func() { b.o.Zstd = true },
		"the day": func() { w.Lock.Epoch++ },
	} {
		change()
		p := amd64
		if what == "arm64" {
			p = arm64
		}
		got := b.buildHash(target, p)
		if who, ok := seen[got]; ok || got == "" {
			t.Errorf("%s has the hash of %s", what, who)
		}
		seen[got] = what
	}
}

// TestRecord: a record counts for the builder that signed it, and for who trusts that one.
func TestRecord(t *testing.T) {
	w := open(t, Options{Matrix: own(t)})
	b := &build{Workspace: w, o: BuildOptions{OutDir: t.TempDir()}}
	if _, err := b.readRecord("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("readRecord without one = %v", err)
	}
	if err := b.writeRecord(record{}); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(b.o.OutDir); len(left) != 0 {
		t.Errorf("an image that was resolved for one build alone is remembered: %v", left)
	}
	if err := b.writeRecord(record{Hash: "x", Digest: "sha256:12"}); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(b.o.OutDir, ".assay")); len(left) != 1 {
		t.Errorf("the directory holds %v", left)
	}
	if r, err := b.readRecord("x"); err != nil || r.Digest != "sha256:12" {
		t.Errorf("readRecord = %v, %v", r, err)
	}
	st, err := os.Stat(filepath.Join(w.StateDir, builderKeyFile))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the builder's key: %v, %v; want mode 0600", st, err)
	}
	own, err := w.builderKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := open(t, Options{Matrix: w.Matrix, StateDir: t.TempDir()})
	there := &build{Workspace: elsewhere, o: b.o}
	const refused = "no builder that is trusted here signed it"
	if _, err := there.readRecord("x"); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("on another machine: %v; want %q", err, refused)
	}
	there.o.TrustBuilders = []crypto.PublicKey{own.Public()}
	if r, err := there.readRecord("x"); err != nil || r.Digest != "sha256:12" {
		t.Errorf("with --trust-builder: %v, %v", r, err)
	}
	file := b.recordFile("x")
	signed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := json.Marshal(record{Hash: "x", Digest: "sha256:12"})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := attest.Sign("application/x", plain, own)
	if err != nil {
		t.Fatal(err)
	}
	for what, doc := range map[string][]byte{
		"not signed": plain, "signed as something else": foreign, "empty": nil, "cut off": signed[:len(signed)/2],
		"changed": bytes.Replace(signed, []byte(`"payload":"`), []byte(`"payload":"eyJI`), 1),
	} {
		if err := os.WriteFile(file, doc, 0o644); err != nil {
			t.Fatal(err)
		}
		if r, err := b.readRecord("x"); err == nil {
			t.Errorf("%s: believed: %v", what, r)
		}
	}
	if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.readRecord("x"); err == nil || !strings.Contains(err.Error(), "FIFO") {
		t.Errorf("a FIFO: %v", err)
	}
	if err := os.WriteFile(b.recordFile("y"), signed, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.readRecord("y"); err == nil {
		t.Error("a record of another recipe is believed")
	}
}

func TestInvocation(t *testing.T) {
	for _, k := range []string{"GITHUB_WORKFLOW_REF", "GITHUB_RUN_ID", "GITHUB_REPOSITORY"} {
		t.Setenv(k, "")
	}
	if builderID() != "https://github.com/assay-hpc/assay/local-build" || invocationID() != "" {
		t.Errorf("at home: %q, %q", builderID(), invocationID())
	}
	t.Setenv("GITHUB_WORKFLOW_REF", "o/r/.github/workflows/build.yaml@refs/heads/main")
	t.Setenv("GITHUB_RUN_ID", "42")
	t.Setenv("GITHUB_REPOSITORY", "o/r")
	if builderID() != "https://github.com/o/r/.github/workflows/build.yaml@refs/heads/main" || invocationID() != "https://github.com/o/r/actions/runs/42" {
		t.Errorf("on GitHub: %q, %q", builderID(), invocationID())
	}
}

// TestUnlocked: every target has a recipe on each platform, and what it lacks
// is named.
func TestUnlocked(t *testing.T) {
	w := open(t, Options{Matrix: own(t)})
	need, err := w.Unlocked(w.Targets, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range w.Targets {
		if len(need[target.Name]) == 0 {
			t.Errorf("%s lacks nothing of an empty lock", target.Name)
		}
	}
	if names := slices.Sorted(maps.Keys(need)); len(names) != len(w.Targets) {
		t.Errorf("%d of %d targets lack something", len(names), len(w.Targets))
	}
	one, err := w.Unlocked(w.Targets[:1], []recipe.Platform{arm64})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range one[w.Targets[0].Name] {
		if strings.HasSuffix(m.Key, "/amd64") || strings.Contains(m.Key, "amd64.zip") {
			t.Errorf("for arm64 alone, %s is asked for", fmt.Sprint(m.Kind, " ", m.Key))
		}
	}
}
