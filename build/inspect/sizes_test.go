package inspect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/oci"
)

const lowerStatus = "Package: libc6\nStatus: install ok installed\nSource: glibc\nInstalled-Size: 13000\n"

// declaration has a component of each kind: of a layer, of packages, of nothing.
const declaration = `{"version": 1, "target": "x", "platform": "linux/amd64", "recipe": "", "components": [
 {"name": "tool", "version": "1", "license": "MIT", "layers": ["copy tool to /opt"], "packages": ["libc6"]},
 {"name": "cuda", "version": "1", "license": "MIT", "packages": ["nvcc"]},
 {"name": "ssh", "version": "1", "license": "MIT", "packages": ["shy"]},
 {"name": "plugin", "version": "1", "license": "MIT"}],
 "packages": [{"name": "libc-bin"}, {"name": "nvcc"}, {"name": "cudart"}, {"name": "shy"}, {"name": "curl"}]}`

const upperStatus = lowerStatus + `
Package: libc-bin
Status: install ok installed
Source: glibc (2.41-1)
Installed-Size: 2000

Package: libnccl2
Status: hold ok installed
Installed-Size: 200000

Package: nvcc
Status: install ok installed
Depends: libc6, cudart-any (>= 12), libc-bin
Installed-Size: 80000

Package: cudart
Status: install ok installed
Provides: cudart-any
Installed-Size: 3000

Package: curl
Status: install ok installed
Installed-Size: 700

Package: gone
Status: deinstall ok config-files
Installed-Size: 500000

Package: shy
Status: install ok installed
Pre-Depends: nothing | libc-bin
`

// sized is a layout with one image, of a layer of each compression.
func sized(t *testing.T) (*oci.Layout, []v1.Layer) {
	t.Helper()
	layer := func(media types.MediaType, files ...string) v1.Layer {
		var plain, packed bytes.Buffer
		tw := tar.NewWriter(&plain)
		for i := 0; i < len(files); i += 2 {
			if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: files[i], Size: int64(len(files[i+1])), Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(tw, files[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := tw.Close(); err != nil {
			t.Fatal(err)
		}
		var w io.WriteCloser
		switch media {
		case types.OCILayer:
			w = gzip.NewWriter(&packed)
		case types.OCILayerZStd:
			zw, err := zstd.NewWriter(&packed)
			if err != nil {
				t.Fatal(err)
			}
			w = zw
		case types.OCIUncompressedLayer:
			packed = plain
			return static.NewLayer(packed.Bytes(), media)
		}
		if _, err := w.Write(plain.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return static.NewLayer(packed.Bytes(), media)
	}
	layers := []v1.Layer{
		layer(types.OCILayer, "./var/lib/dpkg/status", lowerStatus, "bin/sh", strings.Repeat("x", 1000)),
		layer(types.OCILayerZStd, "var/lib/dpkg/status", upperStatus),
		layer(types.OCIUncompressedLayer, "opt/tool", strings.Repeat("y", 5000), "opt/doc", ""),
		layer(types.OCILayer, "opt/assay/image.json", declaration),
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	cfg := &v1.ConfigFile{OS: "linux", Architecture: "amd64"}
	img, err := mutate.ConfigFile(img, cfg)
	if err != nil {
		t.Fatal(err)
	}
	by := []string{"made by debootstrap: base-trixie-minbase", "install packages (5)\nof a set", "copy tool to /opt", "write /opt/assay/image.json"}
	for i, l := range layers {
		media, _ := l.MediaType()
		if img, err = mutate.Append(img, mutate.Addendum{Layer: l, MediaType: media, History: v1.History{CreatedBy: by[i]}},
			mutate.Addendum{History: v1.History{CreatedBy: "ENV A=b", EmptyLayer: true}}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := oci.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Put("x", img); err != nil {
		t.Fatal(err)
	}
	return l, layers
}

func measured(t *testing.T, l *oci.Layout) (*Report, error) {
	t.Helper()
	r, err := inspectLayout(t, l, "x", attest.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	return r, r.Measure(t.Context(), l.Source("x"), func(int, int, int64) {})
}

func TestSizes(t *testing.T) {
	l, _ := sized(t)
	r, err := measured(t, l)
	if err != nil {
		t.Fatal(err)
	}
	got := r.Images[0].Sizes
	var layers []LayerSize
	for _, s := range got.Layers {
		if s.Bytes <= 0 || s.Digest == "" {
			t.Errorf("layer %+v", s)
		}
		layers = append(layers, LayerSize{By: s.By, Unpacked: s.Unpacked, Files: s.Files})
	}
	if d := cmp.Diff([]LayerSize{
		{By: "made by debootstrap: base-trixie-minbase", Unpacked: int64(1000 + len(lowerStatus)), Files: 2},
		{By: "install packages (5)\nof a set", Unpacked: int64(len(upperStatus)), Files: 1},
		{By: "copy tool to /opt", Unpacked: 5000, Files: 2},
		{By: "write /opt/assay/image.json", Unpacked: int64(len(declaration)), Files: 1},
	}, layers); d != "" {
		t.Errorf("layers (-want +got):\n%s", d)
	}
	// A package on hold is there; one of which the configuration is left takes nothing.
	if d := cmp.Diff([]PackageSize{
		{"libnccl2", 1, 200000 << 10}, {"nvcc", 1, 80000 << 10}, {"glibc", 2, 15000 << 10}, {"cudart", 1, 3000 << 10}, {"curl", 1, 700 << 10}, {"shy", 1, 0},
	}, got.Packages); d != "" {
		t.Errorf("packages (-want +got):\n%s", d)
	}
	// libnccl2 is not declared: its files are in some component's layer.
	if d := cmp.Diff([]ComponentSize{
		{Name: "tool", Layers: 5000},
		{Name: "cuda", Packages: 2, Installed: 83000 << 10, Shared: 2000 << 10},
		{Name: "ssh", Packages: 1, Shared: 2000 << 10},
		{Name: "plugin"},
		{Name: "the base", Packages: 1, Installed: 13000 << 10},
		{Name: "several components", Packages: 1, Installed: 2000 << 10},
		{Name: "no component", Packages: 1, Installed: 700 << 10},
	}, append(got.Components, got.Rest...)); d != "" {
		t.Errorf("components (-want +got):\n%s", d)
	}
	for i := range got.Layers {
		got.Layers[i].Bytes = int64(1+i) * 1_500_000 // they depend on how this version of Go compresses
	}
	r.Reference = "oci:out:x"
	text, _ := render(t, r)
	golden.Check(t, "sizes.golden", text)
}

// TestSizesDamaged: what is not the layer is not measured.
func TestSizesDamaged(t *testing.T) {
	for _, which := range []int{0, 1, 2} {
		l, layers := sized(t)
		h, err := layers[which].Digest()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(l.Dir(), "blobs", "sha256", h.Hex)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 1
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if r, err := measured(t, l); err == nil {
			t.Errorf("layer %d is damaged, and measured: %+v", which, r.Images[0].Sizes)
		}
	}
}
