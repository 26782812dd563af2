package solve

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/pgzip"
	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/assay-hpc/assay/build/llb"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/state"
)

// A finisher turns the images that BuildKit exports into the images to publish. The layers that
// BuildKit creates are plain tars which contain the time of the build. In a finished image no
// time is later than the epoch, and layers are compressed. BuildKit could do both, but again for
// each image; here a layer that ten images share is finished once.
type finisher struct {
	from, to content.Store
	blobs    string // the directory of to's blobs
	epoch    time.Time
	zstd     bool
	layers   sync.Map // maps source digest to sync.OnceValues(finished layer)
}

// newFinisher returns a finisher that writes to the store in dir. Several finishers, also of
// several programs, may write to one store.
func newFinisher(from, to content.Store, dir string) (*finisher, error) {
	f := &finisher{from: from, to: to, blobs: filepath.Join(dir, "blobs", "sha256")}
	return f, errors.Join(os.MkdirAll(f.blobs, 0o755), state.SweepParts(f.blobs))
}

// layer is a finished layer.
type layer struct {
	Desc   ocispec.Descriptor `json:"desc"`
	DiffID digest.Digest      `json:"diffID"`
}

// image finishes the image with the manifest that BuildKit has exported and returns the digest of
// the new manifest.
func (f *finisher) image(ctx context.Context, manifest digest.Digest, by origins) (digest.Digest, error) {
	var m ocispec.Manifest
	var cfg ocispec.Image
	if err := readJSON(ctx, f.from, manifest, &m); err != nil {
		return "", err
	}
	if err := readJSON(ctx, f.from, m.Config.Digest, &cfg); err != nil {
		return "", err
	}
	if len(cfg.RootFS.DiffIDs) != len(m.Layers) {
		return "", fmt.Errorf("image %s has %d layers and %d diff IDs", manifest, len(m.Layers), len(cfg.RootFS.DiffIDs))
	}
	if err := by.history(&cfg, m.Layers); err != nil {
		return "", err
	}
	for i, d := range m.Layers {
		l, err := f.layer(ctx, d, cfg.RootFS.DiffIDs[i])
		if err != nil {
			return "", fmt.Errorf("layer %s: %w", d.Digest, err)
		}
		m.Layers[i], cfg.RootFS.DiffIDs[i] = l.Desc, l.DiffID
	}
	return f.manifest(ctx, cfg, m.Layers)
}

// origins says where an image's layers come from, with one line per layer for the image's
// history: "docker history" shows one per layer. What BuildKit writes there depends on the
// machine: from where it pulled a base, and the name of the build (of any recipe) that put the
// layer into its cache. That would change the digest of the same image.
type origins struct {
	base   string   // line for the base's layers
	layers []string // lines for the layers above it
}

// originsOf derives the origins from a recipe.
func originsOf(r *recipe.Recipe) (origins, error) {
	base, err := baseOf(r)
	return origins{base, llb.LayerTitles(r)}, err
}

// history writes the origins into a configuration.
func (o origins) history(cfg *ocispec.Image, exported []ocispec.Descriptor) error {
	below := 0
	for below < len(exported) && !fromBuild(exported[below]) {
		below++
	}
	i := 0
	for n := range cfg.History {
		h := &cfg.History[n]
		switch {
		case h.EmptyLayer:
			continue
		case i < below:
			h.CreatedBy = o.base
		case i-below < len(o.layers):
			h.CreatedBy = o.layers[i-below]
		}
		i++
	}
	if i != len(exported) || i != below+len(o.layers) {
		return fmt.Errorf("the image has %d layers above its base's %d, and a history of %d; its recipe makes %d", len(exported)-below, below, i, len(o.layers))
	}
	return nil
}

// fromBuild reports whether the build created the layer.
func fromBuild(d ocispec.Descriptor) bool { return d.MediaType == ocispec.MediaTypeImageLayer }

// withEntrypoint creates an image that differs from a finished one only in what it starts, and
// returns its manifest's digest.
func (f *finisher) withEntrypoint(ctx context.Context, manifest digest.Digest, entrypoint []string) (digest.Digest, error) {
	var m ocispec.Manifest
	var cfg ocispec.Image
	if err := readJSON(ctx, f.to, manifest, &m); err != nil {
		return "", err
	}
	if err := readJSON(ctx, f.to, m.Config.Digest, &cfg); err != nil {
		return "", err
	}
	cfg.Config.Entrypoint, cfg.Config.Cmd = entrypoint, nil
	return f.manifest(ctx, cfg, m.Layers)
}

