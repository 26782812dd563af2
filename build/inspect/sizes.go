package inspect

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/dpkg"
	"github.com/assay-hpc/assay/internal/oci"
)

// Sizes breaks down the size of an image.
type Sizes struct {
	Layers []LayerSize `json:"layers"` // from the base up
	// Components are those that the image declares, in its order.
	Components []ComponentSize `json:"components,omitempty"`
	Rest       []ComponentSize `json:"rest,omitempty"`     // what belongs to no single component, by category
	Packages   []PackageSize   `json:"packages,omitempty"` // Debian's source packages, the largest first
}

// A LayerSize is the size of one layer.
type LayerSize struct {
	Digest   string `json:"digest"`
	By       string `json:"by"`       // what created it, from the image's history
	Bytes    int64  `json:"bytes"`    // compressed
	Unpacked int64  `json:"unpacked"` // of its files
	Files    int    `json:"files"`
}

// A ComponentSize is the size of a component. Components and Rest together count no layer and no
// package twice, except in Shared.
type ComponentSize struct {
	Name      string `json:"name"`
	Layers    int64  `json:"layers"`    // bytes of files in layers of its own
	Packages  int    `json:"packages"`  // that only this component needs
	Installed int64  `json:"installed"` // bytes of these packages
	Shared    int64  `json:"shared"`    // bytes of packages that other components also need
}

// A PackageSize is the total size of the packages of one source.
type PackageSize struct {
	Source   string `json:"source"`
	Packages int    `json:"packages"`
	Bytes    int64  `json:"bytes"` // installed, according to the packages themselves
}

// Measure reads all layers of the report's images; for an image in a registry it must fetch them.
// It calls told before each layer.
func (r *Report) Measure(ctx context.Context, src oci.Source, told func(layer, of int, bytes int64)) error {
	for i := range r.Images {
		img := &r.Images[i]
		sizes, err := measure(ctx, src, img.Digest, told)
		if err != nil {
			return fmt.Errorf("sizes of %s: %w", img.Digest, err)
		}
		img.Sizes = sizes
	}
	return nil
}

func measure(ctx context.Context, src oci.Source, manifest string, told func(layer, of int, bytes int64)) (*Sizes, error) {
	h, err := v1.NewHash(manifest)
	if err != nil {
		return nil, err
	}
	raw, err := src.Manifest(ctx, h)
	if err != nil {
		return nil, err
	}
	m, err := oci.ParseManifest("manifest "+manifest, raw, "")
	if err != nil {
		return nil, err
	}
	if raw, err = src.Blob(ctx, m.Config.Digest); err != nil {
		return nil, err
	}
	cfg, err := oci.ParseConfig("configuration "+m.Config.Digest.String(), raw)
	if err != nil {
		return nil, err
	}
	cfg.History = slices.DeleteFunc(cfg.History, func(h v1.History) bool { return h.EmptyLayer })
	s := &Sizes{}
	files := map[string][]byte{}
	for i, d := range m.Layers {
		told(i+1, len(m.Layers), d.Size)
		l := LayerSize{Digest: d.Digest.String(), Bytes: d.Size}
		if i < len(cfg.History) {
			l.By = cfg.History[i].CreatedBy
		}
		if err := l.read(ctx, src, d, files); err != nil {
			return nil, fmt.Errorf("layer %s: %w", d.Digest, err)
		}
		s.Layers = append(s.Layers, l)
		// An image without a record of its base has a base of a single layer.
		if files[certificate.BaseStatusPath] == nil {
			files[certificate.BaseStatusPath] = files[dpkg.StatusPath]
		}
	}
	pkgs, err := installed(files, dpkg.StatusPath)
	if err != nil {
		return nil, err
	}
	s.Packages = bySource(pkgs)
	raw = files[certificate.SpecPath]
	if raw == nil {
		return s, nil
	}
	spec, err := certificate.ParseSpec(raw)
	if err != nil {
		return nil, err
	}
	base, err := installed(files, certificate.BaseStatusPath)
	if err != nil {
		return nil, err
	}
	s.byComponent(spec, pkgs, base)
	return s, nil
}

// kept lists the files that are read.
var kept = []string{dpkg.StatusPath, certificate.SpecPath, certificate.BaseStatusPath}

// read counts a layer's files, and stores the content of those that describe packages and
// components.
func (l *LayerSize) read(ctx context.Context, src oci.Source, d v1.Descriptor, files map[string][]byte) error {
	blob, err := src.Open(ctx, d)
	if err != nil {
		return err
	}
	defer blob.Close()
	plain, err := unpacked(blob, d.MediaType)
	if err != nil {
		return err
	}
	defer plain.Close()
	tr := tar.NewReader(plain)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		l.Files++
		l.Unpacked += h.Size
		if name := path.Clean("/" + h.Name); slices.Contains(kept, name) {
			if h.Size > readLimit {
				return fmt.Errorf("%s has %d bytes; at most %d are read", name, h.Size, readLimit)
			}
			if files[name], err = io.ReadAll(tr); err != nil {
				return err
			}
		}
	}
	// At the end of the blob its digest is checked.
	_, err = io.Copy(io.Discard, io.MultiReader(plain, blob))
	return err
}

