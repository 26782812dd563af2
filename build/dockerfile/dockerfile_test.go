package dockerfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
	"golang.org/x/mod/module"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/golden"
)

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func env() Env {
	return Env{
		Epoch: time.Unix(1_767_225_600, 0).UTC(),
		URL: func(u string) (string, error) {
			return strings.Replace(u, "goproxy:", "https://modules.example.org/", 1), nil
		},
		Image: func(ref string) string { return "mirror.example.org/" + ref },
	}
}

// parse reads a Dockerfile with BuildKit's own parser.
func parse(t *testing.T, text string) []instructions.Stage {
	t.Helper()
	res, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatalf("BuildKit does not parse it: %v\n%s", err, text)
	}
	for _, w := range res.Warnings {
		t.Errorf("BuildKit warns: %s", w.Short)
	}
	stages, _, err := instructions.Parse(res.AST, nil)
	if err != nil {
		t.Fatalf("BuildKit does not take it: %v\n%s", err, text)
	}
	return stages
}

func write(t *testing.T, r *recipe.Recipe) string {
	t.Helper()
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := Write(r, env())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// sample has every kind of source and step.
func sample() *recipe.Recipe {
	src := recipe.Source{Kind: recipe.FromURL, Ref: "https://downloads.example.org/tool-1.2.tar.gz", Digest: "sha256:" + sum("tool")}
	return &recipe.Recipe{
		Target: "sample", Platform: recipe.Platform{OS: "linux", Arch: "arm64"},
		Stages: []recipe.Stage{
			{Name: "go/1.26", Native: true, From: recipe.Source{Kind: recipe.FromImage, Ref: "docker.io/base:1", Digest: "sha256:" + sum("base")}, Env: []recipe.Var{{Name: "PATH", Value: "/go/bin:${PATH}"}, {Name: "A", Value: "b"}}},
			{Name: "tool", Native: true, From: recipe.Source{Kind: recipe.FromStage, Ref: "go/1.26"}, Steps: []recipe.Step{
				recipe.Run{
					Title: "compile the tool", Script: "tar xf /run/tool.tgz\nmake CC=\"$CC\"\n", Env: []recipe.Var{{Name: "CC", Value: "gcc -O2 '$x'"}},
					Mounts: []recipe.Mount{
						{Target: "/run/tool.tgz", From: src},
						{Target: "/run/src", From: recipe.Source{Kind: recipe.FromLayout, Ref: component.HarnessSource, Digest: "sha256:" + sum("src")}, Path: "cmd"},
						{Target: "/run/cache", From: recipe.Source{Kind: recipe.CacheVolume, Ref: "assay-cache"}},
					},
				},
				recipe.Run{Title: "fetch more", Script: "true", Network: true},
			}},
			{Name: "image", From: recipe.Source{Kind: recipe.FromLayout, Ref: "base-bookworm-minbase", Digest: "sha256:" + sum("base")}, Steps: []recipe.Step{
				recipe.Apt{Title: "install", Packages: []string{"hwloc-nox"}, Debs: []recipe.Deb{
					{Name: "hwloc-nox", Version: "2.9.0-1", Arch: "arm64"}, {Name: "libhwloc15", Version: "2.9.0-1", Arch: "arm64"},
				}},
				recipe.Copy{From: recipe.Source{Kind: recipe.FromStage, Ref: "tool"}, Src: "/out/", Dst: "/opt/tool/"},
				recipe.Copy{From: src, Src: "/tool-1.2.tar.gz", Dst: "/usr/src/tool.tar.gz"},
				recipe.File{Path: "/etc/profile.d/tool.sh", Mode: 0o755, Content: "export X=\"$HOME/x\"\nASSAY_EOF\n"},
				recipe.File{Path: "/etc/empty", Mode: 0o400},
				recipe.Symlink{Path: "/usr/bin/tool", Target: "/opt/tool/it's"},
			}},
		},
		Config: recipe.Config{
			Env:    []recipe.Var{{Name: "PATH", Value: "/opt/tool/bin:${PATH}"}, {Name: "LD_LIBRARY_PATH", Value: "/opt/tool/lib:${LD_LIBRARY_PATH}"}, {Name: "OPTS", Value: `a "quoted" $dollar \ back`}},
			Labels: map[string]string{"b": `x "y" $z`, "a": "1"}, WorkingDir: "/workspace", Entrypoint: []string{"/bin/e", "a b"}, Cmd: []string{"c"},
		},
	}
}

func TestSample(t *testing.T) {
	text := write(t, sample())
	golden.Check(t, "sample.golden", text)
	if again := write(t, sample()); again != text {
		t.Error("one recipe gives two texts")
	}
	stages := parse(t, text)
	var names []string
	for _, s := range stages {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"download-1", "go-1-26", "tool", "image"}, names); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
	for i, want := range []string{"", "$BUILDPLATFORM", "", ""} {
		if stages[i].Platform != want {
			t.Errorf("stage %s has platform %q; want %q", stages[i].Name, stages[i].Platform, want)
		}
	}
}

