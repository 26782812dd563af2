package recipe

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/golden"
)

func sum(pair string) string { return strings.Repeat(pair, 32) }

// sample is a recipe in which no field is zero.
func sample() *Recipe {
	url := "https://downloads.example.org/tool-1.2.tar.gz"
	return &Recipe{
		Target: "sample", Whole: "whole",
		Platform: Platform{OS: "linux", Arch: "arm64"},
		Stages: []Stage{
			{
				Name: "tool", Native: true, From: Source{Kind: FromImage, Ref: "registry.example.org/base:1", Digest: "sha256:" + sum("11")},
				Env: []Var{{Name: "CC", Value: "gcc"}},
				Steps: []Step{
					Run{
						Title: "compile", Script: "make\n", Pieces: []Piece{{"tool/build.sh", "make\n"}}, Env: []Var{{Name: "V", Value: "1"}}, Network: true,
						Mounts: []Mount{{Target: "/run/assay/tool.tar.gz", From: Source{Kind: FromURL, Ref: url, Digest: "sha256:" + sum("22")}, Path: "sub"}},
					},
				},
			},
			{
				Name: "image", Native: true, From: Source{Kind: FromLayout, Ref: "base-a-b", Digest: "sha256:" + sum("33")},
				Env: []Var{{Name: "A", Value: "B"}},
				Steps: []Step{
					apt(),
					Copy{From: Source{Kind: FromStage, Ref: "tool", Digest: "sha256:" + sum("44")}, Src: "/out/tool", Dst: "/opt/tool"},
					File{Path: "/etc/tool.conf", Mode: 0o644, Content: "x = $y\n"},
					Symlink{Path: "/usr/bin/tool", Target: "/opt/tool"},
				},
			},
		},
		Config: Config{
			Env: []Var{{Name: "PATH", Value: "/opt:${PATH}"}}, Labels: map[string]string{"a": "b"}, WorkingDir: "/w",
			Entrypoint: []string{"/e"}, Cmd: []string{"c"},
		},
		Components: []certificate.Component{{
			Name: "tool", Version: "1.2", License: "MIT", Homepage: "https://tool.example.org", Base: "registry.example/base:1@sha256:" + sum("24"),
			Origin:   &certificate.Download{URL: "./components/tool", Digest: "sha256:" + sum("23")},
			Sources:  []certificate.Download{{URL: url, Digest: "sha256:" + sum("22")}},
			Packages: []string{"tool-bin"}, Layers: []string{"copy tool to /"},
			Checks: []certificate.Check{{
				Name: "version", Kind: certificate.CheckCommand, Command: []string{"tool", "-V"}, Env: []string{"A=b"}, Match: "1.2", Path: "/opt/tool", Mode: 0o111, Seconds: 3,
			}},
		}},
		Absent: []certificate.Absent{{Library: "libcuda.so.1", Because: "the driver brings it"}},
	}
}

func apt() Apt {
	return Apt{
		Title: "install", Set: "sample/arm64", Packages: []string{"openssh-server", "hwloc-nox"}, Upgrade: true,
		Debs: []Deb{
			{Name: "hwloc-nox", Version: "2.9.0-1", Arch: "arm64", URL: "debian:pool/main/h/hwloc/hwloc-nox_2.9.0-1_arm64.deb", SHA256: sum("aa"), Size: 10},
			{Name: "libc6", Version: "2.36-9+deb12u4", Arch: "arm64", URL: "debian:pool/main/g/glibc/libc6.deb", SHA256: sum("bb"), Size: 20},
			{Name: "openssh-server", Version: "1:9.2p1-2+deb12u3", Arch: "arm64", URL: "debian:pool/main/o/openssh/openssh-server.deb", SHA256: sum("cc"), Size: 30},
		},
	}
}

// A visitor is shown every field below a value; set puts a changed one in its
// place.
type visitor func(path string, v reflect.Value)

// walk visits every leaf below an addressable value, and every list and map
// itself. What is in an interface is copied out and put back.
func walk(path string, v reflect.Value, visit visitor) {
	switch v.Kind() {
	case reflect.Pointer:
		walk(path, v.Elem(), visit)
	case reflect.Interface:
		in := reflect.New(v.Elem().Type()).Elem()
		in.Set(v.Elem())
		walk(fmt.Sprintf("%s(%s)", path, in.Type().Name()), in, visit)
		v.Set(in)
	case reflect.Struct:
		for i := range v.NumField() {
			walk(path+"."+v.Type().Field(i).Name, v.Field(i), visit)
		}
	case reflect.Slice:
		visit(path, v)
		for i := range v.Len() {
			walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i), visit)
		}
	default:
		visit(path, v)
	}
}

// change gives a field another value of its type.
func change(t *testing.T, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint32:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice: // one element less
		v.Set(v.Slice(0, v.Len()-1))
	case reflect.Map:
		v.SetMapIndex(reflect.ValueOf("another"), reflect.ValueOf("one"))
	default:
		t.Fatalf("%s: a %s; teach this test about it", path, v.Kind())
	}
}

