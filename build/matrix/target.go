package matrix

import (
	"cmp"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
)

// A Target is one image of the matrix, for all its platforms.
type Target struct {
	Name    string `json:"target"`            // unique: "cuda12.9.1-ubuntu22.04", "fabric-debian12"
	Distro  string `json:"distro"`            // "ubuntu" or "debian"
	Release string `json:"release"`           // "22.04", "12"
	CUDA    string `json:"cuda,omitempty"`    // "12.9.1"; "" for an image without CUDA
	Variant string `json:"variant,omitempty"` // "efa"; "" for the plain image

	Platforms    []recipe.Platform `json:"platforms"`
	Base         Base              `json:"base"`
	Components   []Component       `json:"components"`             // in the order of the file
	Capabilities []string          `json:"capabilities,omitempty"` // CUDA architectures to compile for, ascending: "8.0"

	// Tag is the tag with everything except "{recipe}" filled in; Moving are the tags without the
	// recipe's hash.
	Tag    string   `json:"tag"`
	Moving []string `json:"moving,omitempty"`
}

// Base is what an image starts from: an image or a debootstrap.
type Base struct {
	Image       string       `json:"image,omitempty"` // full reference with tag, no digest
	Build       string       `json:"build,omitempty"` // the image on which components are compiled; "" for Image itself
	Has         []Has        `json:"has,omitempty"`   // what the image has, in the order of the file
	Debootstrap *Debootstrap `json:"debootstrap,omitempty"`

	// Own says that the image is one target's own: only what goes into that is compiled on it. Rows
	// compile on each other's.
	Own bool `json:"-"`
}

// Has is something that a base image has already.
type Has struct {
	Name  string `json:"name"`  // a component's, or "cuda" or "mpi"
	Value string `json:"value"` // its version, or the path of it
}

// Path returns the path in the base, "" where the matrix gives a version.
func (h Has) Path() string {
	if strings.HasPrefix(h.Value, "/") {
		return h.Value
	}
	return ""
}

// Compilers returns the reference of the image on which components are compiled.
func (b Base) Compilers() string { return cmp.Or(b.Build, b.Image) }

// Find returns what the base image has of that name; its Value is "" if the matrix says nothing of it.
func (b Base) Find(name string) Has {
	for _, h := range b.Has {
		if h.Name == name {
			return h
		}
	}
	return Has{}
}

// OfAssay reports whether the base is an image of assay's, which brings the harness.
func (b Base) OfAssay() bool { return b.Find(harnessName).Name != "" }

// Debootstrap is a base made with debootstrap from a Debian archive.
type Debootstrap struct {
	Suite   string `json:"suite"`   // "bookworm"
	Variant string `json:"variant"` // "minbase"
}

// A Component is one part of a target, at one version.
type Component struct {
	Name    string `json:"name"`    // "nccl"; build/component knows how to make it
	Version string `json:"version"` // "2.27.6-1"; "distro" if the distribution decides
}

// Version returns the version of the named component, "" if the target has none.
func (t Target) Version(component string) string {
	for _, c := range t.Components {
		if c.Name == component {
			return c.Version
		}
	}
	return ""
}
