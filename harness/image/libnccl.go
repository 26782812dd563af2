package image

import (
	"context"
	"errors"
	"io/fs"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/libnccl"
	"github.com/assay-hpc/assay/harness/rootfs"
	"github.com/assay-hpc/assay/harness/suite"
)

// ourNCCL is the check that assay's libnccl.so.2 is assay's, has its engine beside it
// and loads. Programs open the engine only when they make a communicator.
func (s *state) ourNCCL(ctx context.Context, env *suite.Env) suite.Result {
	const file, engine = libnccl.Dir + "/" + libnccl.Name, libnccl.Dir + "/" + libnccl.Engine
	id, err := whose(env.Root, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return suite.Skipped("the image has no %s", file)
	case err != nil:
		return suite.Failed("%s: %v", file, err)
	case id.Maker != libnccl.Assay:
		return suite.Failed("%s is %v", file, id)
	}
	if r := s.sharedLibrary(engine); r.Verdict != certificate.Pass {
		return r
	}
	if r := s.load(ctx, env, certificate.Check{Path: file}); r.Verdict != certificate.Pass {
		return r
	}
	return suite.Passed("%v, with its engine", id)
}

// sharedLibrary is whether a file is a library of the image's platform.
func (s *state) sharedLibrary(file string) suite.Result {
	sc, err := s.scan()
	if err != nil {
		return suite.Errored("%v", err)
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if f := sc.loader.File(file); f == nil || !f.Dynamic || f.Kind != sc.kind {
		return suite.Failed("%s is no shared library for %v", file, sc.kind)
	}
	return suite.Passed("%s", file)
}

// foundNCCL says whose libnccl.so.2 programs get that bring none of their own.
func (s *state) foundNCCL(_ context.Context, env *suite.Env) suite.Result {
	sc, err := s.scan()
	if err != nil {
		return suite.Errored("%v", err)
	}
	sc.mu.Lock()
	file, ok := sc.loader.Find(libnccl.Name)
	sc.mu.Unlock()
	if !ok {
		return suite.Skipped("the loader finds no %s", libnccl.Name)
	}
	id, err := whose(env.Root, file)
	switch {
	case err != nil:
		return suite.Failed("%s: %v", file, err)
	case id.Maker == libnccl.Unknown:
		return suite.Skipped("%s does not say whose it is", file)
	}
	return suite.Passed("%v: %s", id, file)
}

// whose reads a library of the image.
func whose(root rootfs.FS, file string) (libnccl.Identity, error) {
	f, err := root.Open(file)
	if err != nil {
		return libnccl.Identity{}, err
	}
	defer f.Close()
	return libnccl.Read(f)
}
