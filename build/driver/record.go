package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/result"
)

// A record says that the image of a recipe was built and passed its gate. Everything that goes
// into a recipe is pinned, so if an image's record and blobs exist, it is known to be up to date
// without a builder.
type record struct {
	Hash              string // of recipe and build options
	Digest, Certifier string
	Certificate       []byte // byte for byte: signatures cover it
	Inventory         []byte
	Builder           string
	Started, Finished time.Time
	Entered           bool `json:",omitempty"` // it is in the layout's indexes, with its documents, unsigned
}

// verify checks the certificate of a record: it must be a pass, for this target, platform and
// recipe, and cover both images. It is the gate's final check, and a record that is read back
// must pass it again.
func (b *build) verify(t matrix.Target, p recipe.Platform, r record) error {
	policy := attest.Policy{Target: t.Name, Kinds: []attest.Kind{certificate.Kind}}
	for _, digest := range []string{r.Digest, r.Certifier} {
		if digest == "" {
			return errors.New("it names no image")
		}
		if _, err := policy.Verify(r.Certificate, digest, p.String()); err != nil {
			return err
		}
	}
	st, err := certificate.Parse(r.Certificate)
	if err != nil {
		return err
	}
	mk, err := b.Recipe(t, p, p)
	if err != nil {
		return err
	}
	if mk.Recipe.Declared() != st.Predicate.Environment.Recipe {
		return fmt.Errorf("its certificate is about the recipe %s, which is not this target's", st.Predicate.Environment.Recipe)
	}
	return nil
}

// buildHash covers everything that determines the image's bytes.
func (b *build) buildHash(t matrix.Target, p recipe.Platform) string {
	res, err := b.Recipe(t, p, p)
	if err != nil || len(res.Missing) > 0 {
		return ""
	}
	h := sha256.New()
	fmt.Fprintln(h, res.Recipe.Hash(), res.Recipe.Declared(), b.Lock.Epoch, b.o.Zstd)
	return hex.EncodeToString(h.Sum(nil))
}

func (b *build) recordFile(hash string) string {
	return filepath.Join(b.o.OutDir, ".assay", hash+".json")
}

// writeRecord signs a record with the builder's key and writes it.
func (b *build) writeRecord(r record) error {
	if r.Hash == "" {
		return nil // resolved for this build only
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	key, err := b.builderKey(b.o.BuilderKey)
	if err != nil {
		return err
	}
	if data, err = attest.Sign(recordType, data, key); err != nil {
		return err
	}
	file := b.recordFile(r.Hash)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if st, err := os.Lstat(file); err == nil && !st.Mode().IsRegular() {
		if err := os.Remove(file); err != nil { // a layout may come from anywhere, and a link of it lead anywhere
			return err
		}
	}
	return outfile.Write(file, data)
}

// readRecord reads a record that a trusted builder signed.
func (b *build) readRecord(hash string) (r record, err error) {
	data, err := infile.Read(b.recordFile(hash), 2*attest.MaxSize)
	if err != nil {
		return r, err
	}
	keys, err := b.trustedBuilders()
	if err != nil {
		return r, err
	}
	o, err := attest.Open(data, keys...)
	switch {
	case err != nil:
		return r, err
	case o.Signature != attest.Verified || len(keys) == 0:
		return r, errors.New("no builder that is trusted here signed it (--trust-builder names the public key of one)")
	case o.Type != recordType:
		return r, fmt.Errorf("it is a %q, not a record", o.Type)
	}
	if err := attest.Decode(o.Payload, attest.MaxSize, &r); err != nil {
		return r, err
	}
	if r.Hash != hash {
		return r, errors.New("it is about another recipe")
	}
	return r, nil
}

// allUpToDate returns the result of a build that has nothing to do, without starting a builder.
func (b *build) allUpToDate() (*BuildResult, bool) {
	if b.o.Force || b.o.Unlocked || len(b.o.CacheTo) > 0 {
		return nil, false
	}
	layout, err := oci.Open(b.o.OutDir)
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
	hash := b.buildHash(t, p)
	if hash == "" {
		return out, false
	}
	r, err := b.readRecord(hash)
	if errors.Is(err, fs.ErrNotExist) {
		return out, false
	}
	if err == nil && (b.layout.Complete(r.Digest) != nil || b.layout.Complete(r.Certifier) != nil) {
		return out, false
	}
	if err == nil {
		err = b.verify(t, p, r)
	}
	if err != nil {
		b.Log("%s %s: its record in %s is not believed, and it is built again: %v", t.Name, p, b.o.OutDir, err)
		return out, false
	}
	out.Digest, out.Certifier, out.Certificate, out.Verdict = r.Digest, r.Certifier, r.Certificate, result.Pass
	out.rec = r
	return out, true
}

// entered reports whether the layout already contains everything of a target. If so, it sets the
// target's digest.
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
		if err := b.writeRecord(img.rec); err != nil {
			return err
		}
	}
	return nil
}
