package driver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/solve"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/oci"
)

func (b *build) open(ctx context.Context) error {
	var err error
	if b.layout, err = oci.Create(b.o.OutDir); err != nil {
		return err
	}
	b.solver, b.close, err = b.NewSolver(ctx, b.o)
	return err
}

func (b *build) resolve(ctx context.Context) error {
	return b.lock(ctx, nil)
}

// lock resolves what the lock lacks for the targets; see [Workspace.Resolve].
func (b *build) lock(ctx context.Context, keep func() error) error {
	rep, err := b.Resolve(ctx, b.solver, b.targets, b.o.Platforms, keep)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(rep.Unresolved)) {
		return fmt.Errorf("%s cannot be resolved: %s", key, rep.Unresolved[key])
	}
	return nil
}

// publishers are those whose repositories are trusted only with their own keys.
func (w *Workspace) publishers() []component.Publisher {
	all := w.Publishers
	if all == nil {
		all = component.Publishers
	}
	return append(slices.Clone(all), component.PublishersOf(w.Targets, w.File.Definition)...)
}

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
		Provider: &solve.Provider{Mirror: w.Mirror, Lock: w.Lock, StateDir: w.StateDir, Source: w.sourceTar, Epoch: w.Epoch(), Limits: o.Limits, Publishers: w.publishers(), Log: w.Log, Took: progress.Took},
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
