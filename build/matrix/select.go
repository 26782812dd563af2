package matrix

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// Select returns the targets whose name matches at least one of the globs
// (path.Match), in the order of targets; with no globs, all of them. A glob
// that matches nothing is an error.
func Select(targets []Target, globs []string) ([]Target, error) {
	if len(globs) == 0 {
		return targets, nil
	}
	wanted := map[string]bool{}
	for _, g := range globs {
		if err := match(targets, g, wanted); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(targets), func(t Target) bool { return !wanted[t.Name] }), nil
}

// match adds the names that one glob matches to wanted.
func match(targets []Target, glob string, wanted map[string]bool) error {
	found := false
	for _, t := range targets {
		ok, err := path.Match(glob, t.Name)
		if err != nil {
			return fmt.Errorf("%q is not a pattern of target names: %w; write it with *, ? and [a-z] as in a shell", glob, err)
		}
		if ok {
			wanted[t.Name], found = true, true
		}
	}
	if found {
		return nil
	}
	near := words.Nearest(glob, targetNames(targets))
	if strings.ContainsAny(glob, `*?[\`) {
		return fmt.Errorf("no target matches %q; one of the %d targets is %q", glob, len(targets), near)
	}
	return fmt.Errorf("there is no target %q; the nearest is %q", glob, near)
}

func targetNames(targets []Target) []string {
	out := make([]string, len(targets))
	for i, t := range targets {
		out[i] = t.Name
	}
	return out
}

// LowestCUDA returns the target with the lowest CUDA of those on the same Ubuntu of NVIDIA's bases that
// have the same CUDA major version and the same version of a component, preferably the plain one, not a
// variant; among equals the first. Pass every target of the file, not a selection; otherwise the result
// depends on what is being built. A target with a base of its own is the only one on that. Without such
// a target it returns the zero Target.
func LowestCUDA(targets []Target, like Target, component string) Target {
	if like.Base.Own {
		return like
	}
	var best Target
	for _, t := range targets {
		if t.Distro != "ubuntu" || t.Base.Own || t.Base.Debootstrap != nil || t.Release != like.Release ||
			t.CUDAMajor() == "" || t.CUDAMajor() != like.CUDAMajor() || t.Version(component) != like.Version(component) {
			continue
		}
		d := CompareVersions(t.CUDA, best.CUDA)
		if best.Name == "" || d < 0 || d == 0 && t.Variant == "" && best.Variant != "" {
			best = t
		}
	}
	return best
}
