// Package lock represents matrix.lock: the digest of every base image and download and the exact
// Debian packages of every package set. It reads and writes the file; build/driver resolves what
// is not locked yet.
package lock

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/infile"
)

// A Lock is the content of matrix.lock.
type Lock struct {
	Version   int                   `yaml:"version"`
	Epoch     int64                 `yaml:"epoch"`               // SOURCE_DATE_EPOCH of images built from this lock
	Images    map[string]Entry      `yaml:"images,omitempty"`    // by reference with tag
	Downloads map[string]Entry      `yaml:"downloads,omitempty"` // by URL
	Debs      map[string]PackageSet `yaml:"debs,omitempty"`      // by set key, see SetKey
	Wheels    map[string]WheelSet   `yaml:"wheels,omitempty"`    // by set key
}

// Certified, in place of "resolved", says of a base that is an image of assay's that its certificate
// was verified.
const Certified = "certified"

// An Entry is one pinned image or download. Digest is "" if it is unresolved: a digest is never
// invented.
type Entry struct {
	Digest string `yaml:"digest,omitempty"` // "sha256:…"
	Size   int64  `yaml:"size,omitempty"`   // of a download, in bytes; 0 if not recorded
	From   string `yaml:"from,omitempty"`   // the source that published it, "resolved", or [Certified]
}

// A PackageSet is the closure of one apt installation on one base.
type PackageSet struct {
	Request  string       `yaml:"request"` // hash of what was requested: if it changes, the set is unresolved again
	Packages []recipe.Deb `yaml:"packages,omitempty"`
	// Installed are the requested packages that the stage has already, with their versions.
	Installed map[string]string `yaml:"installed,omitempty"`
}

// Resolved reports whether the set is known. It is without packages if the stage has all of them.
func (s PackageSet) Resolved() bool { return len(s.Packages)+len(s.Installed) > 0 }

// A WheelSet is what pip installs for a file of requirements on one base. Wheels is empty if it is
// unresolved.
type WheelSet struct {
	Request string         `yaml:"request"` // as in PackageSet
	Wheels  []recipe.Wheel `yaml:"wheels,omitempty"`
}

// Digest identifies the set's content: "sha256:…", "" for an unresolved one.
func (s PackageSet) Digest() string {
	if len(s.Packages) == 0 {
		return ""
	}
	h := sha256.New()
	for _, d := range s.Packages {
		fmt.Fprintln(h, d.Name, d.Version, d.Arch, d.SHA256)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// New returns an empty lock.
func New() *Lock {
	return &Lock{Version: 1, Images: map[string]Entry{}, Downloads: map[string]Entry{}, Debs: map[string]PackageSet{}, Wheels: map[string]WheelSet{}}
}

// MaxSize is the largest lock file that is read, in bytes: forty times the one of this project.
const MaxSize = 16 << 20

// Read reads a lock file; name is for error messages.
func Read(name string, r io.Reader) (*Lock, error) {
	text, err := infile.ReadAll(r, name, MaxSize)
	if err != nil {
		return nil, err
	}
	l := New()
	// Check the version first: another format has other keys. Other errors are found below.
	if err := yaml.Unmarshal(text, &struct{ Version *int }{&l.Version}); err == nil && l.Version != 1 {
		return nil, fmt.Errorf("%s: version %d is not 1; this assay does not know the format", name, l.Version)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(l); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w; remove the file and run \"assay lock\", which writes it anew", name, err)
	}
	if err := dec.Decode(&yaml.Node{}); err != io.EOF {
		return nil, fmt.Errorf("%s: there is more behind the lock's end; remove the file and run \"assay lock\", which writes it anew", name)
	}
	if l.Version != 1 {
		return nil, fmt.Errorf("%s: version %d is not 1; this assay does not know the format", name, l.Version)
	}
	// "images:" with nothing below it is null.
	l.Images, l.Downloads, l.Debs, l.Wheels = made(l.Images), made(l.Downloads), made(l.Debs), made(l.Wheels)
	if err := l.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w; correct the entry, or remove it and run \"assay lock\"", name, err)
	}
	return l, nil
}

