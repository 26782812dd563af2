package driver

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	digest "github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/solve"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/attest/walk"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/result"
)

// A candidate is one platform's image to certify, in the layout dir.
type candidate struct {
	dir      string
	name     string
	digest   string
	platform recipe.Platform
	config   *v1.ConfigFile
}

// CertifyOptions say what is trusted.
type CertifyOptions struct {
	// Target is what the image should be: the image is compared with that target's declaration,
	// made from the matrix and the lock. It is "" for an image that is not assay's.
	Target string
}

// Certify certifies every platform of an image that a builder here can run, by the suite "image". A
// failed check is in the results; platforms without a builder are reported as not run. What
// the image claims about itself is not trusted.
func (w *Workspace) Certify(ctx context.Context, ref string, c CertifyOptions, o BuildOptions) ([]ImageResult, error) {
	tmp, err := os.MkdirTemp("", "assay-certify-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	specs, err := w.specs(c)
	if err != nil {
		return nil, err
	}
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
	for i, image := range list {
		out[i] = w.certify(ctx, s, image, c, specs)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return out, nil
}

// A declared is a target's declaration, with the base if its images contain the base's records.
type declared struct {
	spec []byte
	base recipe.Source
}

// specs returns a target's declaration for each of its platforms.
func (w *Workspace) specs(c CertifyOptions) (map[recipe.Platform]declared, error) {
	if c.Target == "" {
		return nil, nil
	}
	targets, err := w.Select([]string{c.Target})
	if err != nil {
		return nil, err
	}
	out := map[recipe.Platform]declared{}
	for _, p := range targets[0].Platforms {
		mk, err := w.Recipe(targets[0], p, p)
		if err != nil {
			return nil, err
		}
		d, err := declare(mk.Recipe)
		if err != nil {
			return nil, err
		}
		out[p] = d
	}
	return out, nil
}

// declare returns what the image of a recipe must be.
func declare(r *recipe.Recipe) (d declared, err error) {
	for _, st := range r.Image().Steps {
		if cp, ok := st.(recipe.Copy); ok && cp.Dst == certificate.BaseStatusPath && cp.From.Digest != "" {
			d.base = cp.From
		}
	}
	d.spec, err = attest.Encode(r.Spec())
	return d, err
}

func (w *Workspace) certify(ctx context.Context, s *solve.Solver, c candidate, o CertifyOptions, specs map[recipe.Platform]declared) ImageResult {
	out := ImageResult{Platform: c.platform.String(), Digest: c.digest}
	sub := solve.Subject{Name: c.name, Digest: digest.Digest(c.digest), Platform: c.platform, Env: c.config.Config.Env}
	if o.Target != "" {
		d, ok := specs[c.platform]
		if sub.Spec, sub.Base = d.spec, d.base; !ok {
			return out.failed(fmt.Errorf("the target %s is not for %s", o.Target, c.platform))
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
	out.Certificate = res.Certificate
	out.Verdict = st.Predicate.Verdict
	if out.Verdict != result.Pass {
		return out.failed(gateError(c.name, c.platform, st))
	}
	policy := attest.Policy{Target: o.Target, Kinds: []attest.Kind{certificate.Kind}}
	if _, err := policy.Verify(out.Certificate, c.digest, out.Platform); err != nil {
		return out.failed(err)
	}
	return out
}

// candidates finds the images of a reference, and copies those of a registry into a layout. Every
// digest in between is verified.
func (w *Workspace) candidates(ctx context.Context, ref, tmp string) ([]candidate, error) {
	dir, what, title := tmp, "", ref
	if rest, ok := strings.CutPrefix(ref, "oci:"); ok {
		dir, what = oci.SplitLayout(rest)
	}
	var l *oci.Layout
	var err error
	if dir == tmp {
		if l, err = oci.Create(tmp); err != nil {
			return nil, err
		}
		if err := oci.CheckReference(w.Mirror.Image(ref)); err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		w.Log("fetching %s", w.Mirror.Image(ref))
		d, err := l.Fetch(ctx, w.Mirror.Image(ref), oci.Options{})
		if err != nil {
			return nil, err
		}
		what = d.Digest.String()
	} else {
		if l, err = oci.Open(dir); err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		d, err := l.Find(what)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		title = cmp.Or(d.Annotations[oci.AnnotationRefName], what)
	}
	ev, err := walk.Verify(ctx, attest.Policy{}, l.Source(what))
	if err != nil {
		return nil, err
	}
	var out []candidate
	for _, img := range ev.Images {
		p, err := recipe.ParsePlatform(img.Config.OS + "/" + img.Config.Architecture)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", title, img.Digest, err)
		}
		out = append(out, candidate{dir: dir, name: title, digest: img.Digest, platform: p, config: img.Config})
	}
	return out, nil
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
