package lock

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/build/recipe"
)

func TestDiff(t *testing.T) {
	deb := func(name, version, sum string) recipe.Deb {
		return recipe.Deb{Name: name, Version: version, Arch: "amd64", SHA256: sum, URL: "debian:pool/main/s/source/" + name + ".deb"}
	}
	old, now := New(), New()
	old.Epoch, now.Epoch = 0, 86400
	old.Images = map[string]Entry{"a:1": {Digest: "1"}, "b:1": {From: "unresolved"}, "c:1": {Digest: "3"}, "same:1": {Digest: "4"}}
	now.Images = map[string]Entry{"a:1": {Digest: "2"}, "b:1": {Digest: "5"}, "d:1": {From: "unresolved"}, "same:1": {Digest: "4", From: "resolved"}}
	old.Downloads = map[string]Entry{"https://x": {Digest: "1"}}
	now.Downloads = map[string]Entry{"https://x": {Digest: "1", Size: 9}}
	old.Debs = map[string]PackageSet{
		"same/amd64": {Request: "r", Packages: []recipe.Deb{deb("z", "1", "s")}},
		"set/amd64":  {Request: "r", Packages: []recipe.Deb{deb("gone", "1", "s"), deb("kept", "1", "s"), deb("up", "1:9", "s"), deb("rebuilt", "7", "s")}},
		"asks/amd64": {Request: "r"},
		"flat/amd64": {Request: "r", Packages: []recipe.Deb{{Name: "cuda", Version: "1", Arch: "amd64", URL: "https://x/cuda_1.deb"}}},
	}
	now.Debs = map[string]PackageSet{
		"same/amd64": {Request: "r", Packages: []recipe.Deb{deb("z", "1", "s")}},
		"set/amd64":  {Request: "r", Packages: []recipe.Deb{deb("kept", "1", "s"), deb("new", "2", "s"), deb("rebuilt", "7", "S"), deb("up", "1:10", "t")}},
		"asks/amd64": {Request: "R"},
		"flat/amd64": {Request: "r", Packages: []recipe.Deb{{Name: "cuda", Version: "2", Arch: "amd64", URL: "https://x/cuda_2.deb"}}},
	}
	want := []Change{
		{Kind: "image", Key: "a:1", Old: "1", New: "2"},
		{Kind: "image", Key: "b:1", New: "5"},
		{Kind: "image", Key: "c:1", Old: "3", Removed: true},
		{Kind: "image", Key: "d:1", Added: true},
		{Kind: "debs", Key: "asks/amd64"},
		{Kind: "debs", Key: "flat/amd64", Packages: []packageChange{{Name: "cuda", Arch: "amd64", Old: "1", New: "2"}}},
		{Kind: "debs", Key: "set/amd64", Packages: []packageChange{
			{Name: "gone", Arch: "amd64", Source: "source", Old: "1"},
			{Name: "new", Arch: "amd64", Source: "source", New: "2"},
			{Name: "rebuilt", Arch: "amd64", Source: "source", Old: "7", New: "7"},
			{Name: "up", Arch: "amd64", Source: "source", Old: "1:9", New: "1:10"},
		}},
	}
	if diff := cmp.Diff(want, Diff(old, now)); diff != "" {
		t.Errorf("Diff (-want +got):\n%s", diff)
	}
	if got := Diff(old, old); got != nil {
		t.Errorf("Diff of a lock and itself: %v", got)
	}
	if n, m := len(Diff(New(), sample())), len(sample().Images)+len(sample().Downloads)+len(sample().Debs)+len(sample().Wheels); n != m {
		t.Errorf("%d changes from an empty lock; want %d", n, m)
	}
}
