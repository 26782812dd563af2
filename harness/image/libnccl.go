package image

import (
	"context"
	"errors"
	"io/fs"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/host/libnccl"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// ourNCCL checks that assay's libnccl.so.2 is assay's, has its engine in the same directory, and
// loads. Programs open the engine only when they create a communicator.
func (s *state) ourNCCL(ctx context.Context, env *suite.Env) result.Result {
	const file, engine = libnccl.Dir + "/" + libnccl.Name, libnccl.Dir + "/" + libnccl.Engine
	id, err := whose(env.Root, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return result.Skipped("the image has no %s", file)
	case err != nil:
		return result.Failed("%s: %v", file, err)
	case id.Maker != libnccl.Assay:
		return result.Failed("%s is %v", file, id)
	}
	if r := s.sharedLibrary(engine); r.Verdict != result.Pass {
		return r
	}
	if r := s.load(ctx, env, certificate.Check{Path: file}); r.Verdict != result.Pass {
		return r
	}
	return result.Passed("%v, with its engine", id)
}

// sharedLibrary checks that a file is a shared library for the image's platform.
func (s *state) sharedLibrary(file string) result.Result {
	sc, err := s.scan()
	if err != nil {
		return result.Errored("%v", err)
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if f := sc.loader.File(file); f == nil || !f.Dynamic || f.Kind != sc.kind {
		return result.Failed("%s is no shared library for %v", file, sc.kind)
	}
	return result.Passed("%s", file)
}

// foundNCCL reports the maker of the libnccl.so.2 that programs without their own copy load.
func (s *state) foundNCCL(_ context.Context, env *suite.Env) result.Result {
	sc, err := s.scan()
	if err != nil {
		return result.Errored("%v", err)
	}
	sc.mu.Lock()
	file, ok := sc.loader.Find(libnccl.Name)
	sc.mu.Unlock()
	if !ok {
		return result.Skipped("the loader finds no %s", libnccl.Name)
	}
	id, err := whose(env.Root, file)
	switch {
	case err != nil:
		return result.Failed("%s: %v", file, err)
	case id.Maker == libnccl.Unknown:
		return result.Skipped("%s does not say which project built it", file)
	}
	return result.Passed("%v: %s", id, file)
}

// whose identifies the maker of a library of the image.
func whose(root rootfs.FS, file string) (libnccl.Identity, error) {
	f, err := root.Open(file)
	if err != nil {
		return libnccl.Identity{}, err
	}
	defer f.Close()
	return libnccl.Read(f)
}
