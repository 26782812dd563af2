// Parts writes an image of a layout as a tar with everything that a machine without a container
// engine needs to unpack, verify and enter it:
//
//	manifest.json   the image's manifest, byte for byte: its SHA-256 is the image's digest
//	config.json     its configuration, which the manifest names and which contains the layers' digests
//	layers/NN.tar   the layers, not compressed, so that they compress well together
//	environment     the image's variables as lines that a shell reads
//
//	go run ./build/e2e/parts LAYOUT TARGET PLATFORM | xz > image.tar.xz
package main

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/assay-hpc/assay/internal/oci"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: parts LAYOUT TARGET PLATFORM")
		os.Exit(2)
	}
	if err := writeParts(os.Args[1], os.Args[2], os.Args[3], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "parts:", err)
		os.Exit(1)
	}
}

func writeParts(dir, target, platform string, w io.Writer) error {
	img, err := platformImage(dir, target, platform)
	if err != nil {
		return err
	}
	manifest, err := img.RawManifest()
	if err != nil {
		return err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		text []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"environment", []byte(environment(cfg.Config.Env))}} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.text))}); err != nil {
			return err
		}
		if _, err := tw.Write(f.text); err != nil {
			return err
		}
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for i, l := range layers {
		if err := layer(tw, fmt.Sprintf("layers/%02d.tar", i), l); err != nil {
			return err
		}
	}
	return tw.Close()
}

// platformImage returns a target's image for a platform.
func platformImage(dir, target, platform string) (v1.Image, error) {
	l, err := oci.Open(dir)
	if err != nil {
		return nil, err
	}
	root, err := l.Find(target)
	if err != nil {
		return nil, err
	}
	index, err := layout.Path(dir).ImageIndex()
	if err != nil {
		return nil, err
	}
	top, err := index.ImageIndex(root.Digest)
	if err != nil {
		return nil, err
	}
	m, err := top.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range m.Manifests {
		if d.Platform != nil && d.Platform.OS+"/"+d.Platform.Architecture == platform {
			return top.Image(d.Digest)
		}
	}
	return nil, fmt.Errorf("%s has no image for %s", target, platform)
}

// layer writes a layer uncompressed. The tar header needs its size, which is known only after
// decompression, so it goes through a file.
func layer(tw *tar.Writer, name string, l v1.Layer) error {
	r, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer r.Close()
	tmp, err := os.Create(filepath.Join(os.TempDir(), fmt.Sprintf("assay-parts-%d", os.Getpid())))
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	size, err := io.Copy(tmp, r)
	if err != nil {
		return err
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}); err != nil {
		return err
	}
	_, err = io.Copy(tw, tmp)
	return err
}

func environment(env []string) string {
	var b strings.Builder
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	return b.String()
}