func readJSON(ctx context.Context, store content.Store, d digest.Digest, into any) error {
	info, err := store.Info(ctx, d)
	if err != nil {
		return err
	}
	raw, err := content.ReadBlob(ctx, store, ocispec.Descriptor{Digest: d, Size: info.Size})
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

func (f *finisher) manifest(ctx context.Context, cfg ocispec.Image, layers []ocispec.Descriptor) (digest.Digest, error) {
	raw, err := json.Marshal(cfg)
	if err != nil {
		return "", err
	}
	cd, err := f.put(ctx, ocispec.MediaTypeImageConfig, raw)
	if err != nil {
		return "", err
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: cd, Layers: layers}
	if raw, err = json.Marshal(m); err != nil {
		return "", err
	}
	md, err := f.put(ctx, m.MediaType, raw)
	return md.Digest, err
}

func (f *finisher) put(ctx context.Context, mediaType string, raw []byte) (ocispec.Descriptor, error) {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
	if _, err := f.to.Info(ctx, d.Digest); err == nil {
		return d, nil
	}
	return f.blob(mediaType, func(w io.Writer) error {
		_, err := w.Write(raw)
		return err
	})
}

// blob writes a blob, which gets its name when it is complete. containerd's store would let two
// programs that write the same blob write into one file.
func (f *finisher) blob(mediaType string, fill func(io.Writer) error) (_ ocispec.Descriptor, err error) {
	part, err := state.CreatePart(f.blobs)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	defer part.Close()
	defer func() {
		if err != nil {
			os.Remove(part.Name())
		}
	}()
	sum := digest.Canonical.Digester()
	count := &counter{w: io.MultiWriter(part, sum.Hash())}
	if err := fill(count); err != nil {
		return ocispec.Descriptor{}, err
	}
	d := ocispec.Descriptor{MediaType: mediaType, Digest: sum.Digest(), Size: count.n}
	if err := errors.Join(part.Chmod(0o644), part.Sync()); err != nil {
		return d, err
	}
	return d, os.Rename(part.Name(), filepath.Join(f.blobs, d.Digest.Encoded()))
}

// layer finishes one layer, or waits for the goroutine that is finishing it.
func (f *finisher) layer(ctx context.Context, d ocispec.Descriptor, diffID digest.Digest) (layer, error) {
	once, _ := f.layers.LoadOrStore(d.Digest, sync.OnceValues(func() (layer, error) {
		if !fromBuild(d) {
			return f.passOn(ctx, d, diffID)
		}
		return f.rewrite(ctx, d)
	}))
	l, err := once.(func() (layer, error))()
	if err != nil {
		f.layers.Delete(d.Digest) // the next build may succeed
	}
	return l, err
}

// passOn copies a base's layer unchanged: registries already have it.
func (f *finisher) passOn(ctx context.Context, d ocispec.Descriptor, diffID digest.Digest) (layer, error) {
	if d.MediaType == "application/vnd.docker.image.rootfs.diff.tar.gzip" {
		d.MediaType = ocispec.MediaTypeImageLayerGzip // an OCI manifest needs OCI media types
	}
	d.Annotations = nil
	if _, err := f.to.Info(ctx, d.Digest); err == nil {
		return layer{d, diffID}, nil
	}
	ra, err := f.from.ReaderAt(ctx, d)
	if err != nil {
		return layer{}, err
	}
	defer ra.Close()
	got, err := f.blob(d.MediaType, func(w io.Writer) error {
		_, err := io.Copy(w, content.NewReader(ra))
		return err
	})
	if err == nil && got.Digest != d.Digest {
		err = fmt.Errorf("the builder exported %s instead", got.Digest)
	}
	return layer{d, diffID}, err
}

// rewrite clamps times and compresses.
func (f *finisher) rewrite(ctx context.Context, d ocispec.Descriptor) (layer, error) {
	ra, err := f.from.ReaderAt(ctx, d)
	if err != nil {
		return layer{}, err
	}
	defer ra.Close()
	diff := digest.Canonical.Digester()
	desc, err := f.blob(f.mediaType(), func(w io.Writer) error {
		zw, err := f.compressor(w)
		if err != nil {
			return err
		}
		if err := clampTimes(io.MultiWriter(zw, diff.Hash()), content.NewReader(ra), f.epoch); err != nil {
			zw.Close() // ends its goroutines
			return err
		}
		return zw.Close()
	})
	return layer{desc, diff.Digest()}, err
}

func (f *finisher) mediaType() string {
	if f.zstd {
		return ocispec.MediaTypeImageLayerZstd
	}
	return ocispec.MediaTypeImageLayerGzip
}

func (f *finisher) compressor(w io.Writer) (io.WriteCloser, error) {
	if f.zstd {
		// One encoder thread: with more, the bytes depend on timing.
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	}
	// pgzip's bytes depend only on the block size, not on the number of threads.
	zw := pgzip.NewWriter(w)
	return zw, zw.SetConcurrency(1<<20, 4)
}

// clampTimes copies a tar without any time later than the epoch.
func clampTimes(w io.Writer, r io.Reader, epoch time.Time) error {
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return tw.Close()
		}
		if err != nil {
			return err
		}
		for _, t := range []*time.Time{&h.ModTime, &h.AccessTime, &h.ChangeTime} {
			if t.After(epoch) {
				*t = epoch
			}
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return err
		}
	}
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
