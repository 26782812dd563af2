package recipe

import "testing"

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