// unhashed are the fields that the hash leaves out: where in the lock a package
// set stands, which does not go into the image; the hash of all platforms'
// recipes, which is made of this one; and what a script's parts are called.
var unhashed = map[string]bool{"Set": true, "Whole": true, "Pieces": true, "File": true, "Text": true}

func TestHashCoversEveryField(t *testing.T) {
	want := sample().Hash()
	if again := sample().Hash(); again != want {
		t.Fatalf("Hash() = %s, then %s", want, again)
	}
	var paths []string
	walk("Recipe", reflect.ValueOf(sample()), func(path string, v reflect.Value) {
		if v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
			t.Errorf("%s is zero in the sample; give it a value, or this test does not cover it", path)
		}
		paths = append(paths, path)
	})
	seen := map[string]string{want: "the sample"}
	for _, p := range paths {
		r := sample()
		walk("Recipe", reflect.ValueOf(r), func(path string, v reflect.Value) {
			if path == p {
				change(t, path, v)
			}
		})
		got := r.Hash()
		if unhashed[p[strings.LastIndex(p, ".")+1:]] {
			if got != want {
				t.Errorf("changing %s changes the hash, and should not", p)
			}
			continue
		}
		if who, ok := seen[got]; ok {
			t.Errorf("changing %s gives the hash of %s", p, who)
		}
		seen[got] = "the sample with another " + p
	}
	if len(paths) < 80 {
		t.Errorf("only %d fields were changed", len(paths))
	}
}

func TestHashIsOfTheWhole(t *testing.T) {
	want := sample().Hash()
	for name, change := range map[string]func(*Recipe){
		"two steps in the other order": func(r *Recipe) { s := r.Stages[1].Steps; s[2], s[3] = s[3], s[2] },
		"a step in another stage": func(r *Recipe) {
			last := len(r.Stages[1].Steps) - 1
			r.Stages[0].Steps = append(r.Stages[0].Steps, r.Stages[1].Steps[last])
			r.Stages[1].Steps = r.Stages[1].Steps[:last]
		},
		"a stage split in two": func(r *Recipe) {
			s := &r.Stages[1]
			r.Stages = append(r.Stages, Stage{Name: "rest", From: Source{Kind: FromStage, Ref: "image"}, Steps: s.Steps[2:]})
			r.Stages[1].Steps = s.Steps[:2]
		},
		"the same words in other fields": func(r *Recipe) {
			r.Stages[1].Steps[3] = Symlink{Path: "/opt/tool", Target: "/usr/bin/tool"}
		},
		"a symlink instead of a file": func(r *Recipe) { r.Stages[1].Steps[2] = Symlink{Path: "/etc/tool.conf", Target: "x = $y\n"} },
	} {
		r := sample()
		change(r)
		if r.Hash() == want {
			t.Errorf("%s: the hash is the same", name)
		}
	}
}

// TestHashGolden holds the hash still: it is a part of every tag, so a change
// renames every image.
func TestHashGolden(t *testing.T) {
	r := sample()
	golden.Check(t, "hash.golden", fmt.Sprintf("recipe  %s\nrequest %s\n", r.Hash(), apt().RequestHash(r.Stages[1])))
}

func TestRequestHash(t *testing.T) {
	stage := func() Stage { s := sample().Stages[0]; return s }
	want := apt().RequestHash(stage())
	same := map[string]func(*Apt, *Stage){
		"the stage's name": func(_ *Apt, s *Stage) { s.Name = "other" },
		"the answer":       func(a *Apt, _ *Stage) { a.Debs = nil },
		"the title":        func(a *Apt, _ *Stage) { a.Title = "other" },
		"the set's name":   func(a *Apt, _ *Stage) { a.Set = "other" },
	}
	other := map[string]func(*Apt, *Stage){
		"the packages":        func(a *Apt, _ *Stage) { a.Packages = a.Packages[:1] },
		"upgrade":             func(a *Apt, _ *Stage) { a.Upgrade = false },
		"the base":            func(_ *Apt, s *Stage) { s.From.Digest = "sha256:" + sum("99") },
		"the steps before":    func(_ *Apt, s *Stage) { s.Steps = nil },
		"native":              func(_ *Apt, s *Stage) { s.Native = false },
		"the stage's own env": func(_ *Apt, s *Stage) { s.Env = nil },
	}
	for name, change := range same {
		a, s := apt(), stage()
		change(&a, &s)
		if got := a.RequestHash(s); got != want {
			t.Errorf("another value of %s makes another request", name)
		}
	}
	for name, change := range other {
		a, s := apt(), stage()
		change(&a, &s)
		if got := a.RequestHash(s); got == want {
			t.Errorf("another value of %s makes the same request", name)
		}
	}
	// A stage on another stage: what that one has is what apt finds installed.
	below := stage()
	on := apt().RequestHash(stage(), below)
	below.Steps = nil
	if on == want || on == apt().RequestHash(stage(), below) {
		t.Error("another stage below makes the same request")
	}
}

