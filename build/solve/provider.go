package solve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	contentlocal "github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/assay-hpc/assay/build/archive"
	"github.com/assay-hpc/assay/build/base"
	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/llb"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/mirror"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/source"
	"github.com/assay-hpc/assay/build/state"
	"github.com/assay-hpc/assay/internal/oci"
)

type imageConfig = ocispec.ImageConfig

// A Provider supplies what recipes refer to but do not contain: bases made of packages, the
// harness's source, and the configuration of base images.
type Provider struct {
	Mirror   *mirror.Resolver
	Lock     *lock.Lock
	StateDir string
	Source   []byte // tar of the harness's source
	Epoch    time.Time
	Limits   fetch.Limits
	// Publishers are the publishers with pinned keys; nil means [component.Publishers].
	Publishers []component.Publisher
	Log        func(format string, args ...any)
	Took       func(name string, d time.Duration) // if not nil, called with the time that creating content took

	sumKey   string // of Go's checksum database, for tests
	work     *state.Work
	contents *oci.Layout
	store    content.Store
	cache    fetch.Cache
	// run runs the steps of bases; a Solver sets it.
	run    func(ctx context.Context, arch, fileSystem string, step base.Step, out string) error
	making sync.Map // maps key to sync.OnceValue: each base is made once
}

// Open prepares the state directory, and removes what killed programs have left in it.
func (p *Provider) Open() error {
	dir := filepath.Join(p.StateDir, "content")
	var err error
	if p.work, err = state.Claim(filepath.Join(p.StateDir, "work")); err != nil {
		return err
	}
	if p.contents, err = oci.Create(dir); err != nil {
		return err
	}
	p.cache = fetch.Cache{Dir: filepath.Join(p.StateDir, "downloads"), Limits: p.Limits, Authorization: p.Mirror.Authorization}
	if err := p.cache.Sweep(); err != nil {
		return err
	}
	p.store, err = contentlocal.NewStore(dir)
	return err
}

// Close removes what only this run needed.
func (p *Provider) Close() error {
	if p.work == nil {
		return nil
	}
	return p.work.Close()
}

// Prepare creates all content that the recipe refers to and the store lacks.
func (p *Provider) Prepare(ctx context.Context, r *recipe.Recipe, native recipe.Platform) error {
	for _, s := range r.Stages {
		on := r.Platform
		if s.Native {
			on = native
		}
		for _, src := range s.Sources() {
			if src.Kind != recipe.FromLayout {
				continue
			}
			if err := p.make(ctx, src, on); err != nil {
				var status *fetch.StatusError
				if errors.As(err, &status) && (status.Code == http.StatusNotFound || status.Code == http.StatusGone) {
					err = fmt.Errorf("%w; %s", err, staleHint(r.Target))
				}
				return fmt.Errorf("%s for %s: %w", src.Ref, on, err)
			}
		}
	}
	return p.files(ctx, r)
}

// files creates content from the downloads that come from a directory of this machine, once each.
func (p *Provider) files(ctx context.Context, r *recipe.Recipe) error {
	for sum, url := range downloads(r) {
		at, err := p.Mirror.URL(url)
		if err != nil {
			return err
		}
		if sum == "" || !mirror.IsPath(at) {
			continue
		}
		if _, have, err := p.contents.Get(fileKey(sum)); have || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		file, err := p.cache.Get(ctx, at, strings.TrimPrefix(sum, "sha256:"))
		if err != nil {
			return fmt.Errorf("%s: %w", url, err)
		}
		img, err := source.File(file, llb.FileName, 0o600, runtime.GOARCH) // the mode that BuildKit gives a download, so that its cache treats what follows as the same
		if err != nil {
			return err
		}
		if err := p.contents.Put(fileKey(sum), img); err != nil {
			return err
		}
	}
	return nil
}

// fileKey returns the key under which files stores a download.
func fileKey(sum string) string { return fmt.Sprintf("file/%d/%s", contentFormat, sum) }

// File returns the manifest of a download that files has put into the store.
func (p *Provider) File(sum string) (digest.Digest, error) {
	img, ok, err := p.contents.Get(fileKey(sum))
	if err != nil || !ok {
		return "", fmt.Errorf("the file was not prepared (%v)", err)
	}
	h, err := img.Digest()
	return digest.Digest(h.String()), err
}

