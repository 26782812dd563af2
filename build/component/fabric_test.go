package component

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"

	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/golden"
)

var (
	amd64 = recipe.Platform{OS: "linux", Arch: "amd64"}
	arm64 = recipe.Platform{OS: "linux", Arch: "arm64"}
)

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// targets are those of the real matrix.
func targets(t testing.TB) []matrix.Target {
	t.Helper()
	text, err := os.ReadFile("../../matrix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, all, err := Read("matrix.yaml", bytes.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func named(t testing.TB, all []matrix.Target, name string) matrix.Target {
	t.Helper()
	i := slices.IndexFunc(all, func(t matrix.Target) bool { return t.Name == name })
	if i < 0 {
		t.Fatalf("the matrix has no %s", name)
	}
	return all[i]
}

// input asks for a target on a platform, with an empty lock.
func input(t testing.TB, name string, p, native recipe.Platform) Input {
	t.Helper()
	all := targets(t)
	return Input{
		Target: named(t, all, name), All: all, Platform: p, Native: native, Lock: lock.New(),
		Source: Source{Digest: "sha256:" + sum("source"), Version: "0.1.0", Go: "1.26.8", Modules: []module.Version{
			{Path: "github.com/Example/mod", Version: "v1.2.3"}, {Path: "golang.org/x/sys", Version: "v0.48.0"},
		}, CUDAModules: []module.Version{{Path: "example.org/cu", Version: "v0.9.6"}}},
	}
}

func make1(t testing.TB, in Input) Result {
	t.Helper()
	res, err := Make(in)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// fill enters into a lock what a recipe lacks, as if the archive had just what
// is asked for and zlib1g. It does not invent what the recipe did not report.
func fill(l *lock.Lock, res Result) {
	for _, m := range res.Missing {
		switch m.Kind {
		case MissingImage:
			l.Images[m.Key] = lock.Entry{Digest: "sha256:" + sum(m.Key), From: "test"}
		case MissingDownload:
			l.Downloads[m.Key] = lock.Entry{Digest: "sha256:" + sum(m.Key), From: "test"}
		case MissingBase:
			l.Debs[m.Key] = lock.PackageSet{Request: m.Request, Packages: debs(m.Platform.Arch, "base-files", "libc6")}
		case MissingDebs:
			asked := res.Recipe.Stage(m.Stage).Steps[m.Step].(recipe.Apt).Packages
			all := append(slices.Clone(asked), "zlib1g")
			if slices.Contains(asked, "cuda-libraries-13-1") { // as its dependency
				all = append(all, "cuda-cudart-13-1")
			}
			l.Debs[m.Key] = lock.PackageSet{Request: m.Request, Packages: debs(m.Platform.Arch, all...)}
		}
	}
}

func debs(arch string, names ...string) []recipe.Deb {
	var out []recipe.Deb
	for _, n := range names {
		n, version, ok := strings.Cut(n, "=")
		if !ok {
			version = "1:2.3.4-5"
		}
		out = append(out, recipe.Deb{Name: n, Version: version, Arch: arch, URL: "debian:pool/" + n + "_" + arch + ".deb", SHA256: sum(n + arch), Size: 1})
	}
	return out
}

// resolved makes a recipe, locking round by round what it lacks.
func resolved(t testing.TB, in Input) *recipe.Recipe {
	t.Helper()
	for range 10 {
		res := make1(t, in)
		if len(res.Missing) == 0 {
			return res.Recipe
		}
		fill(in.Lock, res)
	}
	t.Fatalf("%s: the lock never satisfies the recipe", in.Target.Name)
	return nil
}

// describe prints a recipe for a person.
func describe(r *recipe.Recipe) string {
	var b strings.Builder
	vars := func(vars []recipe.Var) {
		for _, v := range vars {
			fmt.Fprintf(&b, "    %s=%s\n", v.Name, v.Value)
		}
	}
	text := func(s string) {
		for line := range strings.Lines(s) {
			fmt.Fprintf(&b, "    | %s", line)
		}
	}
	source := func(s recipe.Source) string {
		return strings.TrimSpace(fmt.Sprintf("%s %s %.19s", s.Kind, s.Ref, s.Digest))
	}
	fmt.Fprintf(&b, "%s for %s\n", r.Target, r.Platform)
	for _, s := range r.Stages {
		fmt.Fprintf(&b, "\nstage %s native=%v from %s\n", s.Name, s.Native, source(s.From))
		vars(s.Env)
		for _, st := range s.Steps {
			switch st := st.(type) {
			case recipe.Run:
				fmt.Fprintf(&b, "  run %q network=%v\n", st.Title, st.Network)
				vars(st.Env)
				for _, m := range st.Mounts {
					fmt.Fprintf(&b, "    mount %s from %s %s\n", m.Target, source(m.From), m.Path)
				}
				text(st.Script)
			case recipe.Apt:
				fmt.Fprintf(&b, "  apt %q set=%s upgrade=%v\n", st.Title, st.Set, st.Upgrade)
				for _, p := range st.Packages {
					fmt.Fprintf(&b, "    %s\n", p)
				}
				fmt.Fprintf(&b, "    = %d packages\n", len(st.Debs))
			case recipe.Copy:
				fmt.Fprintf(&b, "  copy %s from %s to %s\n", st.Src, source(st.From), st.Dst)
			case recipe.File:
				fmt.Fprintf(&b, "  file %s %04o\n", st.Path, st.Mode)
				if st.Path != certificate.SpecPath { // it repeats what is below
					text(st.Content)
				}
			case recipe.Symlink:
				fmt.Fprintf(&b, "  symlink %s to %s\n", st.Path, st.Target)
			}
		}
	}
	b.WriteString("\nconfiguration\n")
	vars(r.Config.Env)
	fmt.Fprintf(&b, "    entrypoint %q cmd %q workdir %q\n", r.Config.Entrypoint, r.Config.Cmd, r.Config.WorkingDir)
	for _, k := range slices.Sorted(maps.Keys(r.Config.Labels)) {
		fmt.Fprintf(&b, "    label %s=%s\n", k, r.Config.Labels[k])
	}
	for _, c := range r.Components {
		fmt.Fprintf(&b, "\ncomponent %s %s (%s) %s\n", c.Name, c.Version, c.License, c.Homepage)
		for _, s := range c.Sources {
			fmt.Fprintf(&b, "  from %s %.19s\n", s.URL, s.Digest)
		}
		for _, k := range c.Checks {
			fmt.Fprintf(&b, "  %s %q:", k.Kind, k.Name)
			if k.Path != "" {
				fmt.Fprintf(&b, " %s %04o", k.Path, k.Mode)
			}
			if len(k.Command) > 0 {
				fmt.Fprintf(&b, " %q matches %s", k.Command, k.Match)
			}
			b.WriteString("\n")
		}
	}
	for _, a := range r.Absent {
		fmt.Fprintf(&b, "absent %s: %s\n", a.Library, a.Because)
	}
	return b.String()
}

const fabric = "fabric-debian12"

// TestFabric: the recipe for amd64 is the golden, and that for arm64 differs
// in nothing but the architecture's names.
func TestFabric(t *testing.T) {
	var texts []string
	for _, p := range []recipe.Platform{amd64, arm64} {
		r := resolved(t, input(t, fabric, p, p))
		texts = append(texts, describe(r))
		if r.Platform != p || r.Image().Name != "image" {
			t.Errorf("the recipe is for %v, its last stage is %s", r.Platform, r.Image().Name)
		}
		for _, s := range r.Stages {
			for _, st := range s.Steps {
				if run, ok := st.(recipe.Run); ok && run.Network {
					t.Errorf("%s: step %q takes the network; everything that it needs is pinned", p, run.Title)
				}
			}
		}
	}
	golden.Check(t, fabric+".golden", texts[0])
	digest := regexp.MustCompile(`sha256:[0-9a-f]+`)
	// The compilers for the other architecture are the other one's.
	want := strings.NewReplacer("gcc-aarch64-linux-gnu", "gcc-x86-64-linux-gnu", "arm64-cross", "amd64-cross", "amd64", "arm64", "x86_64", "aarch64").Replace(digest.ReplaceAllString(texts[0], "sha256:"))
	if diff := cmp.Diff(want, digest.ReplaceAllString(texts[1], "sha256:")); diff != "" {
		t.Errorf("arm64 (-amd64 +arm64):\n%s", diff)
	}
}

// TestFabricMissing: an empty lock lacks exactly these, and each is named as
// "assay lock" enters it.
func TestFabricMissing(t *testing.T) {
	var b strings.Builder
	for _, tt := range []struct{ p, native recipe.Platform }{{amd64, amd64}, {arm64, arm64}, {arm64, amd64}} {
		fmt.Fprintf(&b, "%s on %s\n", tt.p, tt.native)
		for _, m := range make1(t, input(t, fabric, tt.p, tt.native)).Missing {
			at := ""
			if m.Kind == MissingDebs {
				at = fmt.Sprintf(" in stage %s, step %d", m.Stage, m.Step)
			}
			fmt.Fprintf(&b, "  %s %s%s\n", m.Kind, m.Key, at)
		}
	}
	golden.Check(t, "missing.golden", b.String())
}

// TestMissing: whatever is taken out of a full lock is reported, and nothing
// else is but what was resolved on top of it.
func TestMissing(t *testing.T) {
	in := input(t, fabric, amd64, amd64)
	resolved(t, in)
	keys := func(ms []Missing) []string {
		var out []string
		for _, m := range ms {
			out = append(out, string(m.Kind)+" "+m.Key)
		}
		return out
	}
	full := in.Lock
	for key := range full.Downloads {
		in.Lock = read(t, full)
		delete(in.Lock.Downloads, key)
		want := []string{"download " + key}
		got := keys(make1(t, in).Missing)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("without %s, missing (-want +got):\n%s", key, diff)
		}
	}
	for key, set := range full.Debs {
		for what, other := range map[string]lock.PackageSet{"no packages": {Request: set.Request}, "another request": {Request: "x", Packages: set.Packages}} {
			in.Lock = read(t, full)
			in.Lock.Debs[key] = other
			got := keys(make1(t, in).Missing)
			base := strings.HasPrefix(key, "base-")
			if base && what == "another request" {
				continue // a base's request is its key
			}
			kind := "debs "
			if base {
				kind = "base "
			}
			if !slices.Contains(got, kind+key) {
				t.Errorf("%s with %s: missing %q; want it named", key, what, got)
			}
			if !base && len(got) != 1 {
				t.Errorf("%s with %s: missing %q; want it alone", key, what, got)
			}
		}
	}
}

// read returns a copy of a lock, by way of its file.
func read(t testing.TB, l *lock.Lock) *lock.Lock {
	t.Helper()
	c, err := lock.Read("matrix.lock", bytes.NewReader(l.Marshal()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNative: what "assay plan" relies on. It makes the recipe for a builder
// of the image's own architecture, once, and calls that recipe's hash the
// image's, whichever builder makes it.
func TestNative(t *testing.T) {
	own := input(t, fabric, arm64, arm64)
	for _, p := range own.Target.Platforms { // the image declares a hash that covers all of them
		for _, native := range own.Target.Platforms {
			in := own
			in.Platform, in.Native = p, native
			resolved(t, in)
		}
	}
	a := resolved(t, own)
	if again := make1(t, own).Recipe; again.Hash() != a.Hash() || !cmp.Equal(a, again) {
		t.Error("Make is not deterministic")
	}
	cross := own
	cross.Native = amd64
	b := resolved(t, cross)
	// The builder's own architecture shows in native stages, and nowhere else.
	if a.Hash() == b.Hash() {
		t.Error("a native stage on another architecture is the same")
	}
	for _, s := range a.Stages {
		if other := b.Stage(s.Name); !s.Native && !cmp.Equal(s, *other) {
			t.Errorf("stage %s depends on the builder:\n%s", s.Name, cmp.Diff(s, *other))
		}
	}
	for what, pair := range map[string][2]any{"the configuration": {a.Config, b.Config}, "the components": {a.Components, b.Components}, "the list of absent libraries": {a.Absent, b.Absent}} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s depends on the builder:\n%s", what, diff)
		}
	}
	if got := make1(t, own).Recipe.Hash(); got != a.Hash() {
		t.Error("locking for another builder changes the hash of the recipe for this one")
	}
}

// TestDeclaredSpec: the file in the image says what the recipe says.
func TestDeclaredSpec(t *testing.T) {
	r := resolved(t, input(t, fabric, amd64, amd64))
	f, ok := r.Image().Steps[len(r.Image().Steps)-1].(recipe.File)
	if !ok || f.Path != certificate.SpecPath {
		t.Fatalf("the image's last step is %+v; want %s", f, certificate.SpecPath)
	}
	var got certificate.ImageSpec
	if err := json.Unmarshal([]byte(f.Content), &got); err != nil {
		t.Fatal(err)
	}
	want := r.Spec()
	want.Recipe = got.Recipe // of the recipe without this file
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", f.Path, diff)
	}
	var apt int
	for _, st := range r.Image().Steps {
		if a, ok := st.(recipe.Apt); ok {
			apt += len(a.Debs)
		}
	}
	if len(got.Packages) != apt || apt == 0 {
		t.Errorf("%d packages are declared; %d are installed", len(got.Packages), apt)
	}
}

// TestEnvironment: the image's configuration, a login shell, sudo and the
// loader are told the same.
func TestEnvironment(t *testing.T) {
	b := &builder{Input: input(t, fabric, amd64, amd64), env: map[string]string{}}
	b.prepend("PATH", "/opt/assay/bin", "/opt/hpcx/bin")
	b.prepend("LD_LIBRARY_PATH", "/opt/hpcx/lib")
	b.prepend("PATH", "/opt/later/bin")
	b.setenv("HPCX_DIR", "/opt/hpcx")
	b.setenv("OPAL_PREFIX", "/opt/hpcx/ompi")
	b.setenv("HPCX_DIR", "/opt/hpcx2") // the last one holds, in the first one's place
	r := b.finish()
	files := map[string]string{}
	for _, st := range r.Image().Steps {
		if f, ok := st.(recipe.File); ok {
			files[f.Path] = f.Content
		}
	}
	const profile = "/etc/profile.d/assay.sh"
	for _, base := range [][]string{{"PATH=/usr/bin:/bin"}, {"PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=/usr/local/nvidia/lib"}} {
		script := filepath.Join(t.TempDir(), "profile.sh")
		if err := os.WriteFile(script, []byte(files[profile]), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, v := range r.Config.Env {
			cmd := exec.Command("/bin/sh", "-euc", ". "+script+`; printf %s "$`+v.Name+`"`)
			cmd.Env = base
			got, err := cmd.CombinedOutput()
			want := strings.TrimSuffix(os.Expand(v.Value, func(name string) string {
				for _, kv := range base {
					if k, val, _ := strings.Cut(kv, "="); k == name {
						return val
					}
				}
				return ""
			}), ":")
			if err != nil || string(got) != want {
				t.Errorf("a login shell on %v has %s=%q, %v; the configuration says %q", base, v.Name, got, err, want)
			}
		}
	}
	if got, want := files["/etc/sudoers.d/assay"], "Defaults env_keep += \"HPCX_DIR OPAL_PREFIX\"\n"; got != want {
		t.Errorf("sudo keeps %q; want %q", got, want)
	}
	if got, want := files["/etc/ld.so.conf.d/assay.conf"], "/opt/hpcx/lib\n"; got != want {
		t.Errorf("the loader has %q; want %q", got, want)
	}
	want := []recipe.Var{
		{Name: "PATH", Value: "/opt/assay/bin:/opt/hpcx/bin:/opt/later/bin:${PATH}"}, {Name: "LD_LIBRARY_PATH", Value: "/opt/hpcx/lib:${LD_LIBRARY_PATH}"},
		{Name: "HPCX_DIR", Value: "/opt/hpcx2"}, {Name: "OPAL_PREFIX", Value: "/opt/hpcx/ompi"},
	}
	if diff := cmp.Diff(want, r.Config.Env); diff != "" {
		t.Errorf("the configuration's variables (-want +got):\n%s", diff)
	}
}

// TestEveryTarget: what holds for every recipe of the matrix.
func TestEveryTarget(t *testing.T) {
	all := targets(t)
	l := lock.New()
	names := map[string]bool{}
	for _, target := range all {
		for _, p := range target.Platforms {
			in := input(t, target.Name, p, p)
			in.Lock = l
			r := resolved(t, in)
			what := target.Name + " " + p.Arch
			if again := make1(t, in).Recipe.Hash(); again != r.Hash() {
				t.Errorf("%s: Make is not deterministic", what)
			}
			if names[r.Hash()] {
				t.Errorf("%s: another target has the same recipe", what)
			}
			names[r.Hash()] = true
			declared := map[string]bool{}
			for _, c := range r.Components {
				declared[c.Name] = true
				if len(c.Checks) == 0 {
					t.Errorf("%s: nothing checks %s", what, c.Name)
				}
				if c.Version == "" || c.License == "" || c.Homepage == "" {
					t.Errorf("%s: %s has version %q, licence %q, homepage %q", what, c.Name, c.Version, c.License, c.Homepage)
				}
				for _, s := range c.Sources {
					if !strings.HasPrefix(s.Digest, "sha256:") {
						t.Errorf("%s: %s is from %s, with checksum %q", what, c.Name, s.URL, s.Digest)
					}
				}
				seen := map[string]bool{}
				for _, k := range c.Checks {
					if seen[k.Name] {
						t.Errorf("%s: %s has two checks called %q", what, c.Name, k.Name)
					}
					seen[k.Name] = true
					if _, err := regexp.Compile(k.Match); err != nil {
						t.Errorf("%s: %s, check %q: %v", what, c.Name, k.Name, err)
					}
					if (k.Kind == certificate.CheckCommand) != (len(k.Command) > 0) || (k.Kind == certificate.CheckCommand) == (k.Path != "") {
						t.Errorf("%s: %s, check %q is %+v", what, c.Name, k.Name, k)
					}
				}
			}
			for _, c := range target.Components {
				if !declared[c.Name] {
					t.Errorf("%s: the image does not declare %s", what, c.Name)
				}
			}
			written := map[string]bool{}
			for _, st := range r.Image().Steps {
				if f, ok := st.(recipe.File); ok {
					if written[f.Path] {
						t.Errorf("%s: %s is written twice", what, f.Path)
					}
					written[f.Path] = true
				}
			}
		}
	}
}

func TestUnknownComponent(t *testing.T) {
	in := input(t, fabric, amd64, amd64)
	in.Target.Components = []matrix.Component{{Name: "openmp1", Version: "1"}}
	if _, err := Make(in); err == nil || !strings.HasPrefix(err.Error(), `target fabric-debian12: no component is called "openmp1"; there are `) || !strings.Contains(err.Error(), "openmpi") {
		t.Errorf("Make = %v", err)
	}
	for name := range makers {
		if Library().Definition(name) == nil {
			t.Errorf("%s is made, and no file says what it is", name)
		}
	}
}

// TestLabels: what names and numbers the base does not go for the image.
func TestLabels(t *testing.T) {
	const oci = "org.opencontainers.image."
	for _, tt := range []struct {
		target, repository string
		want               map[string]string
	}{
		{"cuda12.4-debian13-runtime", "ghcr.io/assay-hpc/assay", map[string]string{
			oci + "version": "cuda12.4-debian13-runtime-nccl2.30.4-1", oci + "ref.name": "cuda12.4-debian13-runtime",
			oci + "description": "CUDA 12.4.1 with NCCL, MPI, UCX and RDMA on Debian 13, and the harness that certifies it",
			oci + "source":      "https://github.com/assay-hpc/assay", oci + "base.name": "", oci + "base.digest": "",
		}},
		{"cuda12.9.1-ubuntu22.04", "ghcr.io/org/images/cluster", map[string]string{
			oci + "version": "12.9.1-devel-ubuntu22.04-nccl2.27.6-1", oci + "base.name": "docker.io/nvidia/cuda:12.9.1-devel-ubuntu22.04",
			oci + "source": "https://github.com/org/images",
		}},
		{"fabric-debian12", "registry.example.com/org/images", map[string]string{
			oci + "version": "fabric-debian12", oci + "source": "",
			oci + "description": "HPC userspace (MPI, UCX, RDMA) on Debian 12, and the harness that certifies it",
		}},
	} {
		in := input(t, tt.target, amd64, amd64)
		in.Repository = tt.repository
		r := resolved(t, in)
		for k, want := range tt.want {
			if got := r.Config.Labels[k]; got != want {
				t.Errorf("%s: %s is %q; want %q", tt.target, k, got, want)
			}
		}
		if base := r.Image().From; base.Kind == recipe.FromImage && r.Config.Labels[oci+"base.digest"] != base.Digest {
			t.Errorf("%s: base.digest %q; want %q", tt.target, r.Config.Labels[oci+"base.digest"], base.Digest)
		}
	}
}
