package driver

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	digest "github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/publish"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/solve"
	"github.com/assay-hpc/assay/harness/certificate"
)

// A candidate is one platform's image to certify, in the layout dir.
type candidate struct {
	dir      string
	name     string
	digest   v1.Hash
	platform recipe.Platform
	config   *v1.ConfigFile
}

// Certify runs the suite "image" inside every platform of an image that a
// builder here can run. A failed check is in the results; platforms without a
// builder are reported as not carried out.
func (w *Workspace) Certify(ctx context.Context, ref string, o BuildOptions) ([]ImageResult, error) {
	tmp, err := os.MkdirTemp("", "assay-certify-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	list, err := w.candidates(ctx, ref, tmp)
	if err != nil {
		return nil, err
	}
	o.OutDir = list[0].dir
	s, stop, err := w.NewSolver(ctx, o)
	if err != nil {
		return nil, err
	}
	defer stop()
	out := make([]ImageResult, len(list))
	for i, c := range list {
		out[i] = w.certify(ctx, s, c)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return out, nil
}

func (w *Workspace) certify(ctx context.Context, s *solve.Solver, c candidate) ImageResult {
	out := ImageResult{Platform: c.platform.String(), Digest: c.digest.String()}
	sub := solve.Subject{Name: c.name, Digest: digest.Digest(c.digest.String()), Platform: c.platform, Env: c.config.Config.Env, Suite: "image", Fresh: true}
	if !bundled(c.config) {
		file, err := w.harnessFor(ctx, c.platform)
		if err != nil {
			return out.failed(err)
		}
		if sub.Harness, err = s.Provider.Harness(file, c.platform); err != nil {
			return out.failed(err)
		}
	}
	res, err := s.Gate(ctx, sub)
	if err != nil {
		return out.failed(err)
	}
	st, err := certificate.Parse(res.Certificate)
	if err != nil {
		return out.failed(err)
	}
	out.Certificate, out.Verdict = res.Certificate, st.Predicate.Verdict
	if out.Verdict != certificate.Pass {
		return out.failed(gateError(c.name, c.platform, st))
	}
	return out
}

// bundled reports whether the image has a harness of its own: assay labels
// what it builds.
func bundled(cfg *v1.ConfigFile) bool { return cfg.Config.Labels["dev.assay.target"] != "" }

// harnessFor returns a static harness for the platform, for images that have
// none: compiled here from the source that assay carries.
func (w *Workspace) harnessFor(ctx context.Context, p recipe.Platform) (string, error) {
	file := filepath.Join(w.StateDir, "harness", strings.TrimPrefix(w.source.Digest, "sha256:")[:16]+"-"+p.Arch, "harness")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("the image has no harness of its own, and compiling one for %s needs Go on this machine: %w", p, err)
	}
	src, err := os.MkdirTemp("", "assay-source-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(src)
	if err := untar(w.sourceTar, src); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	w.Log("compiling the harness for %s", p)
	tmp := fmt.Sprintf("%s.%d", file, os.Getpid())
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X github.com/assay-hpc/assay/harness/version.Version="+w.source.Version, "-o", tmp, "./cmd/harness")
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the harness for %s: %w\n%s", p, err, out)
	}
	return file, os.Rename(tmp, file)
}

// candidates finds the images behind a reference and brings them into a
// layout.
func (w *Workspace) candidates(ctx context.Context, ref, tmp string) ([]candidate, error) {
	if rest, ok := strings.CutPrefix(ref, "oci:"); ok {
		return layoutCandidates(rest)
	}
	parsed, err := name.ParseReference(w.Mirror.Image(ref))
	if err != nil {
		return nil, &InputError{err}
	}
	d, err := remote.Get(parsed, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return nil, err
	}
	idx, err := asIndex(d)
	if err != nil {
		return nil, err
	}
	w.Log("fetching %s", parsed)
	if _, err := layout.Write(tmp, idx); err != nil {
		return nil, err
	}
	return platformsIn(tmp, ref, idx)
}

// splitLayout reads DIR, DIR:TARGET, DIR/TARGET or DIR@DIGEST.
func splitLayout(ref string) (dir, what string) {
	if dir, digest, ok := strings.Cut(ref, "@"); ok {
		return dir, digest
	}
	if i := strings.LastIndex(ref, ":"); i > 0 {
		return ref[:i], ref[i+1:]
	}
	if _, err := os.Stat(ref); err != nil {
		if _, err := os.Stat(filepath.Join(filepath.Dir(ref), "index.json")); err == nil {
			return filepath.Dir(ref), filepath.Base(ref)
		}
	}
	return ref, ""
}

func layoutCandidates(ref string) ([]candidate, error) {
	dir, what := splitLayout(ref)
	l, err := publish.Open(dir)
	if err != nil {
		return nil, &InputError{err}
	}
	d, err := l.Find(what)
	if err != nil {
		return nil, &InputError{err}
	}
	title := cmp.Or(d.Annotations[publish.AnnotationRefName], what)
	path := layout.Path(dir)
	if d.MediaType.IsImage() {
		img, err := path.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		c, err := newCandidate(dir, title, img)
		return []candidate{c}, err
	}
	root, err := path.ImageIndex()
	if err != nil {
		return nil, err
	}
	idx, err := root.ImageIndex(d.Digest)
	if err != nil {
		return nil, err
	}
	return platformsIn(dir, title, idx)
}

// asIndex makes an index of a single image, so that both are handled alike.
func asIndex(d *remote.Descriptor) (v1.ImageIndex, error) {
	if d.MediaType.IsIndex() {
		return d.ImageIndex()
	}
	img, err := d.Image()
	if err != nil {
		return nil, err
	}
	return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img}), nil
}

// platformsIn lists an index's images; what is attached beside them (BuildKit's
// attestations, platform unknown) is no image to run.
func platformsIn(dir, title string, idx v1.ImageIndex) ([]candidate, error) {
	m, err := idx.IndexManifest()
	if err != nil {
		return nil, err
	}
	var out []candidate
	for _, d := range m.Manifests {
		if !d.MediaType.IsImage() || d.Platform != nil && d.Platform.OS == "unknown" {
			continue
		}
		img, err := idx.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		c, err := newCandidate(dir, title, img)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no image for linux/amd64 or linux/arm64", title)
	}
	return out, nil
}

func newCandidate(dir, title string, img v1.Image) (candidate, error) {
	cfg, err := img.ConfigFile()
	if err != nil {
		return candidate{}, err
	}
	h, err := img.Digest()
	if err != nil {
		return candidate{}, err
	}
	p, err := recipe.ParsePlatform(cfg.OS + "/" + cfg.Architecture)
	return candidate{dir: dir, name: title, digest: h, platform: p, config: cfg}, err
}

func untar(data []byte, dir string) error {
	tr := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		file := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
}
