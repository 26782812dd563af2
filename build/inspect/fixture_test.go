package inspect

import (
	"crypto"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/build/provenance"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/sbom"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/oci/ocitest"
	"github.com/assay-hpc/assay/internal/result"
)

var (
	amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}
	arm64 = v1.Platform{OS: "linux", Architecture: "arm64"}
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	signingKey = ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, fixed"[:32]))
	otherKey   = ed25519.NewKeyFromSeed([]byte("another seed of 32 bytes, as fixed"[:32]))
)

// writeImage stores an image of two layers with fixed content and returns its
// digest.
func writeImage(t *testing.T, l *oci.Layout, p v1.Platform, seed int64) string {
	t.Helper()
	d, err := l.Add(ocitest.Image(t, p, seed))
	if err != nil {
		t.Fatal(err)
	}
	return d.Digest.String()
}

// newTarget makes a layout with one target for two platforms, each with its
// three statements, signed if key is set.
func newTarget(t *testing.T, name string, key crypto.Signer) *oci.Layout {
	t.Helper()
	l, err := oci.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	addTarget(t, l, name, 1, key)
	return l
}

func addTarget(t *testing.T, l *oci.Layout, name string, seed int64, key crypto.Signer) v1.Hash {
	t.Helper()
	images := []oci.PlatformImage{{Platform: arm64, Digest: writeImage(t, l, arm64, seed)}, {Platform: amd64, Digest: writeImage(t, l, amd64, seed+100)}}
	h, err := l.Assemble(name, images, map[string]string{"org.opencontainers.image.title": name})
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		for _, doc := range documents(t, img, name) {
			attach(t, l, img.Digest, doc, key)
		}
	}
	return h
}

// documents are an image's three, in the order of All.
func documents(t *testing.T, img oci.PlatformImage, target string) [][]byte {
	return [][]byte{certificateOf(t, img, target), sbomOf(t, img, target), provenanceOf(t, img, target)}
}

func attach(t *testing.T, l *oci.Layout, subject string, statement []byte, key crypto.Signer) {
	t.Helper()
	a, err := Artifact(statement, key)
	if err != nil {
		t.Fatal(err)
	}
	put(t, l, subject, a)
}

func put(t *testing.T, l *oci.Layout, subject string, a oci.Artifact) v1.Descriptor {
	t.Helper()
	d, err := l.Attach(mustHash(t, subject), a)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustHash(t *testing.T, s string) v1.Hash {
	t.Helper()
	h, err := v1.NewHash(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func platform(p v1.Platform) recipe.Platform { return recipe.Platform{OS: p.OS, Arch: p.Architecture} }

var components = []certificate.Component{
	{Name: "nccl", Version: "2.27.6-1", License: "BSD-3-Clause", Homepage: "https://developer.nvidia.com/nccl",
		Sources: []certificate.Download{{URL: "https://example.com/nccl.tar.gz", Digest: "sha256:" + strings.Repeat("ab", 32)}}},
	{Name: "gdrcopy", Version: "2.5", License: "MIT"},
}

func passed() []result.Result {
	return []result.Result{
		{ID: "image/files", Title: "files are there", Verdict: result.Pass, Seconds: 0.25},
		{ID: "nccl/load", Component: "nccl", Title: "libnccl loads", Verdict: result.Skip, Reason: "libcuda.so.1 is the driver's"},
	}
}

func certificateOf(t *testing.T, img oci.PlatformImage, target string, results ...result.Result) []byte {
	t.Helper()
	if results == nil {
		results = passed()
	}
	s := certificate.New(certificate.Predicate{
		Suite: "image", Started: epoch, Finished: epoch.Add(90 * time.Second), Results: results,
		Harness:     certificate.Harness{Version: "0.1.0", Origin: certificate.OriginAssay},
		Environment: certificate.Environment{Platform: img.Platform.String(), Target: target, Recipe: strings.Repeat("5", 64)},
	})
	if err := s.SetSubject(target, img.Digest); err != nil {
		t.Fatal(err)
	}
	b, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sbomOf(t *testing.T, img oci.PlatformImage, target string) []byte {
	t.Helper()
	b, err := sbom.Statement(sbom.Image{
		Target: target, Digest: img.Digest, Platform: platform(img.Platform), Distro: "debian", Release: "12", Tool: "assay-0.1.0", Created: epoch,
		Packages:   []certificate.InstalledPackage{{Name: "libc6", Version: "2.36-9", Arch: img.Platform.Architecture, Licenses: []string{"LGPL-2.1-or-later"}}},
		Components: components,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func provenanceOf(t *testing.T, img oci.PlatformImage, target string) []byte {
	t.Helper()
	b, err := provenance.Statement(provenance.Build{
		Recipe: &recipe.Recipe{Target: target, Platform: platform(img.Platform), Stages: []recipe.Stage{{Name: "image",
			From: recipe.Source{Kind: recipe.FromImage, Ref: "debian:12", Digest: "sha256:" + strings.Repeat("cd", 32)}}}},
		Digest: img.Digest, MatrixFile: "matrix.yaml", MatrixDigest: "sha256:" + strings.Repeat("ef", 32),
		Builder: provenance.Builder{ID: "https://example.com/ci"}, Started: epoch, Finished: epoch.Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
