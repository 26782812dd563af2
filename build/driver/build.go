package driver

import (
	"cmp"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	godigest "github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/inspect"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/provenance"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/sbom"
	"github.com/assay-hpc/assay/build/solve"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/result"
)

// BuildOptions are the options of "assay build".
type BuildOptions struct {
	Names     []string
	Platforms []recipe.Platform // empty for the target's own
	OutDir    string            // OCI layout
	Push      string            // repository, "" for none
	Builders  []string
	Jobs      int
	Zstd      bool
	Unlocked  bool // resolve what the lock lacks, for this build only
	Force     bool // build and certify even what is up to date
	CacheFrom []string
	CacheTo   []string
	SignKey   crypto.Signer
	// BuilderKey signs the records of what was built and certified; nil: the state directory's own.
	BuilderKey crypto.Signer
	// TrustBuilders are keys of other builders whose records count.
	TrustBuilders []crypto.PublicKey
	Progress      string // progressui's mode
	Buildkitd     string
	Limits        fetch.Limits
}

// An ImageResult is one platform of one target.
type ImageResult struct {
	Platform    string          `json:"platform"`
	Digest      string          `json:"digest,omitempty"`
	Certifier   string          `json:"certifierDigest,omitempty"` // the same image with the entrypoint "harness certify"
	UpToDate    bool            `json:"upToDate,omitempty"`
	Verdict     result.Verdict  `json:"verdict,omitempty"`
	Certificate json.RawMessage `json:"certificate,omitempty"`
	Error       string          `json:"error,omitempty"`

	err error
	rec record
}

// NotDone reports whether the image was not judged: it could not be certified, for example because
// a disk was full.
func (r ImageResult) NotDone() bool {
	return r.Error != "" && r.Verdict != result.Pass && r.Verdict != result.Fail
}

// A TargetResult is the outcome of one target.
type TargetResult struct {
	Target string        `json:"target"`
	Digest string        `json:"digest,omitempty"` // of the index
	Tags   []string      `json:"tags,omitempty"`
	Images []ImageResult `json:"images"`
	Pushed *oci.Result   `json:"pushed,omitempty"`
	Error  string        `json:"error,omitempty"`
	Failed bool          `json:"failed"`

	notDone bool // every image that failed was not judged
}

// A BuildResult is the outcome of a build.
type BuildResult struct {
	SchemaVersion int            `json:"schemaVersion"`
	Targets       []TargetResult `json:"targets"`
	Executed      int            `json:"stepsExecuted"`
	Cached        int            `json:"stepsCached"`
	Seconds       float64        `json:"seconds"`
}

// Failed reports whether any target failed.
func (r *BuildResult) Failed() bool {
	return slices.ContainsFunc(r.Targets, func(t TargetResult) bool { return t.Failed })
}

// Status returns the exit status of a build: 3 if no target failed otherwise than that its gate
// could not be carried out, for example because a disk was full.
func (r *BuildResult) Status() int {
	status := exit.Pass
	for _, t := range r.Targets {
		switch {
		case t.Failed && !t.notDone:
			return exit.Fail
		case t.Failed:
			status = exit.NotDone
		}
	}
	return status
}

// Build builds, certifies and, if asked to, publishes targets. If one target fails, the others
// continue; its failure is in the result. The error is for what prevented the build from running
// at all.
func (w *Workspace) Build(ctx context.Context, o BuildOptions) (*BuildResult, error) {
	start := time.Now()
	targets, err := w.buildTargets(o)
	if err != nil {
		return nil, err
	}
	b := &build{Workspace: w, o: o, targets: targets}
	if err := b.openPush(ctx); err != nil { // before the work, not after it
		return nil, err
	}
	if res, ok := b.allUpToDate(); ok {
		return b.finish(ctx, res, start)
	}
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	defer b.close()
	if o.Unlocked {
		if err := b.resolve(ctx); err != nil {
			return nil, err
		}
	}
	res := b.run(ctx)
	res.Executed, res.Cached = b.solver.Progress.Steps()
	b.solver.Progress.Close()
	if err := rememberTimes(w.StateDir, b.solver.Progress.Times()); err != nil {
		w.Log("how long the steps took is not kept: %v", err)
	}
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	return b.finish(ctx, res, start)
}

