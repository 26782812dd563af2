package driver

import (
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/build/fetch"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/solve"
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
// could not run, for example because a disk was full.
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
	b.warnOfDisk()
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

// warnOfDisk says so if a build from nothing can fill the disk of the builder that this run starts.
func (b *build) warnOfDisk() {
	if len(b.o.Builders) > 0 {
		return // theirs is elsewhere
	}
	want := uint64(diskFabric)
	if slices.ContainsFunc(b.targets, func(t matrix.Target) bool { return t.CUDA != "" }) {
		want = diskCUDA
	}
	if f := b.disk(want); !f.OK {
		b.Log("disk: %s; without steps of earlier builds a row needs up to %.0f GB: %s", f.Detail, float64(want)/1e9, f.Remedy)
	}
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