func made[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// Clone returns a copy with entries that can be changed independently.
func (l *Lock) Clone() *Lock {
	c := *l
	c.Images, c.Downloads, c.Debs, c.Wheels = maps.Clone(l.Images), maps.Clone(l.Downloads), maps.Clone(l.Debs), maps.Clone(l.Wheels)
	return &c
}

// Keep fills unresolved entries from an older lock.
func (l *Lock) Keep(old *Lock) {
	for ref, e := range l.Images {
		if was := old.Images[ref]; e.Digest == "" && was.Digest != "" {
			l.Images[ref] = was
		}
	}
	for url, e := range l.Downloads {
		if was := old.Downloads[url]; e.Digest == "" && was.Digest != "" {
			l.Downloads[url] = was
		}
	}
	for key, set := range l.Debs {
		if was := old.Debs[key]; !set.Resolved() && was.Resolved() {
			l.Debs[key] = was
		}
	}
	for key, set := range l.Wheels {
		if was := old.Wheels[key]; len(set.Wheels) == 0 && len(was.Wheels) > 0 {
			l.Wheels[key] = was
		}
	}
}

// Has reports whether there is an entry of a key that pins something.
func (l *Lock) Has(key string) bool {
	return l.Images[key].Digest != "" || l.Downloads[key].Digest != "" || l.Debs[key].Resolved() || len(l.Wheels[key].Wheels) > 0
}

// Keys returns the keys of all entries, in the file's order.
func (l *Lock) Keys() []string {
	return slices.Concat(slices.Sorted(maps.Keys(l.Images)), slices.Sorted(maps.Keys(l.Downloads)), slices.Sorted(maps.Keys(l.Debs)), slices.Sorted(maps.Keys(l.Wheels)))
}

// Delete removes the entries whose key is one of those to drop.
func (l *Lock) Delete(drop func(key string) bool) {
	maps.DeleteFunc(l.Images, func(k string, _ Entry) bool { return drop(k) })
	maps.DeleteFunc(l.Downloads, func(k string, _ Entry) bool { return drop(k) })
	maps.DeleteFunc(l.Debs, func(k string, _ PackageSet) bool { return drop(k) })
	maps.DeleteFunc(l.Wheels, func(k string, _ WheelSet) bool { return drop(k) })
}

// Marshal returns the canonical text: sorted, one entry per line.
func (l *Lock) Marshal() []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, "# Written by \"assay lock\"; do not edit. An entry without a digest is unresolved:\n# \"assay lock\" on a machine that reaches its source fills it in.\nversion: 1\n")
	fmt.Fprintf(&b, "epoch: %d # %s\n", l.Epoch, time.Unix(l.Epoch, 0).UTC().Format(time.DateOnly))
	entries := func(title string, m map[string]Entry) {
		fmt.Fprintf(&b, "%s:\n", title)
		for _, k := range slices.Sorted(maps.Keys(m)) {
			e := m[k]
			fmt.Fprintf(&b, "  %s: {", scalar(k))
			if e.Digest != "" {
				fmt.Fprintf(&b, "digest: %q, ", e.Digest)
			}
			if e.Size != 0 {
				fmt.Fprintf(&b, "size: %d, ", e.Size)
			}
			fmt.Fprintf(&b, "from: %q}\n", e.From)
		}
	}
	entries("images", l.Images)
	entries("downloads", l.Downloads)
	fmt.Fprint(&b, "debs:\n")
	for _, k := range slices.Sorted(maps.Keys(l.Debs)) {
		s := l.Debs[k]
		fmt.Fprintf(&b, "  %s:\n    request: %q\n", scalar(k), s.Request)
		if len(s.Installed) > 0 {
			fmt.Fprint(&b, "    installed:\n")
		}
		for _, name := range slices.Sorted(maps.Keys(s.Installed)) {
			fmt.Fprintf(&b, "      %s: %q\n", scalar(name), s.Installed[name])
		}
		if len(s.Packages) > 0 {
			fmt.Fprint(&b, "    packages:\n")
		}
		for _, d := range s.Packages {
			fmt.Fprintf(&b, "      - {name: %s, version: %q, arch: %s, url: %q, sha256: %q, size: %d}\n", scalar(d.Name), d.Version, scalar(d.Arch), d.URL, d.SHA256, d.Size)
		}
	}
	if len(l.Wheels) > 0 {
		fmt.Fprint(&b, "wheels:\n")
	}
	for _, k := range slices.Sorted(maps.Keys(l.Wheels)) {
		s := l.Wheels[k]
		fmt.Fprintf(&b, "  %s:\n    request: %q\n", scalar(k), s.Request)
		if len(s.Wheels) > 0 {
			fmt.Fprint(&b, "    wheels:\n")
		}
		for _, w := range s.Wheels {
			fmt.Fprintf(&b, "      - {name: %s, version: %q, url: %q, sha256: %q}\n", scalar(w.Name), w.Version, w.URL, w.SHA256)
		}
	}
	return b.Bytes()
}

// plain matches strings that YAML reads as strings without quotes in any position.
var plain = regexp.MustCompile(`^[a-z][a-z0-9+._/@:?#&%~=-]*[a-z0-9]$`)

func scalar(s string) string {
	switch {
	case !plain.MatchString(s), s == "null", s == "true", s == "false":
		return strconv.Quote(s)
	}
	return s
}
