package driver

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	godigest "github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/solve"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
)

// run builds all images concurrently, up to Jobs at a time: BuildKit shares what they have in
// common.
func (b *build) run(ctx context.Context) *BuildResult {
	res := &BuildResult{SchemaVersion: 1, Targets: make([]TargetResult, len(b.targets))}
	var g errgroup.Group
	g.SetLimit(cmp.Or(b.o.Jobs, 4))
	var left sync.WaitGroup
	for i, t := range b.targets {
		ps := platformsOf(t, b.o.Platforms)
		tr := &res.Targets[i]
		*tr = TargetResult{Target: t.Name, Images: make([]ImageResult, len(ps))}
		var images sync.WaitGroup
		for j, p := range ps {
			images.Add(1)
			g.Go(func() error {
				defer images.Done()
				tr.Images[j] = b.image(ctx, t, p)
				return nil
			})
		}
		left.Go(func() {
			images.Wait()
			b.assemble(t, tr)
		})
	}
	left.Wait()
	return res
}

// image builds and certifies one platform of one target.
func (b *build) image(ctx context.Context, t matrix.Target, p recipe.Platform) ImageResult {
	out := ImageResult{Platform: p.String()}
	if ctx.Err() != nil {
		return out.failed(context.Cause(ctx))
	}
	if done, ok := b.upToDate(t, p); ok && !b.o.Force && !b.o.Unlocked {
		return done
	}
	builder, err := daemon.For(b.solver.Builders, p)
	if err != nil {
		return out.failed(err)
	}
	mk, err := b.Recipe(t, p, builder.Native)
	if err != nil {
		return out.failed(err)
	}
	if len(mk.Missing) > 0 { // for example for the builder's own architecture
		return out.failed(NotLockedError(b.lockName(), map[string][]component.Missing{t.Name: mk.Missing}))
	}
	rec := record{Hash: b.buildHash(t, p), Started: time.Now()}
	digest, err := b.solver.Build(ctx, mk.Recipe)
	if err != nil {
		return out.failed(err)
	}
	certifier, err := b.solver.WithEntrypoint(ctx, digest, solve.BundledHarness, "certify")
	if err != nil {
		return out.failed(err)
	}
	rec.Digest, rec.Certifier = digest.String(), certifier.String()
	out.Digest, out.Certifier = rec.Digest, rec.Certifier
	gate, err := b.gate(ctx, mk.Recipe, digest, map[string]godigest.Digest{t.Name + certifySuffix: certifier})
	if err != nil {
		return out.failed(err)
	}
	rec.Certificate, rec.Inventory, rec.Finished = gate.Certificate, gate.Inventory, time.Now()
	rec.Started = rec.Finished.Add(-rec.Finished.Sub(rec.Started)) // by the monotonic clock: the other may have been set
	rec.Builder = builder.Addr
	return b.judge(t, p, out, rec)
}

// gate certifies a built image, and those that have the same content.
func (b *build) gate(ctx context.Context, r *recipe.Recipe, digest godigest.Digest, same map[string]godigest.Digest) (certificate.GateResult, error) {
	cfg, err := b.layout.Config(digest.String())
	if err != nil {
		return certificate.GateResult{}, err
	}
	d, err := declare(r)
	if err != nil {
		return certificate.GateResult{}, err
	}
	res, err := b.solver.Gate(ctx, solve.Subject{
		Name: r.Target, Digest: digest, Same: same, Platform: r.Platform, Env: cfg.Config.Env, Spec: d.spec, Base: d.base,
	})
	if err != nil {
		err = exit.With(exit.NotDone, fmt.Errorf("the gate could not be run: %w", err))
	}
	return res, err
}

func (r ImageResult) failed(err error) ImageResult {
	r.Error, r.err = err.Error(), err
	return r
}

// judge reads the certificate and records an image that passed.
func (b *build) judge(t matrix.Target, p recipe.Platform, out ImageResult, rec record) ImageResult {
	st, err := certificate.Parse(rec.Certificate)
	if err != nil {
		return out.failed(err)
	}
	out.Verdict, out.Certificate = st.Predicate.Verdict, rec.Certificate
	if out.Verdict != result.Pass {
		err := gateError(t.Name, p, st)
		if out.Verdict == result.Error { // no check failed
			err = exit.With(exit.NotDone, err)
		}
		return out.failed(err)
	}
	if err := b.verify(t, p, rec); err != nil {
		return out.failed(err)
	}
	out.rec = rec
	if err := b.writeRecord(rec); err != nil {
		return out.failed(err)
	}
	return out
}

// gateError names the checks that an image does not pass.
func gateError(target string, p recipe.Platform, st *certificate.Statement) error {
	var b strings.Builder
	for _, r := range st.Predicate.Results {
		if r.Verdict != result.Fail && r.Verdict != result.Error {
			continue
		}
		fmt.Fprintf(&b, "\n  %s: %s: %s", r.Verdict, r.ID, r.Reason)
		for line := range strings.Lines(strings.TrimSpace(r.Output)) {
			if line = strings.TrimSuffix(line, "\n"); line != r.Reason {
				fmt.Fprintf(&b, "\n    | %s", line)
			}
		}
	}
	return fmt.Errorf("%s %s does not pass the gate, so it gets no tag:%s", target, p.Arch, b.String())
}
