package matrix

import "github.com/assay-hpc/assay/build/recipe"

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

// Base is what an image starts from; exactly one field is set.
type Base struct {
	Image       string       `json:"image,omitempty"` // full reference with tag, no digest
	Debootstrap *Debootstrap `json:"debootstrap,omitempty"`
}

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
