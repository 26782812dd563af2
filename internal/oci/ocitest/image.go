package ocitest

import (
	"math/rand"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image returns an image of two layers with content that depends only on the arguments.
func Image(t testing.TB, p v1.Platform, seed int64) v1.Image {
	t.Helper()
	img, err := random.Image(3000, 2, random.WithSource(rand.NewSource(seed)))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Created = p.OS, p.Architecture, v1.Time{Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	cfg.History = nil
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
}