func unpacked(r io.Reader, media types.MediaType) (io.ReadCloser, error) {
	switch {
	case strings.HasSuffix(string(media), "gzip"):
		return gzip.NewReader(r)
	case strings.HasSuffix(string(media), "zstd"):
		d, err := zstd.NewReader(r)
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	case strings.HasSuffix(string(media), "tar"):
		return io.NopCloser(r), nil
	}
	return nil, fmt.Errorf("its type is %s, which is not a layer's", media)
}

// installed returns the installed packages of a dpkg database.
func installed(files map[string][]byte, name string) ([]dpkg.Package, error) {
	pkgs, err := dpkg.ParseStatus(files[name])
	if err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	return slices.DeleteFunc(pkgs, func(p dpkg.Package) bool { return !p.Installed() }), nil
}

func bySource(pkgs []dpkg.Package) []PackageSize {
	sums := map[string]PackageSize{}
	for _, p := range pkgs {
		name, _, _ := strings.Cut(cmp.Or(p.Source, p.Name), " ") // "glibc (2.41-1)"
		sum := sums[name]
		sums[name] = PackageSize{name, sum.Packages + 1, sum.Bytes + p.InstalledBytes}
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b PackageSize) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Source, b.Source))
	})
}

// byComponent sums layers and packages by the component that needs them. A package that the image
// does not declare has its files in a component's layer, so it is not counted again.
func (s *Sizes) byComponent(spec *certificate.ImageSpec, pkgs, base []dpkg.Package) {
	providers := map[string][]int{}
	for i, p := range pkgs {
		for _, name := range append(p.Provides, p.Name) {
			providers[name] = append(providers[name], i)
		}
	}
	below, declared := map[string]bool{}, map[string]bool{}
	for _, p := range base {
		below[p.Name] = true
	}
	for _, p := range spec.Packages {
		declared[p.Name] = true
	}
	users := make([][]int, len(pkgs))
	of := map[string]int{} // maps layer to component
	for c, component := range spec.Components {
		s.Components = append(s.Components, ComponentSize{Name: component.Name})
		for _, l := range component.Layers {
			of[l] = c
		}
		seen := map[int]bool{}
		for want := component.Packages; len(want) > 0; {
			name := want[0]
			want = want[1:]
			for _, i := range providers[name] {
				if seen[i] || below[pkgs[i].Name] {
					continue
				}
				seen[i] = true
				users[i] = append(users[i], c)
				want = append(want, slices.Concat(pkgs[i].Needs...)...)
			}
		}
	}
	inBase, several, none := ComponentSize{Name: "the base"}, ComponentSize{Name: "several components"}, ComponentSize{Name: "no component"}
	for i, p := range pkgs {
		to := &several
		switch {
		case below[p.Name]:
			to = &inBase
		case len(users[i]) == 1:
			to = &s.Components[users[i][0]]
		case len(users[i]) == 0 && !declared[p.Name]:
			continue
		case len(users[i]) == 0:
			to = &none
		default:
			for _, c := range users[i] {
				s.Components[c].Shared += p.InstalledBytes
			}
		}
		to.Packages++
		to.Installed += p.InstalledBytes
	}
	for _, l := range s.Layers {
		if c, ok := of[l.By]; ok {
			s.Components[c].Layers += l.Unpacked
		}
	}
	s.Rest = []ComponentSize{inBase, several, none}
}

// readLimit is far above the size of these files in a distribution with all its packages.
const readLimit = 256 << 20

// shown is how many source packages text prints; the data contains all.
const shown = 20

func (s *Sizes) text(b *bytes.Buffer) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(b)
	fmt.Fprint(w, "  COMPRESSED\tUNPACKED\tFILES\t  LAYER\n")
	for _, l := range s.Layers {
		by, _, _ := strings.Cut(l.By, "\n")
		if len(by) > 100 {
			by = by[:100] + "…"
		}
		fmt.Fprintf(w, "  %s\t%s\t%d\t  %s\n", size(l.Bytes), size(l.Unpacked), l.Files, cmp.Or(by, "(the image does not say)"))
	}
	w.Flush()
	if len(s.Components) > 0 {
		fmt.Fprintln(b)
		fmt.Fprint(w, "  LAYERS\tPACKAGES\tINSTALLED\tSHARED\t  COMPONENT\n")
		for _, c := range s.Components {
			fmt.Fprintf(w, "  %s\t%d\t%s\t%s\t  %s\n", size(c.Layers), c.Packages, size(c.Installed), size(c.Shared), c.Name)
		}
		for _, c := range s.Rest {
			fmt.Fprintf(w, "  \t%d\t%s\t\t  (%s)\n", c.Packages, size(c.Installed), c.Name)
		}
		w.Flush()
	}
	if len(s.Packages) == 0 {
		return
	}
	fmt.Fprintln(b)
	fmt.Fprint(w, "  INSTALLED\tPACKAGES\t  SOURCE\n")
	for i, p := range s.Packages {
		if i == shown {
			var rest PackageSize
			for _, p := range s.Packages[i:] {
				rest.Packages, rest.Bytes = rest.Packages+p.Packages, rest.Bytes+p.Bytes
			}
			fmt.Fprintf(w, "  %s\t%d\t  %d others\n", size(rest.Bytes), rest.Packages, len(s.Packages)-i)
			break
		}
		fmt.Fprintf(w, "  %s\t%d\t  %s\n", size(p.Bytes), p.Packages, p.Source)
	}
	w.Flush()
}
