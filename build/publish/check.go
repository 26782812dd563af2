package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// Validate reads everything that ref (as for [Layout.Find]) leads to, and
// reports each blob that is missing or damaged, each layer that is not the one
// its image's configuration names, and whatever else go-containerregistry's
// validate finds in manifests and configurations.
func (l *Layout) Validate(ctx context.Context, ref string) error {
	p, err := l.plan(ref)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range p.blobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		errs = append(errs, l.verifyBlob(b))
	}
	if err := errors.Join(errs...); err != nil {
		return err // what follows would only say it again, less clearly
	}
	for _, m := range p.images {
		if err := l.validateImage(ctx, m.desc); err != nil {
			return fmt.Errorf("image %s: %w", m.desc.Digest, err)
		}
	}
	return nil
}

func (l *Layout) verifyBlob(d v1.Descriptor) error {
	rc, err := l.openBlob(d.Digest, d.Size)
	if err != nil {
		return err
	}
	defer rc.Close()
	_, err = io.Copy(io.Discard, rc)
	return err
}

// validateImage leaves the layers to checkDiffIDs, since validate knows only
// gzip and ours may be zstd.
func (l *Layout) validateImage(ctx context.Context, d v1.Descriptor) error {
	img, err := partial.CompressedToImage(&storedImage{l, d})
	if err != nil {
		return err
	}
	if err := validate.Image(img, validate.Fast); err != nil {
		return err
	}
	return checkDiffIDs(ctx, img)
}

func checkDiffIDs(ctx context.Context, img v1.Image) error {
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
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := checkDiffID(layer, cfg.RootFS.DiffIDs[i]); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

func checkDiffID(layer v1.Layer, want v1.Hash) error {
	rc, err := layer.Uncompressed()
	if err != nil {
		return err
	}
	defer rc.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, rc); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.Hex {
		return fmt.Errorf("uncompressed digest is sha256:%s, the configuration says %s", got, want)
	}
	return nil
}
