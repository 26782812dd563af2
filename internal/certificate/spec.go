package certificate

import (
	"encoding/json"
	"slices"
)

// SpecPath is the path of the [ImageSpec] in every image that assay builds.
const SpecPath = "/opt/assay/image.json"

// BaseDir is where an image stores copies of records of the base that it was built on: dpkg's
// status, the loader's cache and, of a base that is an image of assay's, its [ImageSpec]. They
// distinguish what came with the base from what the build added. A gate takes the base's own records
// instead, together with the checksums of its packages' files.
const (
	BaseDir        = "/opt/assay/base"
	BaseStatusPath = BaseDir + "/dpkg-status"
	BaseCachePath  = BaseDir + "/ld.so.cache"
	BaseSpecPath   = BaseDir + "/image.json"
	BaseInfoDir    = BaseDir + "/info"
)

// A GateRequest is what the harness of a gate certifies. It runs in a container of its own, in which
// the image's root is the directory [GateRoot], to be read only, and the base's own records, if
// there are any, are in [GateRecords].
type GateRequest struct {
	Subjects []string        `json:"subjects"`          // NAME@sha256:…
	Platform string          `json:"platform"`          // of the image, "linux/amd64"
	Env      []string        `json:"env"`               // of the image, NAME=VALUE
	Spec     json.RawMessage `json:"spec,omitempty"`    // an [ImageSpec]; nil: no comparison
	Records  bool            `json:"records,omitempty"` // GateRecords holds records
}

// The directories of a gate's harness.
const (
	GateRoot    = "/image"
	GateRecords = "/records"
)

// A GateResult is what the harness of a gate answers.
type GateResult struct {
	Certificate json.RawMessage `json:"certificate"`
	Inventory   json.RawMessage `json:"inventory"`
}

// NoSpec, instead of the path of a declaration, says that the image's declaration is not to be
// trusted.
const NoSpec = "none"

// SpecVersion is the version of the ImageSpec format that this package writes.
const SpecVersion = 1

// An ImageSpec is what an image declares about itself. The build writes it to [SpecPath]; the
// suite "image" compares the image with it.
type ImageSpec struct {
	Version  int    `json:"version"`
	Target   string `json:"target"`   // name of the target in matrix.yaml
	Platform string `json:"platform"` // "linux/amd64"
	Recipe   string `json:"recipe"`   // SHA-256 of the recipe, hex

	Components []Component `json:"components"`
	Packages   []Package   `json:"packages,omitempty"`
	Absent     []Absent    `json:"absent,omitempty"`
}

// AssayBase returns the base of an image, REFERENCE@DIGEST, if it is an image of assay's that brings the
// harness, else "".
func (s *ImageSpec) AssayBase() string {
	for _, c := range s.Components {
		if c.Name == "harness" {
			return c.Base
		}
	}
	return ""
}

// Over returns the declaration of an image on a base that declares itself: what the base declares
// holds of the image, too, but for what was put in over it. Of a component that the image declares as
// its base's, the base's declaration counts, and the checks of both.
func (s *ImageSpec) Over(base *ImageSpec) *ImageSpec {
	out, from := *s, s.AssayBase()
	out.Components, out.Packages, out.Absent = slices.Clone(s.Components), slices.Clone(s.Packages), slices.Clone(s.Absent)
	for _, c := range base.Components {
		c.Base, c.Layers = from, nil
		i := slices.IndexFunc(s.Components, func(has Component) bool { return has.Name == c.Name })
		switch {
		case i < 0:
			out.Components = append(out.Components, c)
		case s.Components[i].Base != "":
			c.Checks = slices.Concat(s.Components[i].Checks, c.Checks)
			out.Components[i] = c
		}
	}
	for _, p := range base.Packages {
		if !slices.ContainsFunc(s.Packages, func(has Package) bool { return has.Name == p.Name && has.Arch == p.Arch }) {
			out.Packages = append(out.Packages, p)
		}
	}
	for _, a := range base.Absent {
		if !slices.ContainsFunc(s.Absent, func(has Absent) bool { return has.Library == a.Library }) {
			out.Absent = append(out.Absent, a)
		}
	}
	return &out
}

// A Component is one declared part of an image.
type Component struct {
	Name     string     `json:"name"`
	Version  string     `json:"version"`
	License  string     `json:"license"` // SPDX expression, or LicenseRef-…
	Homepage string     `json:"homepage,omitempty"`
	Base     string     `json:"base,omitempty"`   // the base image that has it, REFERENCE@DIGEST, as the matrix says; "" for what was put in
	Origin   *Download  `json:"origin,omitempty"` // where its definition is, as the matrix says, with the digest of its files; nil for assay's own
	Sources  []Download `json:"sources,omitempty"`
	Packages []string   `json:"packages,omitempty"` // Debian packages that it requests, without their dependencies
	Layers   []string   `json:"layers,omitempty"`   // its own layers, by their lines in the image's history
	Checks   []Check    `json:"checks,omitempty"`
}

// A Download is one file that a component was made from.
type Download struct {
	URL    string `json:"url"`
	Digest string `json:"digest"` // "sha256:…"
}

// A Package is a Debian package with its locked version.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"`
}

// Absent names a shared library that the image may lack because the container runtime provides it
// (the NVIDIA driver's libcuda.so.1). A load check that fails only for such libraries is skipped,
// never passed.
type Absent struct {
	Library string `json:"library"` // soname, exactly
	Because string `json:"because"`
}

// CheckKind says what a Check does.
type CheckKind string

const (
	// CheckCommand runs Command with the image's environment and requires exit status 0 and,
	// where Match is set, output that matches it.
	CheckCommand CheckKind = "command"
	// CheckFile requires Path to exist (as an executable where Mode says so).
	CheckFile CheckKind = "file"
	// CheckLoad requires the dynamic loader to load the library Path with every symbol bound.
	CheckLoad CheckKind = "load"
)

// A Check is one test that certification runs in the finished image to show that a component is
// present, loads, and has the declared version.
type Check struct {
	Name    string    `json:"name"`
	Kind    CheckKind `json:"kind"`
	Command []string  `json:"command,omitempty"` // argv, no shell
	Env     []string  `json:"env,omitempty"`     // added to the image's environment
	Match   string    `json:"match,omitempty"`   // RE2, over stdout and stderr together
	Path    string    `json:"path,omitempty"`
	Mode    uint32    `json:"mode,omitempty"`    // permission bits that must be set
	Seconds int       `json:"seconds,omitempty"` // time limit; 0 means the suite's default
}
