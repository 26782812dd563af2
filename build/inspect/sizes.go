package inspect

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/assay-hpc/assay/harness/dpkg"
	"github.com/assay-hpc/assay/internal/oci"
)

// Sizes say what an image's bytes are of.
type Sizes struct {
	Layers []LayerSize `json:"layers"` // from the base up
	// Packages are Debian's source packages, the largest first: most components are
	// packages, and all packages are in one layer or two.
	Packages []PackageSize `json:"packages,omitempty"`
}

// A LayerSize is one layer's.
type LayerSize struct {
	Digest   string `json:"digest"`
	By       string `json:"by"`       // what made it, of the image's history
	Bytes    int64  `json:"bytes"`    // compressed
	Unpacked int64  `json:"unpacked"` // of its files
	Files    int    `json:"files"`
}

// A PackageSize is what the packages of one source take.
type PackageSize struct {
	Source   string `json:"source"`
	Packages int    `json:"packages"`
	Bytes    int64  `json:"bytes"` // installed, as the packages themselves say
}

// Measure reads all layers of the report's images, which for an image in a
// registry means to fetch them. told is called before each.
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
	var m v1.Manifest
	var cfg v1.ConfigFile
	raw, err := src.Manifest(ctx, h)
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err == nil {
		raw, err = src.Blob(ctx, m.Config.Digest)
	}
	if err == nil {
		err = json.Unmarshal(raw, &cfg)
	}
	if err != nil {
		return nil, err
	}
	cfg.History = slices.DeleteFunc(cfg.History, func(h v1.History) bool { return h.EmptyLayer })
	s := &Sizes{}
	var status []byte
	for i, d := range m.Layers {
		told(i+1, len(m.Layers), d.Size)
		l := LayerSize{Digest: d.Digest.String(), Bytes: d.Size}
		if i < len(cfg.History) {
			l.By = cfg.History[i].CreatedBy
		}
		upper, err := l.read(ctx, src, d)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", d.Digest, err)
		}
		if upper != nil {
			status = upper
		}
		s.Layers = append(s.Layers, l)
	}
	s.Packages, err = bySource(status)
	return s, err
}

// read counts a layer's files, and returns the package database if it has one.
func (l *LayerSize) read(ctx context.Context, src oci.Source, d v1.Descriptor) (status []byte, err error) {
	blob, err := src.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	plain, err := unpacked(blob, d.MediaType)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	tr := tar.NewReader(plain)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		l.Files++
		l.Unpacked += h.Size
		if path.Clean("/"+h.Name) == dpkg.StatusPath {
			if h.Size > statusLimit {
				return nil, fmt.Errorf("%s has %d bytes; at most %d are read", dpkg.StatusPath, h.Size, statusLimit)
			}
			if status, err = io.ReadAll(tr); err != nil {
				return nil, err
			}
		}
	}
	// At its end the blob is held against its digest.
	_, err = io.Copy(io.Discard, io.MultiReader(plain, blob))
	return status, err
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

func bySource(status []byte) ([]PackageSize, error) {
	pkgs, err := dpkg.ParseStatus(status)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", dpkg.StatusPath, err)
	}
	sums := map[string]PackageSize{}
	for _, p := range pkgs {
		if !p.Installed() {
			continue
		}
		name, _, _ := strings.Cut(cmp.Or(p.Source, p.Name), " ") // "glibc (2.41-1)"
		sum := sums[name]
		sums[name] = PackageSize{name, sum.Packages + 1, sum.Bytes + p.InstalledBytes}
	}
	var list []PackageSize
	for _, p := range sums {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b PackageSize) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Source, b.Source))
	})
	return list, nil
}

// statusLimit is far above what a distribution with all its packages has.
const statusLimit = 256 << 20

// shown is how many source packages text has; the data have all.
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
