package solve

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	contentlocal "github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/klauspost/compress/zstd"
	digest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/mirror"
)

var epoch = time.Unix(1_700_000_000, 0).UTC()

// plainTar is a layer as BuildKit exports it: one old file and one of now.
func plainTar(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		at   time.Time
	}{{"old", epoch.Add(-time.Hour)}, {name, epoch.Add(240 * time.Hour)}} {
		body := strings.Repeat(f.name, 1000)
		h := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(body)), ModTime: f.at, Format: tar.FormatPAX}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	if _, err := zw.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func put(t *testing.T, s content.Store, mediaType string, data []byte) ocispec.Descriptor {
	t.Helper()
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	if err := content.WriteBlob(t.Context(), s, d.Digest.String(), bytes.NewReader(data), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// exported writes an image with a base's layer and plain ones of its own.
func exported(t *testing.T, s content.Store, own ...[]byte) digest.Digest {
	t.Helper()
	base := plainTar(t, "base")
	layers := []ocispec.Descriptor{put(t, s, "application/vnd.docker.image.rootfs.diff.tar.gzip", gzipped(t, base))}
	cfg := ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: "amd64"}}
	cfg.RootFS.Type, cfg.RootFS.DiffIDs = "layers", []digest.Digest{digest.FromBytes(base)}
	cfg.History = []ocispec.History{{CreatedBy: "nothing", EmptyLayer: true}, {CreatedBy: "pulled from mirror.example.com/base:1"}}
	said := []string{"mount / from exec /bin/sh -euc make\nmake install\n", "[image amd64] copy tool to /opt"}
	for i, data := range own {
		layers = append(layers, put(t, s, ocispec.MediaTypeImageLayer, data))
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, digest.FromBytes(data))
		cfg.History = append(cfg.History, ocispec.History{CreatedBy: said[i%2]})
	}
	raw, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: put(t, s, ocispec.MediaTypeImageConfig, raw), Layers: layers}
	if raw, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	return put(t, s, m.MediaType, raw).Digest
}

