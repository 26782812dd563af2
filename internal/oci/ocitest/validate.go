// Package ocitest checks the content of layouts, for tests.
package ocitest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// Validate reads everything that a manifest or index of a layout refers to, including layers. It
// reports the first blob that is missing or damaged, the first layer that differs from the one in
// its image's configuration, and other errors that go-containerregistry's validate finds in
// manifests and configurations.
func Validate(ctx context.Context, dir string, root v1.Hash) error {
	raw, err := blob(dir, root)
	if err != nil {
		return err
	}
	var m struct {
		MediaType types.MediaType
		Config    *v1.Descriptor
		Layers    []v1.Descriptor
		Manifests []v1.Descriptor
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("manifest %s: %w", root, err)
	}
	for _, d := range m.Manifests {
		if err := Validate(ctx, dir, d.Digest); err != nil {
			return err
		}
	}
	if m.Config == nil {
		return ctx.Err()
	}
	img, err := partial.CompressedToImage(&image{dir, root, m.MediaType, *m.Config, m.Layers})
	if err == nil {
		err = validate.Image(img, validate.Fast) // Fast, as the full check supports only gzip, and ours may be zstd
	}
	if err == nil {
		err = diffIDs(img)
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", root, err)
	}
	return ctx.Err()
}

// blob reads a blob and checks its digest.
func blob(dir string, h v1.Hash) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(dir, "blobs", h.Algorithm, h.Hex))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != h.Hex {
		return nil, fmt.Errorf("blob %s is damaged", h)
	}
	return b, nil
}

func diffIDs(img v1.Image) error {
	cfg, err := img.ConfigFile()
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	if len(layers) != len(cfg.RootFS.DiffIDs) {
		return fmt.Errorf("%d layers, but the configuration names %d", len(layers), len(cfg.RootFS.DiffIDs))
	}
	for i, layer := range layers {
		rc, err := layer.Uncompressed()
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, rc)
		rc.Close()
		if err != nil {
			return err
		}
		if got, want := hex.EncodeToString(sum.Sum(nil)), cfg.RootFS.DiffIDs[i].Hex; got != want {
			return fmt.Errorf("layer %d: uncompressed digest is sha256:%s, the configuration says sha256:%s", i, got, want)
		}
	}
	return nil
}

// image is an image of a layout, for go-containerregistry.
type image struct {
	dir    string
	digest v1.Hash
	media  types.MediaType
	config v1.Descriptor
	layers []v1.Descriptor
}

func (i *image) MediaType() (types.MediaType, error) { return i.media, nil }
func (i *image) RawManifest() ([]byte, error)        { return blob(i.dir, i.digest) }
func (i *image) RawConfigFile() ([]byte, error)      { return blob(i.dir, i.config.Digest) }

func (i *image) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, d := range append([]v1.Descriptor{i.config}, i.layers...) {
		if d.Digest == h {
			return &layer{i.dir, d}, nil
		}
	}
	return nil, fmt.Errorf("image %s has no layer %s", i.digest, h)
}

type layer struct {
	dir  string
	desc v1.Descriptor
}

func (l *layer) Digest() (v1.Hash, error)            { return l.desc.Digest, nil }
func (l *layer) Size() (int64, error)                { return l.desc.Size, nil }
func (l *layer) MediaType() (types.MediaType, error) { return l.desc.MediaType, nil }

// Exists is called by validate.Fast.
func (l *layer) Exists() (bool, error) {
	_, err := blob(l.dir, l.desc.Digest)
	return err == nil, err
}

func (l *layer) Compressed() (io.ReadCloser, error) {
	return os.Open(filepath.Join(l.dir, "blobs", l.desc.Digest.Algorithm, l.desc.Digest.Hex))
}
