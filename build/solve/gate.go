package solve

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/moby/buildkit/client"
	bkllb "github.com/moby/buildkit/client/llb"
	gateway "github.com/moby/buildkit/frontend/gateway/client"
	"github.com/moby/buildkit/solver/pb"
	digest "github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/llb"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/harness/certificate"
)

// Subject is an image to certify: a manifest in the output layout.
type Subject struct {
	Name     string // its name in the certificate
	Digest   digest.Digest
	Same     map[string]digest.Digest // images with the same content, by name, that the certificate also covers
	Platform recipe.Platform
	Env      []string // the image's own

	// Harness is a harness binary to bring along, which does not trust what the image declares;
	// "" runs the image's own. See [Provider.Harness].
	Harness digest.Digest // of an image in the content store that contains /harness
	// Spec is what a harness that is brought along compares the image with, an encoded
	// [certificate.ImageSpec]; nil means no comparison: what the image declares is not trusted.
	Spec []byte
	// Base is the base of an image with that Spec, if such images contain records of it: the
	// base's own records replace those in the image.
	Base  recipe.Source
	Suite string // "image"
	Fresh bool   // run again even if BuildKit has cached the result
}

// GateResult is what the harness wrote inside the image.
type GateResult struct {
	Certificate []byte // in-toto statement
	Inventory   []byte
}

// BundledHarness is the path of the harness in images.
const BundledHarness = "/opt/assay/bin/harness"

const (
	gateOut  = "/run/assay/out"
	gateSpec = "/run/assay/spec.json"
)

// LoadName is the name of the step that loads an image into the builder again, to certify it.
func LoadName(p recipe.Platform) string { return fmt.Sprintf("[gate %s] load the image", p.Arch) }

// GateName is the name of the step that certifies an image.
func GateName(name string, p recipe.Platform) string {
	return fmt.Sprintf("[gate %s] certify %s from inside", p.Arch, name)
}

// Gate runs the harness inside a finished image, with no network, and returns what it measured. A
// failed check is in the certificate; the error is for a gate that could not be run.
func (s *Solver) Gate(ctx context.Context, sub Subject) (GateResult, error) {
	b, err := daemon.For(s.Builders, sub.Platform)
	if err != nil {
		return GateResult{}, err
	}
	graph, err := s.gateGraph(sub)
	if err != nil {
		return GateResult{}, err
	}
	def, err := graph.Marshal(ctx, bkllb.Platform(llb.OCIPlatform(sub.Platform)))
	if err != nil {
		return GateResult{}, err
	}
	var res GateResult
	err = s.read(ctx, b, def, "gate "+sub.Name+" "+sub.Platform.Arch, func(read func(string) ([]byte, error)) error {
		var err error
		if res.Certificate, err = read("certificate.json"); err != nil {
			return err
		}
		res.Inventory, err = read("inventory.json")
		return err
	})
	return res, err
}

