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