// find returns the instructions of one type.
func find[T any](stages []instructions.Stage) []T {
	var out []T
	for _, s := range stages {
		for _, c := range s.Commands {
			if c, ok := c.(T); ok {
				out = append(out, c)
			}
		}
	}
	return out
}

// nasty are texts that a here-document can get wrong.
var nasty = []string{
	"",
	"plain\n",
	"$HOME ${HOME} $(id) `id` $$ \\$x\n",
	"ASSAY_EOF\n",
	"ASSAY_EOF\nASSAY_EOF2\nASSAY_EOF3\n",
	"a\nASSAY_EOF\nRUN id\n",
	" ASSAY_EOF\n\tASSAY_EOF\nASSAY_EOF \n'ASSAY_EOF'\n",
	"ends in a backslash \\\nnext\n",
	"# a comment\n\n\n# syntax=other\nFROM scratch\n",
	"cat <<EOF\n$x\nEOF\n",
	"<<-'X'\n",
	"tabs\t\"quotes\" 'single'\n\n\n",
	"umlauts äöü, 漢字\n",
	"windows\r\nlines\r\n",
	"\\\n",
}

// TestFilesSurvive: what BuildKit's parser reads is what the recipe has, to
// the byte, and nothing in it is expanded.
func TestFilesSurvive(t *testing.T) {
	for _, content := range nasty {
		r := sample()
		r.Image().Steps = []recipe.Step{recipe.File{Path: "/etc/x", Mode: 0o640, Content: content}, recipe.Run{Title: "after", Script: "after\n"}}
		stages := parse(t, write(t, r))
		copies := find[*instructions.CopyCommand](stages[len(stages)-1:])
		if len(copies) != 1 || len(copies[0].SourceContents) != 1 {
			t.Errorf("%q: there are %d copies", content, len(copies))
			continue
		}
		c := copies[0].SourceContents[0]
		if c.Data != content || c.Expand || copies[0].DestPath != "/etc/x" || copies[0].Chmod != "0640" {
			t.Errorf("file content %q is read as %q (expand %v), to %s with mode %s", content, c.Data, c.Expand, copies[0].DestPath, copies[0].Chmod)
		}
		if runs := find[*instructions.RunCommand](stages[len(stages)-1:]); len(runs) != 2 {
			t.Errorf("%q: %d commands run; want one before the file, for its directory, and one behind it", content, len(runs))
		}
	}
}

func TestScriptsSurvive(t *testing.T) {
	for _, script := range nasty {
		r := sample()
		r.Image().Steps = []recipe.Step{recipe.Run{Title: "run", Script: script}}
		stages := parse(t, write(t, r))
		runs := find[*instructions.RunCommand](stages[len(stages)-1:])
		if len(runs) != 1 || len(runs[0].Files) != 1 {
			t.Errorf("%q: there are %d commands", script, len(runs))
			continue
		}
		want := "set -eu\n" + strings.TrimSuffix(script, "\n") + "\n"
		if got := runs[0].Files[0].Data; got != want {
			t.Errorf("script %q is read as %q", script, got)
		}
		if n := instructions.GetNetwork(runs[0]); n != instructions.NetworkNone {
			t.Errorf("%q runs with network %q", script, n)
		}
	}
}

