package recipe

import (
	"slices"
	"testing"
)

// TestStageHashes: a stage is known by what it is made of, not by its name, and
// by that of what it uses.
func TestStageHashes(t *testing.T) {
	make := func(arch, prefix, compiler string) map[string]string {
		return (&Recipe{Platform: Platform{OS: "linux", Arch: arch}, Stages: []Stage{
			{Name: prefix + "tools", From: Source{Kind: FromImage, Ref: "base"}, Steps: []Step{Run{Script: compiler}}},
			{Name: prefix + "nccl", From: Source{Kind: FromStage, Ref: prefix + "tools"}, Steps: []Step{Run{Script: "make"}}},
			{Name: prefix + "tests", From: Source{Kind: Scratch}, Steps: []Step{
				Run{Script: "make", Mounts: []Mount{{Target: "/nccl", From: Source{Kind: FromStage, Ref: prefix + "nccl"}}}},
				Copy{From: Source{Kind: FromStage, Ref: prefix + "nccl"}, Src: "/", Dst: "/"},
			}},
			{Name: "image", From: Source{Kind: Scratch}},
		}}).StageHashes()
	}
	a := make("amd64", "", "gcc 12")
	if len(a) != 3 || a["tools"] == a["nccl"] || a["image"] != "" {
		t.Errorf("StageHashes() = %v; want three, all different, without the image's", a)
	}
	for name, b := range map[string]struct {
		got  map[string]string
		same bool
	}{
		"other names":          {make("amd64", "x-", "gcc 12"), true},
		"another compiler":     {make("amd64", "x-", "gcc 13"), false},
		"another architecture": {make("arm64", "x-", "gcc 12"), false},
	} {
		for _, s := range []string{"tools", "nccl", "tests"} {
			if same := a[s] == b.got["x-"+s]; same != b.same {
				t.Errorf("%s: the hash of %s is the same: %v; want %v", name, s, same, b.same)
			}
		}
	}
}

// TestBelow: what a step does not need is no part of what lies below it.
func TestBelow(t *testing.T) {
	stage := func(name string) Source { return Source{Kind: FromStage, Ref: name} }
	r := &Recipe{Target: "x", Stages: []Stage{
		{Name: "base", From: Source{Kind: FromImage, Ref: "a"}},
		{Name: "other", From: Source{Kind: FromImage, Ref: "b"}},
		{Name: "mounted", From: stage("base")},
		{Name: "copied", From: stage("base")},
		{Name: "image", From: stage("base"), Steps: []Step{Run{Mounts: []Mount{{From: stage("mounted")}}}, Apt{}, Copy{From: stage("copied")}}},
		{Name: "last", From: stage("image")},
	}}
	for n, want := range [][]string{{"base", "image"}, {"base", "mounted", "image"}, {"base", "mounted", "image"}, {"base", "mounted", "copied", "image"}} {
		got := r.Below("image", n)
		var names []string
		for _, s := range got.Stages {
			names = append(names, s.Name)
		}
		if !slices.Equal(names, want) || len(got.Image().Steps) != n || got.Target != "x" {
			t.Errorf("below step %d: stages %q with %d steps; want %q", n, names, len(got.Image().Steps), want)
		}
	}
	if len(r.Stages) != 6 || len(r.Stage("image").Steps) != 3 {
		t.Error("the recipe itself is cut")
	}
}

// TestStepHashes: a step is known by what lies below it, a copy by what it copies
// alone; a native stage by the builder's architecture instead of the image's.
func TestStepHashes(t *testing.T) {
	native := Platform{OS: "linux", Arch: "amd64"}
	hashes := func(arch, prefix, first string) map[string]Hashes {
		return (&Recipe{Platform: Platform{OS: "linux", Arch: arch}, Stages: []Stage{
			{Name: prefix + "go", Native: true, From: Source{Kind: FromImage, Ref: "base"}, Steps: []Step{Run{Script: "unpack"}}},
			{Name: prefix + "image", From: Source{Kind: FromImage, Ref: "base"}, Steps: []Step{
				Run{Script: first},
				Run{Script: "install", Mounts: []Mount{{From: Source{Kind: FromStage, Ref: prefix + "go"}}}},
				Copy{From: Source{Kind: FromStage, Ref: prefix + "go"}, Src: "/go", Dst: "/go"},
			}},
		}}).Hashes(native)
	}
	a := hashes("amd64", "", "one")
	for _, tt := range []struct {
		name        string
		b           map[string]Hashes
		goSame      bool
		image       [3]bool
		imageIsSame bool
	}{
		{"other names", hashes("amd64", "x-", "one"), true, [3]bool{true, true, true}, true},
		{"another first step", hashes("amd64", "x-", "two"), true, [3]bool{false, false, true}, false},
		{"another architecture", hashes("arm64", "x-", "one"), true, [3]bool{false, false, false}, false},
	} {
		if same := a["go"].Stage == tt.b["x-go"].Stage; same != tt.goSame {
			t.Errorf("%s: the native stage is the same: %v; want %v", tt.name, same, tt.goSame)
		}
		if same := a["image"].Stage == tt.b["x-image"].Stage; same != tt.imageIsSame {
			t.Errorf("%s: the image is the same: %v; want %v", tt.name, same, tt.imageIsSame)
		}
		for i, want := range tt.image {
			if same := a["image"].Steps[i] == tt.b["x-image"].Steps[i]; same != want {
				t.Errorf("%s: step %d is the same: %v; want %v", tt.name, i, same, want)
			}
		}
	}
}