// openPush opens the repository to push to, if there is one, and reports whether its name, the
// moving tags and this machine's login there would do.
func (b *build) openPush(ctx context.Context) error {
	if b.o.Push == "" {
		return nil
	}
	repo, err := oci.OpenRepository(b.o.Push, oci.Options{})
	if err != nil {
		return exit.With(exit.Usage, fmt.Errorf("--push: %w", err))
	}
	for _, t := range b.targets {
		if err := repo.CheckTags(t.Moving); err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--push: %s: %w", t.Name, err))
		}
	}
	b.repo = repo
	if err := repo.Writable(ctx); err != nil {
		return fmt.Errorf("--push: nothing was built: %w", err)
	}
	return nil
}

// buildTargets returns the targets to build. What the lock lacks is an error unless it is to be
// resolved first.
func (w *Workspace) buildTargets(o BuildOptions) ([]matrix.Target, error) {
	targets, err := w.Select(o.Names)
	if err != nil || o.Unlocked {
		return targets, err
	}
	need, err := w.Unlocked(targets, o.Platforms)
	if err == nil && len(need) > 0 {
		err = NotLockedError(w.lockName(), need)
	}
	return targets, err
}

func (w *Workspace) lockName() string { return cmp.Or(w.LockPath, "matrix.lock (embedded)") }