func TestValidate(t *testing.T) {
	if err := sample().Validate(); err != nil {
		t.Errorf("Validate(sample) = %v", err)
	}
	stage := func(ref string) Source { return Source{Kind: FromStage, Ref: ref} }
	for _, tt := range []struct {
		name   string
		change func(*Recipe)
		want   string
	}{
		{"no stages", func(r *Recipe) { r.Stages = nil }, `recipe sample: no stages`},
		{"two of a name", func(r *Recipe) { r.Stages[1].Name = "tool" }, `recipe sample: two stages are called "tool"`},
		{"from a later one", func(r *Recipe) { r.Stages[0].From = stage("image") }, `recipe sample: stage "tool" refers to "image", which is not an earlier stage`},
		{"from itself", func(r *Recipe) { r.Stages[1].From = stage("image") }, `recipe sample: stage "image" refers to "image", which is not an earlier stage`},
		{"copy from nowhere", func(r *Recipe) { r.Stages[1].Steps = []Step{Copy{From: stage("gone")}} }, `recipe sample: stage "image" refers to "gone", which is not an earlier stage`},
		{"mount from nowhere", func(r *Recipe) { r.Stages[1].Steps = []Step{Run{Mounts: []Mount{{From: stage("gone")}}}} }, `recipe sample: stage "image" refers to "gone", which is not an earlier stage`},
		{"a script of other pieces", func(r *Recipe) {
			r.Stages[0].Steps = []Step{Run{Title: "make", Script: "make\n", Pieces: []Piece{{"tool/build.sh", "make all\n"}}}}
		}, `recipe sample: stage "tool": the script of "make" is not its pieces`},
		{"content that JSON cannot say", func(r *Recipe) { r.Stages[1].Steps = []Step{File{Path: "/a", Content: "\xff"}} }, `recipe sample: stage "image": file /a is not UTF-8 text, which is all that a recipe holds`},
	} {
		r := sample()
		tt.change(r)
		if err := r.Validate(); err == nil || err.Error() != tt.want {
			t.Errorf("%s: Validate() = %v; want %s", tt.name, err, tt.want)
		}
	}
}

func TestPlatform(t *testing.T) {
	for _, tt := range []struct {
		in, machine, multiarch, err string
	}{
		{in: "linux/amd64", machine: "x86_64", multiarch: "x86_64-linux-gnu"},
		{in: "linux/arm64", machine: "aarch64", multiarch: "aarch64-linux-gnu"},
		{in: "amd64", err: `platform "amd64" is not one of linux/amd64, linux/arm64`},
		{in: "linux/arm64/v8", err: `platform "linux/arm64/v8" is not one of linux/amd64, linux/arm64`},
		{in: "windows/amd64", err: `platform "windows/amd64" is not one of linux/amd64, linux/arm64`},
		{in: "", err: `platform "" is not one of linux/amd64, linux/arm64`},
	} {
		p, err := ParsePlatform(tt.in)
		if tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("ParsePlatform(%q) = %v, %v; want %s", tt.in, p, err, tt.err)
			}
			continue
		}
		if err != nil || p.String() != tt.in || p.Machine() != tt.machine || p.Multiarch() != tt.multiarch {
			t.Errorf("ParsePlatform(%q) = %v (%s, %s), %v; want %s, %s", tt.in, p, p.Machine(), p.Multiarch(), err, tt.machine, tt.multiarch)
		}
	}
}

func TestSourceName(t *testing.T) {
	for in, want := range map[string]string{
		"https://a.example.org/b/c.tar.gz": "c.tar.gz",
		"debian:pool/a.deb":                "a.deb",
		"plain":                            "plain",
	} {
		if got := (Source{Ref: in}).Name(); got != want {
			t.Errorf("Source{%q}.Name() = %q; want %q", in, got, want)
		}
	}
}

func TestStage(t *testing.T) {
	r := sample()
	if r.Image().Name != "image" || r.Stage("tool") != &r.Stages[0] || r.Stage("gone") != nil {
		t.Errorf("Image() = %q, Stage(tool) = %p, Stage(gone) = %p", r.Image().Name, r.Stage("tool"), r.Stage("gone"))
	}
}

func TestSpec(t *testing.T) {
	r := sample()
	got := r.Spec()
	want := certificate.ImageSpec{
		Version: certificate.SpecVersion, Target: "sample", Platform: "linux/arm64", Recipe: r.Declared(), Components: r.Components, Absent: r.Absent,
		Packages: []certificate.Package{
			{Name: "hwloc-nox", Version: "2.9.0-1", Arch: "arm64"},
			{Name: "libc6", Version: "2.36-9+deb12u4", Arch: "arm64"},
			{Name: "openssh-server", Version: "1:9.2p1-2+deb12u3", Arch: "arm64"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Spec() (-want +got):\n%s", diff)
	}
}
