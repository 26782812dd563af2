// Package source turns the source code that assay embeds into image content, so that the harness
// can be compiled inside a build without a checkout.
package source

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Tar writes the files that a build needs (no tests, no fixtures) in sorted order with fixed
// times, and returns the tar with its digest.
func Tar(files fs.FS) (data []byte, digest string, err error) {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	err = fs.WalkDir(files, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		if d.IsDir() {
			if d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !wanted(p) {
			return nil
		}
		text, err := fs.ReadFile(files, p)
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: p, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(0, 0).UTC(), Format: tar.FormatPAX}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		_, err = tw.Write(text)
		return err
	})
	if err == nil {
		err = tw.Close()
	}
	sum := sha256.Sum256(buf.Bytes())
	return buf.Bytes(), "sha256:" + hex.EncodeToString(sum[:]), err
}

func wanted(p string) bool {
	return !strings.HasSuffix(p, "_test.go") && !strings.HasSuffix(p, ".md") && !strings.HasPrefix(path.Base(p), ".")
}

// Image returns an image with the tar's content as its file system.
func Image(tarData []byte, arch string) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(tarData)), nil
	})
	if err != nil {
		return nil, err
	}
	return FromLayer(layer, arch, nil)
}

// File returns an image that contains one file, with the given name.
func File(file, name string, mode int64, arch string) (v1.Image, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: time.Unix(0, 0).UTC()}
	if err := tw.WriteHeader(h); err != nil {
		return nil, err
	}
	if _, err := tw.Write(data); err != nil {
		return nil, err
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	return Image(buf.Bytes(), arch)
}

// FromLayer returns a one-layer image for the architecture.
func FromLayer(layer v1.Layer, arch string, env []string) (v1.Image, error) {
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch, Config: v1.Config{Env: env}, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return nil, err
	}
	img, err = mutate.AppendLayers(img, layer)
	if err != nil {
		return nil, fmt.Errorf("image from layer: %w", err)
	}
	return mutate.MediaType(mutate.ConfigMediaType(img, "application/vnd.oci.image.config.v1+json"), "application/vnd.oci.image.manifest.v1+json"), nil
}
