package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/inspect"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/provenance"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/sbom"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/oci"
)

// certifySuffix marks the images, and their tags, that run "harness certify".
const certifySuffix = "-certify"

// assemble attaches the documents and creates the multi-arch indexes of the target and of its
// certifier, once every platform has passed.
func (b *build) assemble(t matrix.Target, tr *TargetResult) {
	tr.notDone = true
	for _, img := range tr.Images {
		if img.err != nil {
			var e *exit.Error
			tr.Failed, tr.notDone = true, tr.notDone && errors.As(img.err, &e) && e.Status == exit.NotDone
			tr.Error = strings.TrimSpace(tr.Error + "\n" + img.Error)
		}
	}
	if tr.Failed {
		return
	}
	h, err := b.index(t, t.Name, tr.Images, func(r record) string { return r.Digest })
	if err == nil {
		tr.Digest = h.String()
		_, err = b.index(t, t.Name+certifySuffix, tr.Images, func(r record) string { return r.Certifier })
	}
	if err == nil {
		err = b.remember(tr)
	}
	if err != nil {
		tr.Failed, tr.Error, tr.notDone = true, err.Error(), false
	}
}

// index attaches documents to one image of each platform, then puts the images under a name:
// everything that the name promises exists before the name does.
func (b *build) index(t matrix.Target, name string, results []ImageResult, which func(record) string) (v1.Hash, error) {
	var images []oci.PlatformImage
	for _, img := range results {
		p, err := recipe.ParsePlatform(img.Platform)
		if err != nil {
			return v1.Hash{}, err
		}
		digest := which(img.rec)
		if err := b.attach(t, p, img.rec, digest); err != nil {
			return v1.Hash{}, err
		}
		images = append(images, oci.PlatformImage{Platform: v1.Platform{OS: p.OS, Architecture: p.Arch}, Digest: digest})
	}
	return b.layout.Assemble(name, images, nil)
}

// attach adds the image's documents as referrers of its manifest.
func (b *build) attach(t matrix.Target, p recipe.Platform, rec record, digest string) error {
	// As in the hash, the builder's own platform is left out: the documents describe the content
	// of the image.
	mk, err := b.Recipe(t, p, p)
	if err != nil {
		return err
	}
	docs, err := b.documents(t, p, rec, digest, mk.Recipe)
	if err != nil {
		return err
	}
	subject, err := v1.NewHash(digest)
	if err != nil {
		return err
	}
	for _, d := range docs {
		a, err := inspect.Artifact(d, b.o.SignKey)
		if err != nil {
			return err
		}
		if _, err := b.layout.Attach(subject, a); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) documents(t matrix.Target, p recipe.Platform, rec record, digest string, r *recipe.Recipe) ([][]byte, error) {
	inv, err := certificate.ParseInventory(rec.Inventory)
	if err != nil {
		return nil, err
	}
	var base []recipe.Deb
	if d := t.Base.Debootstrap; d != nil {
		base = b.Lock.Debs[component.BaseKey(*d, p)].Packages
	}
	debs := slices.Clone(base)
	for _, st := range r.Image().Steps {
		if a, ok := st.(recipe.Apt); ok {
			debs = append(debs, a.Debs...)
		}
	}
	bom, err := sbom.Statement(sbom.Image{
		Target: t.Name, Digest: digest, Platform: p, Distro: t.Distro, Release: t.Release, Tool: "assay-" + b.Version, Created: b.Epoch(),
		Packages: inv.Packages, Debs: debs, Components: withBaseComponents(r.Components, inv.Components),
	})
	if err != nil {
		return nil, err
	}
	prov, err := provenance.Statement(provenance.Build{
		Recipe: r, Digest: digest, MatrixFile: b.File.Name, MatrixDigest: sha256Of(b.text), LockDigest: sha256Of(b.Lock.Marshal()),
		Epoch: b.Lock.Epoch, More: base, Builder: provenance.Builder{ID: builderID()}, InvocationID: invocationID(), Started: rec.Started, Finished: rec.Finished,
	})
	return [][]byte{rec.Certificate, bom, prov}, err
}

// withBaseComponents returns a recipe's components together with those that its base declares, which count if both do.
func withBaseComponents(own, base []certificate.Component) []certificate.Component {
	return slices.Concat(slices.DeleteFunc(slices.Clone(own), func(c certificate.Component) bool {
		return slices.ContainsFunc(base, func(b certificate.Component) bool { return b.Name == c.Name })
	}), base)
}

// builderID identifies what ran the build: the workflow on GitHub, this program elsewhere.
func builderID() string {
	if ref := os.Getenv("GITHUB_WORKFLOW_REF"); ref != "" {
		return "https://github.com/" + ref
	}
	return "https://github.com/assay-hpc/assay/local-build"
}

func invocationID() string {
	if id := os.Getenv("GITHUB_RUN_ID"); id != "" {
		return "https://github.com/" + os.Getenv("GITHUB_REPOSITORY") + "/actions/runs/" + id
	}
	return ""
}

func sha256Of(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
