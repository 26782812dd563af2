package lock

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
)

// A Change is one entry that differs between two locks.
type Change struct {
	Kind string `json:"kind"` // image, download, debs or wheels
	Key  string `json:"key"`
	// Old and New are digests of an image or a download; "" for an unresolved or absent entry.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Added and Removed say that only one of the locks has the entry.
	Added   bool `json:"added,omitempty"`
	Removed bool `json:"removed,omitempty"`
	// Packages are the packages of a set that differ. It is empty if only the request differs.
	Packages []packageChange `json:"packages,omitempty"`
}

// A packageChange is one package that differs between two versions of a set. If Old and New are
// equal, the file's content differs.
type packageChange struct {
	Name string `json:"name"`
	Arch string `json:"arch"`
	// Source is the source package that it is built from; "" if its address in the archive does not
	// say so.
	Source string `json:"source,omitempty"`
	Old    string `json:"old,omitempty"` // version, "" if the old set lacks the package
	New    string `json:"new,omitempty"` // version, "" if the new set lacks the package
}

// Diff lists the entries that differ, in the order of the file. It compares what is pinned, not
// the sizes and sources that are recorded with it.
func Diff(old, now *Lock) []Change {
	out := slices.Concat(diffEntries("image", old.Images, now.Images), diffEntries("download", old.Downloads, now.Downloads))
	for _, key := range keys(old.Debs, now.Debs) {
		was, had := old.Debs[key]
		is, has := now.Debs[key]
		c := Change{Kind: "debs", Key: key, Added: !had, Removed: !has, Packages: diffPackages(was, is)}
		if had != has || was.Request != is.Request || len(c.Packages) > 0 {
			out = append(out, c)
		}
	}
	for _, key := range keys(old.Wheels, now.Wheels) {
		was, had := old.Wheels[key]
		is, has := now.Wheels[key]
		c := Change{Kind: "wheels", Key: key, Added: !had, Removed: !has, Packages: diffPackages(was.packages(), is.packages())}
		if had != has || was.Request != is.Request || len(c.Packages) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// packages returns the wheels as packages, to compare.
func (s WheelSet) packages() (out PackageSet) {
	for _, w := range s.Wheels {
		out.Packages = append(out.Packages, recipe.Deb{Name: w.Name, Version: w.Version, Arch: "wheel", URL: w.URL, SHA256: w.SHA256})
	}
	return out
}

func diffEntries(kind string, old, now map[string]Entry) []Change {
	var out []Change
	for _, key := range keys(old, now) {
		was, had := old[key]
		is, has := now[key]
		if had != has || was.Digest != is.Digest {
			out = append(out, Change{Kind: kind, Key: key, Old: was.Digest, New: is.Digest, Added: !had, Removed: !has})
		}
	}
	return out
}

func diffPackages(old, now PackageSet) []packageChange {
	type id struct{ name, arch string }
	type content struct {
		versions, sums []string
		source         string
	}
	index := func(s PackageSet) map[id]content {
		m := map[id]content{}
		for _, d := range s.Packages {
			k := id{d.Name, d.Arch}
			c := m[k]
			m[k] = content{append(c.versions, d.Version), append(c.sums, d.SHA256), source(d.URL)}
		}
		return m
	}
	was, is := index(old), index(now)
	var out []packageChange
	all := maps.Clone(was)
	maps.Copy(all, is)
	for k := range all {
		if !slices.Equal(was[k].sums, is[k].sums) || !slices.Equal(was[k].versions, is[k].versions) {
			out = append(out, packageChange{k.name, k.arch, cmp.Or(is[k].source, was[k].source), strings.Join(was[k].versions, ", "), strings.Join(is[k].versions, ", ")})
		}
	}
	slices.SortFunc(out, func(a, b packageChange) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch)) })
	return out
}

// source is the source package of a file in an archive: Debian's and Ubuntu's have a directory for
// each, pool/main/o/openssl/libssl3_….deb.
func source(url string) string {
	if dir, _ := path.Split(url); strings.Contains(dir, "pool/") {
		return path.Base(dir)
	}
	return ""
}

// keys returns the keys of both maps, sorted.
func keys[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