func TestNetworkAndMounts(t *testing.T) {
	stages := parse(t, write(t, sample()))
	runs := find[*instructions.RunCommand](stages)
	for _, r := range runs { // mounts are checked when their flags are expanded
		if err := r.Expand(func(s string) (string, error) { return s, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := instructions.GetNetwork(runs[0]), instructions.GetNetwork(runs[1]); a != instructions.NetworkNone || b != instructions.NetworkDefault {
		t.Errorf("the runs have network %q and %q; want none, and the default for the one that asks", a, b)
	}
	var got []string
	for _, m := range instructions.GetMounts(runs[0]) {
		got = append(got, fmt.Sprintf("%s %s:%s at %s %s", m.Type, m.From, m.Source, m.Target, m.CacheID))
	}
	want := []string{"bind download-1:/tool-1.2.tar.gz at /run/tool.tgz ", "bind harness-source:cmd at /run/src ", "cache : at /run/cache assay-cache"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	adds := find[*instructions.AddCommand](stages)
	if len(adds) != 1 || adds[0].Checksum != "sha256:"+sum("tool") || adds[0].SourcePaths[0] != "https://downloads.example.org/tool-1.2.tar.gz" {
		t.Errorf("the download is fetched by %+v; want once, with its checksum", adds)
	}
	for _, c := range find[*instructions.CopyCommand](stages) {
		if c.From != "" && !c.Link {
			t.Errorf("%s is not linked: its layer would depend on what lies below", c.String())
		}
	}
}

// TestVariables: BuildKit's expansion gives the values that the graph has.
func TestVariables(t *testing.T) {
	base := []string{"PATH=/usr/bin", "EMPTY="}
	for _, tt := range []struct{ value, want string }{
		{"", ""},
		{"plain", "plain"},
		{"/opt:${PATH}", "/opt:/usr/bin"},
		{"${PATH}:/opt", "/usr/bin:/opt"},
		{"/opt:${GONE}", "/opt"},
		{"${EMPTY}:/opt", "/opt"},
		{"/a:${PATH}:/b", "/a:/usr/bin:/b"},
		{"${PATH}", "/usr/bin"},
		{"$PATH", "$PATH"},
		{"${open", "${open"},
		{`a "b" 'c' \d \\e`, `a "b" 'c' \d \\e`},
		{"`id` $(id) # %s", "`id` $(id) # %s"},
	} {
		r := sample()
		r.Config.Env = []recipe.Var{{Name: "FIRST", Value: "1"}, {Name: "X", Value: tt.value}}
		envs := find[*instructions.EnvCommand](parse(t, write(t, r))[3:])
		if len(envs) != 1 || len(envs[0].Env) != 2 {
			t.Errorf("%q: the variables are %v; want one instruction", tt.value, envs)
			continue
		}
		got, _, err := shell.NewLex('\\').ProcessWord(envs[0].Env[1].Value, shell.EnvsFromSlice(base))
		if err != nil || got != tt.want {
			t.Errorf("%q is written as %s and read as %q, %v; want %q", tt.value, envs[0].Env[1].Value, got, err, tt.want)
		}
	}
}

// TestRunVariables: a step's own variables are what the graph gives it.
func TestRunVariables(t *testing.T) {
	for _, value := range []string{"", "a b", "$HOME ${x} $(id) `id`", `it's "quoted" \ \\`, "two\nlines", "ä"} {
		r := sample()
		r.Image().Steps = []recipe.Step{recipe.Run{Title: "t", Env: []recipe.Var{{Name: "X", Value: value}}, Script: "printf %s \"$X\"\n"}}
		stages := parse(t, write(t, r))
		script := find[*instructions.RunCommand](stages[3:])[0].Files[0].Data
		out, err := exec.Command("/bin/sh", "-c", script).Output()
		if err != nil || string(out) != value {
			t.Errorf("the shell sees %q, %v; want %q (script %q)", out, err, value, script)
		}
	}
}

func TestSymlink(t *testing.T) {
	dir := t.TempDir()
	for _, target := range []string{"/opt/x", "a b", "it's $x"} {
		path := filepath.Join(dir, "new dir", "$link")
		r := sample()
		r.Image().Steps = []recipe.Step{recipe.Symlink{Path: path, Target: target}}
		script := find[*instructions.RunCommand](parse(t, write(t, r))[3:])[0].Files[0].Data
		if out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got, err := os.Readlink(path); err != nil || got != target {
			t.Errorf("the link points to %q, %v; want %q", got, err, target)
		}
	}
	for in, want := range map[string]string{"/a": "/", "/a/b": "/a", "/a/b/c": "/a/b"} {
		if got := parentOf(in); got != want {
			t.Errorf("dir(%q) = %q; want %q", in, got, want)
		}
	}
}

func parentOf(p string) string { return dir(p) }

func TestErrors(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name   string
		change func(*recipe.Recipe, *Env)
		want   string
	}{
		{"no newline", func(r *recipe.Recipe, _ *Env) {
			r.Image().Steps = []recipe.Step{recipe.File{Path: "/etc/x", Content: "x"}}
		}, "sample: stage image: file /etc/x does not end in a newline, which a here-document cannot say"},
		{"a space in a name", func(r *recipe.Recipe, _ *Env) { r.Image().Steps = []recipe.Step{recipe.File{Path: "/etc/a b"}} }, `sample: stage image: the name of file "/etc/a b" cannot be said with a here-document`},
		{"a mirror", func(_ *recipe.Recipe, e *Env) { e.URL = func(string) (string, error) { return "", boom } }, "sample: stage tool: boom"},
		{"from a cache", func(r *recipe.Recipe, _ *Env) { r.Stages[0].From = recipe.Source{Kind: recipe.CacheVolume} }, "sample: stage go/1.26: a Dockerfile cannot start from a cache"},
		{"a label of two lines", func(r *recipe.Recipe, _ *Env) { r.Config.Labels["a"] = "a\nb" }, "sample: the value of a has more than one line, which LABEL cannot say"},
		{"two lines", func(r *recipe.Recipe, _ *Env) { r.Config.Env[0].Value = "a\nb" }, "sample: the value of PATH has more than one line, which ENV cannot say"},
	} {
		r, e := sample(), env()
		tt.change(r, &e)
		if text, err := Write(r, e); err == nil || err.Error() != tt.want || text != "" {
			t.Errorf("%s: Write = %v; want %s", tt.name, err, tt.want)
		}
		if files, err := Directory(r, e); tt.name != "no newline" && tt.name != "a space in a name" && (err == nil || err.Error() != tt.want || files != nil) {
			t.Errorf("%s: Directory = %v; want %s", tt.name, err, tt.want)
		}
	}
}

// TestFabric is the Dockerfile of the image that assay builds by default, with
// a small lock in place of the real one.
func TestFabric(t *testing.T) {
	text, err := os.ReadFile("../../matrix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, all, err := component.Read("matrix.yaml", bytes.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(t matrix.Target) bool { return t.Name == "fabric-debian12" })
	p := recipe.Platform{OS: "linux", Arch: "amd64"}
	in := component.Input{
		Target: all[i], All: all, Platform: p, Native: p, Lock: lock.New(),
		Source: component.Source{Digest: "sha256:" + sum("source"), Version: "0.1.0", Go: "1.26.8", Modules: []module.Version{{Path: "github.com/Example/mod", Version: "v1.2.3"}}},
	}
	r := resolved(t, in)
	got := write(t, r)
	parse(t, got)
	// What the image declares of itself is build/component's, which holds it
	// against goldens of its own.
	got = strings.Replace(got, r.Declared()[:12], "HASH", 1)
	spec := regexp.MustCompile(`(?s)(` + certificate.SpecPath + `\n)\{\n.*\n\}\n(ASSAY_EOF)`)
	golden.Check(t, "fabric-debian12.golden", spec.ReplaceAllString(got, "$1{…}\n$2"))
}

// resolved makes a recipe with a lock in which every package set holds just
// what is asked for.
func resolved(t *testing.T, in component.Input) *recipe.Recipe {
	t.Helper()
	for range 10 {
		res, err := component.Make(in)
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Missing) == 0 {
			return res.Recipe
		}
		for _, m := range res.Missing {
			switch m.Kind {
			case component.MissingImage:
				in.Lock.Images[m.Key] = lock.Entry{Digest: "sha256:" + sum(m.Key)}
			case component.MissingDownload:
				in.Lock.Downloads[m.Key] = lock.Entry{Digest: "sha256:" + sum(m.Key)}
			case component.MissingBase:
				in.Lock.Debs[m.Key] = lock.PackageSet{Request: m.Request, Packages: debs(m.Platform.Arch, "base-files")}
			case component.MissingDebs:
				asked := res.Recipe.Stage(m.Stage).Steps[m.Step].(recipe.Apt).Packages
				in.Lock.Debs[m.Key] = lock.PackageSet{Request: m.Request, Packages: debs(m.Platform.Arch, append(slices.Clone(asked), "zlib1g")...)}
			}
		}
	}
	t.Fatal("the lock never satisfies the recipe")
	return nil
}

func debs(arch string, names ...string) []recipe.Deb {
	var out []recipe.Deb
	for _, n := range names {
		out = append(out, recipe.Deb{Name: n, Version: "1:2.3.4-5", Arch: arch, URL: "debian:pool/" + n + ".deb", SHA256: sum(n + arch), Size: 1})
	}
	return out
}
