package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/publish"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/harness/certificate"
)

// A record says that the image of a recipe was built and passed its gate. As
// everything that goes into a recipe is pinned, an image whose record and
// blobs are there needs no builder to be known as up to date.
type record struct {
	Hash              string // of recipe and build options
	Digest, Certifier string
	Certificate       []byte // to the byte: signatures are over it
	Inventory         []byte
	Builder           string
	Started, Finished time.Time
	Entered           bool // it is in the layout's indexes, with its documents, unsigned
}

// buildHash covers what decides the image's bytes.
func (b *build) buildHash(t matrix.Target, p recipe.Platform) string {
	res, err := b.Recipe(t, p, p)
	if err != nil || len(res.Missing) > 0 {
		return ""
	}
	h := sha256.New()
	fmt.Fprintln(h, res.Recipe.Hash(), b.Lock.Epoch, b.o.Zstd)
	return hex.EncodeToString(h.Sum(nil))
}

func (b *build) recordFile(hash string) string {
	return filepath.Join(b.o.OutDir, ".assay", hash+".json")
}

func (r record) write(file string) error {
	if r.Hash == "" {
		return nil // resolved for this build alone
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp := fmt.Sprintf("%s.%d.tmp", file, os.Getpid())
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// allUpToDate answers a build that has nothing to do without starting a
// builder.
func (b *build) allUpToDate() (*BuildResult, bool) {
	if b.o.Force || b.o.Unlocked || len(b.o.CacheTo) > 0 {
		return nil, false
	}
	layout, err := publish.Open(b.o.OutDir)
	if err != nil {
		return nil, false
	}
	b.layout = layout
	res := &BuildResult{SchemaVersion: 1, Targets: make([]TargetResult, len(b.targets))}
	for i, t := range b.targets {
		tr := &res.Targets[i]
		tr.Target = t.Name
		for _, p := range platformsOf(t, b.o.Platforms) {
			img, ok := b.upToDate(t, p)
			if !ok {
				return nil, false
			}
			tr.Images = append(tr.Images, img)
		}
		if !b.entered(t, tr) {
			b.assemble(t, tr)
		}
		if tr.Failed {
			return nil, false
		}
	}
	return res, true
}

// upToDate reports whether the image of the recipe is in the output layout,
// complete and certified.
func (b *build) upToDate(t matrix.Target, p recipe.Platform) (ImageResult, bool) {
	out := ImageResult{Platform: p.String(), UpToDate: true}
	data, err := os.ReadFile(b.recordFile(b.buildHash(t, p)))
	if err != nil {
		return out, false
	}
	var r record
	if json.Unmarshal(data, &r) != nil || b.layout.Complete(r.Digest) != nil || b.layout.Complete(r.Certifier) != nil {
		return out, false
	}
	out.Digest, out.Certifier, out.Certificate, out.Verdict = r.Digest, r.Certifier, r.Certificate, certificate.Pass
	out.rec = r
	return out, true
}

// entered reports whether the layout has everything of a target already, and
// if so sets its digest.
func (b *build) entered(t matrix.Target, tr *TargetResult) bool {
	if b.o.SignKey != nil {
		return false
	}
	var images, certifiers []string
	for _, img := range tr.Images {
		if !img.rec.Entered {
			return false
		}
		images, certifiers = append(images, img.rec.Digest), append(certifiers, img.rec.Certifier)
	}
	digest, ok := b.layout.Holds(t.Name, images)
	if _, also := b.layout.Holds(t.Name+certifySuffix, certifiers); !ok || !also {
		return false
	}
	tr.Digest = digest
	return true
}

// remember marks a target's images as entered.
func (b *build) remember(tr *TargetResult) error {
	for _, img := range tr.Images {
		img.rec.Entered = b.o.SignKey == nil
		if err := img.rec.write(b.recordFile(img.rec.Hash)); err != nil {
			return err
		}
	}
	return nil
}
