package solve

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	contentlocal "github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/moby/buildkit/client"
	bkllb "github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/solver/pb"
	digest "github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/base"
	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/llb"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/source"
	"github.com/assay-hpc/assay/internal/oci"
)

const (
	// seedStore is the id under which the session offers the file system that a base's packages are
	// configured in.
	seedStore = "assay-seed"
	// configureLimit is how long the configuration of a base's packages may take: under emulation
	// on a slow machine some minutes.
	configureLimit = time.Hour
	// maxBase is the largest file system, in bytes, that is taken from the builder as a base.
	maxBase = 8 << 30
)

// configure runs a step of a base on the builder, like the steps of recipes: what it executes comes
// from packages that a lock names, and must not reach this machine. It is [base.Maker.Run].
func (s *Solver) configure(ctx context.Context, arch, fileSystem string, step base.Step, out string) error {
	on := recipe.Platform{OS: "linux", Arch: arch}
	b, err := daemon.For(s.Builders, on)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.Provider.work.Dir, "seed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	seed, err := storeSeed(dir, fileSystem, arch)
	if err != nil {
		return err
	}
	store, err := contentlocal.NewStore(dir)
	if err != nil {
		return err
	}
	opts := []bkllb.RunOption{
		bkllb.Args([]string{"/bin/sh", "-euc", step.Script}),
		bkllb.Network(pb.NetMode_NONE),
		bkllb.WithCustomName(llb.VertexName("base", on, "configure packages")),
	}
	for _, kv := range step.Env {
		k, v, _ := strings.Cut(kv, "=")
		opts = append(opts, bkllb.AddEnv(k, v))
	}
	state := bkllb.OCILayout("assay.local/seed@"+seed.String(), bkllb.OCIStore("", seedStore), bkllb.WithCustomName(llb.VertexName("base", on, "packages"))).
		Platform(llb.OCIPlatform(on)).Run(opts...).Root()
	def, err := state.Marshal(ctx, bkllb.Platform(llb.OCIPlatform(on)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, configureLimit, fmt.Errorf("the scripts of the base's packages have not ended within %v", configureLimit))
	defer cancel()
	opt := client.SolveOpt{
		Exports: []client.ExportEntry{{Type: client.ExporterTar, Output: func(map[string]string) (io.WriteCloser, error) {
			f, err := os.Create(out) // again for each attempt
			return &limited{f, maxBase}, err
		}}},
	}
	opt.OCIStores = s.stores()
	opt.OCIStores[seedStore] = store
	_, err = s.solve(ctx, b, def, opt, "base "+arch)
	return err
}

// storeSeed makes an image of a file system in a layout of its own, and returns its manifest.
func storeSeed(dir, fileSystem, arch string) (digest.Digest, error) {
	layout, err := oci.Create(dir)
	if err != nil {
		return "", err
	}
	layer, err := tarball.LayerFromFile(fileSystem)
	if err != nil {
		return "", err
	}
	img, err := source.FromLayer(layer, arch, nil)
	if err != nil {
		return "", err
	}
	if err := layout.Put("seed", img); err != nil {
		return "", err
	}
	h, err := img.Digest()
	return digest.Digest(h.String()), err
}

// limited refuses to write more than a number of bytes.
type limited struct {
	*os.File
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, fmt.Errorf("the base is larger than %d GB", int64(maxBase)>>30)
	}
	return l.File.Write(p)
}