func store(t *testing.T) content.Store {
	t.Helper()
	s, err := contentlocal.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// above are origins of an image with n layers above its base.
func above(n int) origins {
	return origins{"pulled from example.com/base@sha256:1", slices.Repeat([]string{"compile it", "copy tool to /opt"}, n)[:n]}
}

// finisherTo is one of a program's own, whose output is in dir.
func finisherTo(t *testing.T, from content.Store, dir string, zstd bool) *finisher {
	t.Helper()
	to, err := contentlocal.NewStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFinisher(from, to, dir)
	if err != nil {
		t.Fatal(err)
	}
	f.epoch, f.zstd = epoch, zstd
	return f
}

func finished(t *testing.T, f *finisher, manifest digest.Digest, own int) (ocispec.Manifest, ocispec.Image) {
	t.Helper()
	d, err := f.image(t.Context(), manifest, above(own))
	if err != nil {
		t.Fatal(err)
	}
	var m ocispec.Manifest
	var cfg ocispec.Image
	if err := readJSON(t.Context(), f.to, d, &m); err != nil {
		t.Fatal(err)
	}
	if err := readJSON(t.Context(), f.to, m.Config.Digest, &cfg); err != nil {
		t.Fatal(err)
	}
	return m, cfg
}

func TestFinish(t *testing.T) {
	for _, z := range []bool{false, true} {
		from := store(t)
		a := exported(t, from, plainTar(t, "shared"), plainTar(t, "a"))
		b := exported(t, from, plainTar(t, "shared"), plainTar(t, "b"))
		f := finisherTo(t, from, t.TempDir(), z)
		ma, cfg := finished(t, f, a, 2)
		mb, _ := finished(t, f, b, 2)
		if ma.Layers[0].Digest != mb.Layers[0].Digest || ma.Layers[1].Digest != mb.Layers[1].Digest || ma.Layers[2].Digest == mb.Layers[2].Digest {
			t.Errorf("zstd=%v: layers %v and %v; want the base's and the shared one to be the same", z, ma.Layers, mb.Layers)
		}
		var said []string
		for _, h := range cfg.History {
			said = append(said, h.CreatedBy)
		}
		if want := []string{"nothing", "pulled from example.com/base@sha256:1", "compile it", "copy tool to /opt"}; !slices.Equal(said, want) {
			t.Errorf("zstd=%v: history %q; want %q", z, said, want)
		}
		if l := ma.Layers[0]; l.MediaType != ocispec.MediaTypeImageLayerGzip || l.Digest != digest.FromBytes(gzipped(t, plainTar(t, "base"))) {
			t.Errorf("zstd=%v: the base's layer became %v", z, l)
		}
		checkLayer(t, f, ma.Layers[1], cfg.RootFS.DiffIDs[1])

		again, _ := finished(t, finisherTo(t, from, t.TempDir(), z), a, 2)
		if again.Config.Digest != ma.Config.Digest || again.Layers[2].Digest != ma.Layers[2].Digest {
			t.Errorf("zstd=%v: finished again, the image is another", z)
		}
	}
}

// checkLayer reads a finished layer: times, and the diff ID in the
// configuration.
func checkLayer(t *testing.T, f *finisher, d ocispec.Descriptor, diffID digest.Digest) {
	t.Helper()
	raw, err := content.ReadBlob(t.Context(), f.to, d)
	if err != nil {
		t.Fatal(err)
	}
	var plain io.Reader
	if f.zstd {
		plain, err = zstd.NewReader(bytes.NewReader(raw))
	} else {
		plain, err = gzip.NewReader(bytes.NewReader(raw))
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	if got := digest.FromBytes(text); got != diffID {
		t.Errorf("diff ID %s; want %s", diffID, got)
	}
	tr := tar.NewReader(bytes.NewReader(text))
	for _, want := range []time.Time{epoch.Add(-time.Hour), epoch} {
		h, err := tr.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(want) {
			t.Errorf("%s is of %s; want %s", h.Name, h.ModTime, want)
		}
	}
}

func TestWithEntrypoint(t *testing.T) {
	from := store(t)
	f := finisherTo(t, from, t.TempDir(), false)
	first, err := f.image(t.Context(), exported(t, from, plainTar(t, "a")), above(1))
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.withEntrypoint(t.Context(), first, []string{"/harness", "certify"})
	if err != nil {
		t.Fatal(err)
	}
	var a, b ocispec.Manifest
	var cfg ocispec.Image
	for d, m := range map[digest.Digest]*ocispec.Manifest{first: &a, second: &b} {
		if err := readJSON(t.Context(), f.to, d, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := readJSON(t.Context(), f.to, b.Config.Digest, &cfg); err != nil {
		t.Fatal(err)
	}
	if a.Layers[1].Digest != b.Layers[1].Digest || len(cfg.Config.Entrypoint) != 2 || cfg.Config.Cmd != nil {
		t.Errorf("layers %v and %v, entry point %v; want the same layers", a.Layers, b.Layers, cfg.Config.Entrypoint)
	}
}

// TestFinishCutOff: a layer that ends early is an error, not a shorter layer.
func TestFinishCutOff(t *testing.T) {
	from := store(t)
	whole := plainTar(t, "a")
	manifest := exported(t, from, whole[:len(whole)/2-7])
	f := finisherTo(t, from, t.TempDir(), false)
	if _, err := f.image(t.Context(), manifest, above(1)); err == nil {
		t.Error("a layer that was cut off was finished")
	}
}

// TestFinishOther: what has other layers than its recipe makes is not that image.
func TestFinishOther(t *testing.T) {
	from := store(t)
	manifest := exported(t, from, plainTar(t, "a"), plainTar(t, "b"))
	for _, n := range []int{0, 1, 3} {
		if _, err := finisherTo(t, from, t.TempDir(), false).image(t.Context(), manifest, above(n)); err == nil {
			t.Errorf("an image of two layers was finished for a recipe of %d", n)
		}
	}
}

// TestFinishTogether: programs that finish the same layers into one output at
// the same time do not write into each other's files; what one that was killed
// has left is removed, and nothing that is in use.
func TestFinishTogether(t *testing.T) {
	from, dir := store(t), t.TempDir()
	var layers [][]byte
	for i := range 4 {
		layers = append(layers, plainTar(t, fmt.Sprint("layer", i)))
	}
	manifest := exported(t, from, layers...)
	blobs := filepath.Join(dir, "blobs", "sha256")
	if err := errors.Join(os.MkdirAll(blobs, 0o755), os.WriteFile(filepath.Join(blobs, ".part-dead"), []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	digests := make([]digest.Digest, 12)
	for i := range digests {
		wg.Go(func() {
			to, err := contentlocal.NewStore(dir)
			if err != nil {
				t.Error(err)
				return
			}
			f, err := newFinisher(from, to, dir)
			if err != nil {
				t.Error(err)
				return
			}
			f.epoch = epoch
			if digests[i], err = f.image(t.Context(), manifest, above(len(layers))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(blobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(blobs, e.Name()))
		if err != nil || digest.FromBytes(data).Encoded() != e.Name() {
			t.Errorf("%s holds something else (%v)", e.Name(), err)
		}
	}
	if len(slices.Compact(digests)) != 1 {
		t.Errorf("the same image has the digests %v", digests)
	}
	if want := 1 + len(layers) + 2; len(entries) != want {
		t.Errorf("%d blobs; want %d: base, layers, configuration and manifest", len(entries), want)
	}
}

// TestStagingIsOnesOwn: a build that ends does not take what another, with the same
// state directory, has exported.
func TestStagingIsOnesOwn(t *testing.T) {
	dir := t.TempDir()
	open := func() *Solver {
		s := &Solver{Provider: &Provider{Mirror: mirror.New(), Lock: lock.New(), StateDir: dir}, OutDir: t.TempDir()}
		if err := s.Provider.Open(); err != nil {
			t.Fatal(err)
		}
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := open(), open()
	m := exported(t, a.staging, plainTar(t, "a"))
	if err := b.Provider.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.finish.image(t.Context(), m, above(1)); err != nil {
		t.Errorf("another build ended, and: %v", err)
	}
}