// contentFormat changes whenever the same inputs produce different content.
const contentFormat = 2

func (p *Provider) key(src recipe.Source, on recipe.Platform) string {
	return fmt.Sprintf("%d/%s@%s/%s@%d", contentFormat, src.Ref, src.Digest, on.Arch, p.Epoch.Unix())
}

func (p *Provider) make(ctx context.Context, src recipe.Source, on recipe.Platform) error {
	key := p.key(src, on)
	once, _ := p.making.LoadOrStore(key, sync.OnceValue(func() error {
		if _, ok, err := p.contents.Get(key); ok || err != nil {
			return err
		}
		began := time.Now()
		img, done, err := p.image(ctx, src, on)
		if err != nil {
			return err
		}
		defer done()
		err = p.contents.Put(key, img)
		if err == nil && p.Took != nil {
			p.Took(MakeName(src, on), time.Since(began))
		}
		return err
	}))
	return once.(func() error)()
}

func (p *Provider) image(ctx context.Context, src recipe.Source, on recipe.Platform) (v1.Image, func(), error) {
	if src.Ref == component.HarnessSource {
		img, err := source.Image(p.Source, on.Arch)
		return img, func() {}, err
	}
	d, ok := parseBase(src.Ref)
	if !ok {
		return nil, nil, fmt.Errorf("no component makes %q", src.Ref)
	}
	return p.debootstrap(ctx, d, on)
}

// MakeName is the name of the creation of content in [Progress.Times].
func MakeName(src recipe.Source, on recipe.Platform) string {
	return fmt.Sprintf("[make] %s %s", src.Ref, on)
}

func parseBase(ref string) (matrix.Debootstrap, bool) {
	f := strings.Split(ref, "-")
	if len(f) != 3 || f[0] != "base" {
		return matrix.Debootstrap{}, false
	}
	return matrix.Debootstrap{Suite: f[1], Variant: f[2]}, true
}

func (p *Provider) debootstrap(ctx context.Context, d matrix.Debootstrap, on recipe.Platform) (v1.Image, func(), error) {
	m, err := p.Maker(d.Suite, on.Arch)
	if err != nil {
		return nil, nil, err
	}
	if m.Run == nil {
		return nil, nil, errors.New("it needs a builder")
	}
	file, err := m.Make(ctx, d, on.Arch, p.Lock.Debs[component.BaseKey(d, on)].Packages)
	if err != nil {
		return nil, nil, err
	}
	done := func() { os.Remove(file) }
	layer, err := tarball.LayerFromFile(file, tarball.WithCompressedCaching)
	if err != nil {
		done()
		return nil, nil, err
	}
	img, err := source.FromLayer(layer, on.Arch, []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
	return img, done, err
}

// Harness makes a harness binary available to the builder, and returns the digest of the image
// that contains it.
func (p *Provider) Harness(file string, on recipe.Platform) (digest.Digest, error) {
	img, err := source.File(file, "harness", 0o755, on.Arch)
	if err != nil {
		return "", err
	}
	if err := p.contents.Put("harness/"+on.Arch, img); err != nil {
		return "", err
	}
	h, err := img.Digest()
	return digest.Digest(h.String()), err
}

// Maker returns the maker of bases of a suite for an architecture on this machine.
func (p *Provider) Maker(suite, arch string) (*base.Maker, error) {
	a := archive.Of(suite, arch)
	root, err := p.Mirror.URL(a.Scheme)
	if err != nil {
		return nil, err
	}
	root = strings.TrimSuffix(root, "/")
	// The base's own sources name it, so it must not be a mirror: the base would depend on this machine.
	canon, err := p.Mirror.Root(a.Scheme)
	if err != nil {
		return nil, fmt.Errorf("a base of %s names the archive, and no mirror, as its source of packages; debootstrap knows the archive, and none is installed here (make deps): %w", suite, err)
	}
	return &base.Maker{
		Dir: p.work.Dir, Archive: a, Root: root, Canon: canon,
		Name: p.Mirror.Name, Netrc: p.Mirror.Netrc(root), Fetch: p.fetchDeb, Run: p.run, Epoch: p.Epoch, Log: p.Log,
	}, nil
}

func (p *Provider) fetchDeb(ctx context.Context, d recipe.Deb) (string, error) {
	return p.fetch(ctx, d.URL, d.SHA256)
}

// fetch returns the path in the cache of a locked download.
func (p *Provider) fetch(ctx context.Context, url, sha256 string) (string, error) {
	at, err := p.Mirror.URL(url)
	if err != nil {
		return "", err
	}
	return p.cache.Get(ctx, at, sha256)
}

// Keep writes a locked download to a file, unless the file has that content already. of is what an
// error calls it.
func (p *Provider) Keep(ctx context.Context, of, url, sha256, file string) error {
	if sum, err := fetch.SumFile(file); err == nil && sum == sha256 {
		return nil
	}
	cached, err := p.fetch(ctx, url, sha256)
	if err != nil {
		return fmt.Errorf("%s: %w", of, err)
	}
	data, err := os.ReadFile(cached)
	if err != nil {
		return err
	}
	return p.writeFile(file, data)
}

// Sum downloads a URL and returns its SHA-256 and size, for locking. Downloads that can be
// verified are verified: the Go toolchain, and publishers' keys.
func (p *Provider) Sum(ctx context.Context, url string) (string, int64, error) {
	at, err := p.Mirror.URL(url)
	if err != nil {
		return "", 0, err
	}
	sum, file, err := p.cache.Sum(ctx, at)
	if err != nil {
		return "", 0, err
	}
	if pub, ok := p.publisherOf(url); ok && path.Ext(url) == ".gpg" {
		var keyring []byte
		if keyring, err = os.ReadFile(file); err == nil {
			err = pinned(pub, keyring)
		}
	} else if version, ok := toolchainVersion(url); ok {
		err = p.checkToolchain(ctx, version, file)
	}
	if err != nil {
		return "", 0, errors.Join(fmt.Errorf("%s: %w", url, err), os.Remove(file))
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", 0, err
	}
	return sum, info.Size(), nil
}

// Layout returns the manifest of content made by Prepare.
func (p *Provider) Layout(src recipe.Source, on recipe.Platform) (digest.Digest, error) {
	img, ok, err := p.contents.Get(p.key(src, on))
	if err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("%s for %s was not prepared", src.Ref, on)
	}
	h, err := img.Digest()
	return digest.Digest(h.String()), err
}

