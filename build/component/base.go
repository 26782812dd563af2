package component

import (
	"cmp"

	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// baseOf returns the base of a target, pinned, for the platform.
func (b *builder) baseOf(t matrix.Target, p recipe.Platform) recipe.Source {
	return b.pinned(t.Base, t.Base.Image, p)
}

// compilersOf returns the system on which a target's parts are compiled: its base, unless that has
// another one for it.
func (b *builder) compilersOf(t matrix.Target, p recipe.Platform) recipe.Source {
	return b.pinned(t.Base, t.Base.Compilers(), p)
}

func (b *builder) pinned(base matrix.Base, image string, p recipe.Platform) recipe.Source {
	if base.Debootstrap != nil {
		return b.debootstrap(*base.Debootstrap, p)
	}
	e := b.Lock.Images[image]
	if e.Digest == "" || image == base.Image && base.OfAssay() && e.From != lock.Certified {
		b.lacks(Missing{Kind: MissingImage, Key: image, Platform: p})
	}
	return recipe.Source{Kind: recipe.FromImage, Ref: image, Digest: e.Digest}
}

// declareBase declares what the matrix says that the base image has. The gate checks that its paths
// exist; a version is what the matrix says.
func (b *builder) declareBase() {
	for _, h := range b.Target.Base.Has {
		base := b.baseOf(b.Target, b.Platform)
		c := certificate.Component{Name: h.Name, License: certificate.NoAssertion, Base: base.Ref + "@" + cmp.Or(base.Digest, "unresolved")}
		if d := b.definition(h.Name); d != nil {
			c.License, c.Homepage = cmp.Or(d.License(), c.License), d.Homepage()
		}
		if path := h.Path(); path != "" {
			c.Checks = []certificate.Check{{Name: "has " + path, Kind: certificate.CheckFile, Path: path}}
		} else {
			c.Version = h.Value
		}
		if h.Name == "cuda" {
			c.Version = b.Target.CUDA
		}
		b.declare(c)
	}
}

// ofBase mounts something that the base image has, where the matrix gives its path.
func (b *builder) ofBase(name, target string) (m recipe.Mount, ok bool) {
	path := b.Target.Base.Find(name).Path()
	return recipe.Mount{Target: target, From: b.baseOf(b.Target, b.Platform), Path: path}, path != ""
}

// compareLibc returns the step that refuses a base with an older C library than that of the image on
// which components are compiled: what they need of a newer one would be missing. The names of the
// images may say nothing of it.
func (b *builder) compareLibc() []recipe.Step {
	base := b.Target.Base
	if base.Build == "" {
		return nil
	}
	return []recipe.Step{recipe.Run{
		Title:  "compare the C library with that of " + base.Build,
		Mounts: []recipe.Mount{{Target: "/run/assay/build", From: b.compilersOf(b.Target, b.Platform)}},
		Script: `of() { dpkg-query --admindir="$1/var/lib/dpkg" -W -f '${Version}' "libc6:$(dpkg --print-architecture)"; }
here=$(of "") there=$(of /run/assay/build)
if dpkg --compare-versions "${there%%-*}" gt "${here%%-*}"; then
  echo "the C library of ` + base.Build + ` is $there, newer than $here, the one of ` + base.Image + `: what is compiled there does not run here; give an older image under build" >&2
  exit 1
fi
`,
	}}
}

// keepBase stores the base's own records in the image. NVIDIA's bases contain desktop programs
// without the libraries that these need, and the gate must distinguish those programs from what
// the build installed. The records are copied from the pinned base, so the image's steps cannot
// change them.
func (b *builder) keepBase() {
	base := b.baseOf(b.Target, b.Platform)
	b.copy(base, "/var/lib/dpkg/status", certificate.BaseStatusPath)
	b.copy(base, "/etc/ld.so.cache", certificate.BaseCachePath)
	if b.Target.Base.OfAssay() {
		b.copy(base, certificate.SpecPath, certificate.BaseSpecPath)
	}
}