func (s *Solver) gateGraph(sub Subject) (bkllb.State, error) {
	platform := bkllb.Platform(llb.OCIPlatform(sub.Platform))
	img := bkllb.OCILayout("assay.local/out@"+sub.Digest.String(), bkllb.OCIStore("", OutStore), platform,
		bkllb.WithCustomName(LoadName(sub.Platform))).Platform(llb.OCIPlatform(sub.Platform))
	for _, kv := range sub.Env {
		k, v, _ := strings.Cut(kv, "=")
		img = img.AddEnv(k, v)
	}
	harness := BundledHarness
	var spec []string
	if sub.Harness != "" {
		harness, spec = "/run/assay/harness", []string{"--spec", certificate.NoSpec}
		if sub.Spec != nil {
			spec[1] = gateSpec
		}
	}
	args := []string{harness, "certify", "--suite", sub.Suite, "--out", gateOut + "/certificate.json", "--inventory", gateOut + "/inventory.json",
		"--subject", sub.Name + "@" + sub.Digest.String()}
	args = append(args, spec...)
	for _, name := range slices.Sorted(maps.Keys(sub.Same)) {
		args = append(args, "--subject", name+"@"+sub.Same[name].String())
	}
	opts := []bkllb.RunOption{
		bkllb.Args(args),
		bkllb.Network(pb.NetMode_NONE),
		bkllb.ValidExitCodes(0, 1, 3), // the verdict is in the certificate
		bkllb.WithCustomName(GateName(sub.Name, sub.Platform)),
	}
	if sub.Harness != "" {
		opts = append(opts, bkllb.AddMount(harness, bkllb.OCILayout("assay.local/harness@"+sub.Harness.String(), bkllb.OCIStore("", llb.ContentStore), platform), bkllb.SourcePath("harness"), bkllb.Readonly))
	}
	if sub.Spec != nil {
		records, err := s.records(sub.Base, sub.Platform)
		if err != nil {
			return bkllb.State{}, err
		}
		opts = append(opts, bkllb.AddMount(certificate.BaseDir, records, bkllb.SourcePath("records"), bkllb.Readonly))
		opts = append(opts, bkllb.AddMount(gateSpec, bkllb.Scratch().File(bkllb.Mkfile("/spec.json", 0o444, sub.Spec)), bkllb.SourcePath("spec.json"), bkllb.Readonly))
	}
	if sub.Fresh {
		opts = append(opts, bkllb.IgnoreCache)
	}
	return img.Run(opts...).AddMount(gateOut, bkllb.Scratch()), nil
}

// records returns, in the directory "records", what [certificate.BaseDir] contains about a base,
// taken from the base itself; nothing without a base.
func (s *Solver) records(src recipe.Source, p recipe.Platform) (bkllb.State, error) {
	made := bkllb.Mkdir("/records", 0o755)
	if src.Kind == recipe.FromImage {
		ref, err := s.Provider.Image(src)
		if err != nil {
			return bkllb.State{}, err
		}
		base := bkllb.Image(ref, bkllb.Platform(llb.OCIPlatform(p)), bkllb.WithCustomName(llb.BaseName(src, p)))
		in := func(file string) string { return "/records" + strings.TrimPrefix(file, certificate.BaseDir) }
		made = made.Copy(base, "/var/lib/dpkg/status", in(certificate.BaseStatusPath)).
			Copy(base, "/etc/ld.so.cache", in(certificate.BaseCachePath)).
			Copy(base, "/var/lib/dpkg/info", in(certificate.BaseInfoDir), &bkllb.CopyInfo{CopyDirContentsOnly: true, CreateDestPath: true})
	}
	return bkllb.Scratch().File(made), nil
}

// read solves a graph and reads files of the result.
func (s *Solver) read(ctx context.Context, b *daemon.Builder, def *bkllb.Definition, name string, use func(read func(string) ([]byte, error)) error) error {
	watched, w := s.Progress.watch(ctx, name, s.Provider.Limits.Total)
	_, err := b.Client.Build(watched, client.SolveOpt{Session: s.attachables(), OCIStores: s.stores()}, "assay",
		func(ctx context.Context, c gateway.Client) (*gateway.Result, error) {
			res, err := c.Solve(ctx, gateway.SolveRequest{Definition: def.ToPB(), Evaluate: true})
			if err != nil {
				return nil, err
			}
			ref, err := res.SingleRef()
			if err != nil {
				return nil, err
			}
			return gateway.NewResult(), use(func(file string) ([]byte, error) { return readFile(ctx, ref, file) })
		}, w.ch)
	cause := context.Cause(watched) // before wait cancels it
	w.wait()
	if err == nil {
		return nil
	}
	if cause != nil {
		return cause
	}
	return w.stepError(err)
}

// readFile reads a whole file in parts: one response of the gateway is limited by the message
// size of gRPC.
func readFile(ctx context.Context, ref gateway.Reference, file string) ([]byte, error) {
	const part = 1 << 20
	var all []byte
	for {
		data, err := ref.ReadFile(ctx, gateway.ReadRequest{Filename: file, Range: &gateway.FileRange{Offset: len(all), Length: part}})
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		all = append(all, data...)
		if len(data) < part {
			return all, nil
		}
	}
}