// Image returns the reference to pull for a pinned base.
func (p *Provider) Image(src recipe.Source) (string, error) {
	ref := p.Mirror.Image(src.Ref)
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return "", err
	}
	return parsed.Context().Name() + "@" + src.Digest, nil
}

// Config returns a base's image configuration.
func (p *Provider) Config(ctx context.Context, src recipe.Source, on recipe.Platform) (imageConfig, error) {
	if src.Kind == recipe.FromLayout {
		img, ok, err := p.contents.Get(p.key(src, on))
		if err != nil || !ok {
			return imageConfig{}, fmt.Errorf("%s for %s was not prepared (%v)", src.Ref, on, err)
		}
		raw, err := img.RawConfigFile()
		return parseConfig(raw, err)
	}
	file := filepath.Join(p.StateDir, "configs", strings.ReplaceAll(src.Digest, ":", "-")+"-"+on.Arch+".json")
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if raw, err = p.remoteConfig(ctx, src, on); err == nil {
			err = p.writeFile(file, raw)
		}
	}
	return parseConfig(raw, err)
}

func parseConfig(raw []byte, err error) (imageConfig, error) {
	var img ocispec.Image
	if err == nil {
		err = json.Unmarshal(raw, &img)
	}
	return img.Config, err
}

func (p *Provider) remoteConfig(ctx context.Context, src recipe.Source, on recipe.Platform) ([]byte, error) {
	at, err := p.Image(src)
	if err != nil {
		return nil, err
	}
	raw, err := oci.RawConfig(ctx, at, v1.Platform{OS: on.OS, Architecture: on.Arch}, oci.Options{})
	if err != nil {
		return nil, fmt.Errorf("base %s: %w", src.Ref, err)
	}
	return raw, nil
}

// writeFile replaces a file atomically.
func (p *Provider) writeFile(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp, err := state.CreatePart(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer tmp.Close()
	if _, err := tmp.Write(data); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return errors.Join(tmp.Chmod(0o644), os.Rename(tmp.Name(), file))
}