// NewSolver starts or finds the builders. The caller stops them with the returned function.
func (w *Workspace) NewSolver(ctx context.Context, o BuildOptions) (*solve.Solver, func(), error) {
	builders, err := daemon.Connect(ctx, daemon.Options{
		Addrs: o.Builders, StateDir: filepath.Join(w.StateDir, "buildkit"), Binary: cmp.Or(o.Buildkitd, os.Getenv("ASSAY_BUILDKITD")), Log: w.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	closeAll := func() {
		for _, b := range builders {
			if err := b.Close(); err != nil {
				w.Log("builder %s: %v", b.Addr, err)
			}
		}
	}
	progress, err := solve.NewProgress(os.Stderr, cmp.Or(o.Progress, "auto"))
	if err != nil {
		closeAll()
		return nil, nil, exit.With(exit.Usage, err)
	}
	s := &solve.Solver{
		Builders: builders, OutDir: o.OutDir, Zstd: o.Zstd, Epoch: w.Epoch(), Progress: progress, CacheFrom: o.CacheFrom, CacheTo: o.CacheTo, Harness: w.gateHarness,
		Provider: &solve.Provider{Mirror: w.Mirror, Lock: w.Lock, StateDir: w.StateDir, Source: w.sourceTar, Epoch: w.Epoch(), Limits: o.Limits, Publishers: w.Publishers, Log: w.Log, Took: progress.Took},
	}
	stop := func() {
		progress.Close()
		closeAll()
		if err := s.Provider.Close(); err != nil {
			w.Log("%v", err)
		}
	}
	err = s.Provider.Open()
	if err == nil {
		err = s.Open()
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return s, stop, nil
}

// build is one run of Build.
type build struct {
	*Workspace
	o       BuildOptions
	targets []matrix.Target
	solver  *solve.Solver
	layout  *oci.Layout
	repo    *oci.Repository // to push to, nil for none
	close   func()
}

func (b *build) open(ctx context.Context) error {
	var err error
	if b.layout, err = oci.Create(b.o.OutDir); err != nil {
		return err
	}
	b.solver, b.close, err = b.NewSolver(ctx, b.o)
	return err
}

func (b *build) resolve(ctx context.Context) error {
	rep, err := b.Resolve(ctx, b.solver, b.targets, b.o.Platforms, nil)
	if err != nil {
		return err
	}
	for key, why := range rep.Unresolved {
		return fmt.Errorf("%s cannot be resolved: %s", key, why)
	}
	return nil
}

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
	cfg, err := b.layout.Config(rec.Digest)
	if err != nil {
		return out.failed(err)
	}
	d, err := declare(mk.Recipe)
	if err != nil {
		return out.failed(err)
	}
	gate, err := b.solver.Gate(ctx, solve.Subject{
		Name: t.Name, Digest: digest, Same: map[string]godigest.Digest{t.Name + certifySuffix: certifier}, Platform: p, Env: cfg.Config.Env,
		Spec: d.spec, Base: d.base,
	})
	if err != nil {
		return out.failed(exit.With(exit.NotDone, fmt.Errorf("the gate could not be run: %w", err)))
	}
	rec.Certificate, rec.Inventory, rec.Finished = gate.Certificate, gate.Inventory, time.Now()
	rec.Started = rec.Finished.Add(-rec.Finished.Sub(rec.Started)) // by the monotonic clock: the other may have been set
	rec.Builder = builder.Addr
	return b.judge(t, p, out, rec)
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
		if r.Output != "" {
			fmt.Fprintf(&b, "\n    | %s", strings.ReplaceAll(strings.TrimSpace(r.Output), "\n", "\n    | "))
		}
	}
	return fmt.Errorf("%s %s does not pass the gate, so it gets no tag:%s", target, p.Arch, b.String())
}

// attach adds the image's documents as referrers of its manifest.
func (b *build) attach(t matrix.Target, p recipe.Platform, rec record, digest string) error {
	// As in the hash, the builder's own platform is left out: the documents describe the content
	// of the image.
	mk, err := b.Recipe(t, p, p)
	if err != nil {
		return err
	}
	docs, err := b.documents(t, p, rec, digest, mk.Recipe)
	if err != nil {
		return err
	}
	subject, err := v1.NewHash(digest)
	if err != nil {
		return err
	}
	for _, d := range docs {
		a, err := inspect.Artifact(d, b.o.SignKey)
		if err != nil {
			return err
		}
		if _, err := b.layout.Attach(subject, a); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) documents(t matrix.Target, p recipe.Platform, rec record, digest string, r *recipe.Recipe) ([][]byte, error) {
	inv, err := certificate.ParseInventory(rec.Inventory)
	if err != nil {
		return nil, err
	}
	var base []recipe.Deb
	if d := t.Base.Debootstrap; d != nil {
		base = b.Lock.Debs[component.BaseKey(*d, p)].Packages
	}
	debs := slices.Clone(base)
	for _, st := range r.Image().Steps {
		if a, ok := st.(recipe.Apt); ok {
			debs = append(debs, a.Debs...)
		}
	}
	bom, err := sbom.Statement(sbom.Image{
		Target: t.Name, Digest: digest, Platform: p, Distro: t.Distro, Release: t.Release, Tool: "assay-" + b.Version, Created: b.Epoch(),
		Packages: inv.Packages, Debs: debs, Components: r.Components,
	})
	if err != nil {
		return nil, err
	}
	prov, err := provenance.Statement(provenance.Build{
		Recipe: r, Digest: digest, MatrixFile: b.File.Name, MatrixDigest: sha256Of(b.text), LockDigest: sha256Of(b.Lock.Marshal()),
		Epoch: b.Lock.Epoch, More: base, Builder: provenance.Builder{ID: builderID()}, InvocationID: invocationID(), Started: rec.Started, Finished: rec.Finished,
	})
	return [][]byte{rec.Certificate, bom, prov}, err
}

// builderID identifies what ran the build: the workflow on GitHub, this program elsewhere.
func builderID() string {
	if ref := os.Getenv("GITHUB_WORKFLOW_REF"); ref != "" {
		return "https://github.com/" + ref
	}
	return "https://github.com/assay-hpc/assay/local-build"
}

func invocationID() string {
	if id := os.Getenv("GITHUB_RUN_ID"); id != "" {
		return "https://github.com/" + os.Getenv("GITHUB_REPOSITORY") + "/actions/runs/" + id
	}
	return ""
}

// certifySuffix marks the images, and their tags, that run "harness certify".
const certifySuffix = "-certify"

// assemble attaches the documents and creates the multi-arch indexes of the target and of its
// certifier, once every platform has passed.
func (b *build) assemble(t matrix.Target, tr *TargetResult) {
	tr.notDone = true
	for _, img := range tr.Images {
		if img.err != nil {
			var e *exit.Error
			tr.Failed, tr.notDone = true, tr.notDone && errors.As(img.err, &e) && e.Status == exit.NotDone
			tr.Error = strings.TrimSpace(tr.Error + "\n" + img.Error)
		}
	}
	if tr.Failed {
		return
	}
	h, err := b.index(t, t.Name, tr.Images, func(r record) string { return r.Digest })
	if err == nil {
		tr.Digest = h.String()
		_, err = b.index(t, t.Name+certifySuffix, tr.Images, func(r record) string { return r.Certifier })
	}
	if err == nil {
		err = b.remember(tr)
	}
	if err != nil {
		tr.Failed, tr.Error, tr.notDone = true, err.Error(), false
	}
}

// index attaches documents to one image of each platform, then puts the images under a name:
// everything that the name promises exists before the name does.
func (b *build) index(t matrix.Target, name string, results []ImageResult, which func(record) string) (v1.Hash, error) {
	var images []oci.PlatformImage
	for _, img := range results {
		p, err := recipe.ParsePlatform(img.Platform)
		if err != nil {
			return v1.Hash{}, err
		}
		digest := which(img.rec)
		if err := b.attach(t, p, img.rec, digest); err != nil {
			return v1.Hash{}, err
		}
		images = append(images, oci.PlatformImage{Platform: v1.Platform{OS: p.OS, Architecture: p.Arch}, Digest: digest})
	}
	return b.layout.Assemble(name, images, nil)
}

// finish determines the tags, publishes what passed, and records the duration.
func (b *build) finish(ctx context.Context, res *BuildResult, start time.Time) (*BuildResult, error) {
	for i, t := range b.targets {
		tr := &res.Targets[i]
		if tr.Failed {
			continue
		}
		p, err := b.plan(t)
		if err != nil {
			return res, err
		}
		if len(platformsOf(t, b.o.Platforms)) == len(t.Platforms) {
			// A tag means "for every platform"; a partial build gets none.
			tr.Tags = append([]string{p.Tag}, t.Moving...)
		}
		if b.repo == nil {
			continue
		}
		if len(tr.Tags) == 0 {
			b.Log("%s: built for %d of %d platforms, so it is pushed by digest, without a tag", t.Name, len(tr.Images), len(t.Platforms))
		}
		if tr.Pushed, err = b.push(ctx, b.repo, t, tr.Tags); err != nil {
			tr.Failed, tr.Error, tr.notDone = true, err.Error(), false
		}
	}
	res.Seconds = time.Since(start).Seconds()
	return res, nil
}

// push publishes a target and its certifier, whose tags end in "-certify". Both are there and
// verified before a tag of either moves, and the target's own move last.
func (b *build) push(ctx context.Context, repo *oci.Repository, t matrix.Target, tags []string) (*oci.Result, error) {
	policy := attest.Policy{Target: t.Name, Required: inspect.All}
	for _, p := range platformsOf(t, b.o.Platforms) {
		policy.Platforms = append(policy.Platforms, p.String())
	}
	if b.o.SignKey != nil {
		policy.Keys = []crypto.PublicKey{b.o.SignKey.Public()}
	}
	var certifierTags []string
	for _, tag := range tags {
		certifierTags = append(certifierTags, tag+certifySuffix)
	}
	root, r, err := upload(ctx, b.layout, t.Name, repo, tags, policy)
	if err != nil {
		return nil, err
	}
	certifier, c, err := upload(ctx, b.layout, t.Name+certifySuffix, repo, certifierTags, policy)
	if r.Add(c); err != nil {
		return &r, err
	}
	c, err = repo.Tag(ctx, b.layout, certifier, certifierTags)
	if r.Add(c); err != nil {
		return &r, err
	}
	c, err = repo.Tag(ctx, b.layout, root, tags)
	r.Add(c)
	return &r, err
}
