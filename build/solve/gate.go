package solve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moby/buildkit/client"
	bkllb "github.com/moby/buildkit/client/llb"
	gateway "github.com/moby/buildkit/frontend/gateway/client"
	"github.com/moby/buildkit/solver/pb"
	digest "github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/llb"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/confine"
)

// Subject is an image to certify: a manifest in the output layout.
type Subject struct {
	Name     string // its name in the certificate
	Digest   digest.Digest
	Same     map[string]digest.Digest // images with the same content, by name, that the certificate also covers
	Platform recipe.Platform
	Env      []string // the image's own

	// Spec is what the image is compared with, an encoded [certificate.ImageSpec]; nil means no
	// comparison. What the image declares about itself is not trusted.
	Spec []byte
	// Base is the base of an image with that Spec, if such images contain records of it: the
	// base's own records replace those in the image.
	Base recipe.Source
}

// BundledHarness is the path of the harness in images.
const BundledHarness = "/opt/assay/bin/harness"

// LoadName is the name of the step that loads an image into the builder again, to certify it.
func LoadName(p recipe.Platform) string { return fmt.Sprintf("[gate %s] load the image", p.Arch) }

// GateName is the name of the step that certifies an image.
func GateName(name string, p recipe.Platform) string {
	return fmt.Sprintf("[gate %s] certify %s", p.Arch, name)
}

// gateLimit is how long a gate may take. The checks of the largest image take a few minutes, under
// emulation too.
const gateLimit = 30 * time.Minute

// Gate certifies a finished image. A failed check is in the certificate; the error is for a gate
// that could not be run.
//
// Nothing of the image decides: the harness runs in a container of its own, with the image as a
// read-only directory and without network, and its answer comes back through its output. Each
// program of the image that a check starts runs in another container, below a supervisor (package
// confine), which has nothing of the harness.
func (s *Solver) Gate(ctx context.Context, sub Subject) (certificate.GateResult, error) {
	var res certificate.GateResult
	b, err := daemon.For(s.Builders, sub.Platform)
	if err != nil {
		return res, err
	}
	harness, err := s.gateHarness(ctx, b.Native)
	if err != nil {
		return res, err
	}
	name := GateName(sub.Name, sub.Platform)
	ctx, stop := context.WithTimeoutCause(ctx, gateLimit, fmt.Errorf("%s: not done after %v", name, gateLimit))
	defer stop()
	g := &gate{
		subject: sub,
		image: bkllb.OCILayout("assay.local/out@"+sub.Digest.String(), bkllb.OCIStore("", OutStore),
			bkllb.Platform(llb.OCIPlatform(sub.Platform)), bkllb.WithCustomName(LoadName(sub.Platform))),
		binary: bkllb.OCILayout("assay.local/harness@"+harness.String(), bkllb.OCIStore("", llb.ContentStore),
			bkllb.Platform(llb.OCIPlatform(b.Native)), bkllb.WithCustomName(fmt.Sprintf("[gate %s] load the harness", sub.Platform.Arch))),
		records: sub.Spec != nil && sub.Base.Kind == recipe.FromImage,
	}
	records := bkllb.Scratch()
	if g.records {
		if records, err = s.records(sub.Base, sub.Platform); err != nil {
			return res, err
		}
	}
	err = s.converse(ctx, b, "gate "+sub.Name+" "+sub.Platform.Arch, func(ctx context.Context, c gateway.Client, w *watcher) (err error) {
		g.client, g.log = c, w.step(name)
		defer func() { g.log.end(err) }()
		res, err = g.run(ctx, records, b.Native)
		return err
	})
	return res, err
}

// gateHarness makes the harness of gates available to builders of a platform.
func (s *Solver) gateHarness(ctx context.Context, native recipe.Platform) (digest.Digest, error) {
	s.gates.Lock()
	defer s.gates.Unlock()
	if d, ok := s.harness[native]; ok {
		return d, nil
	}
	file, err := s.Harness(ctx, native)
	if err != nil {
		return "", err
	}
	d, err := s.Provider.Harness(file, native)
	if err == nil {
		if s.harness == nil {
			s.harness = map[recipe.Platform]digest.Digest{}
		}
		s.harness[native] = d
	}
	return d, err
}

// A gate is one run of Gate.
type gate struct {
	client  gateway.Client
	subject Subject
	log     *step

	image, binary bkllb.State // binary has the harness
	records       bool
}

// run runs the harness beside the image, and the programs that it asks for.
func (g *gate) run(ctx context.Context, records bkllb.State, native recipe.Platform) (res certificate.GateResult, err error) {
	req := certificate.GateRequest{
		Subjects: []string{g.subject.Name + "@" + g.subject.Digest.String()}, Platform: g.subject.Platform.String(),
		Env: g.subject.Env, Spec: g.subject.Spec, Records: g.records,
	}
	for _, name := range slices.Sorted(maps.Keys(g.subject.Same)) {
		req.Subjects = append(req.Subjects, name+"@"+g.subject.Same[name].String())
	}
	mounts := make([]gateway.Mount, 0, 3)
	for _, m := range []struct {
		dest  string
		state bkllb.State
		of    recipe.Platform
	}{{"/", g.binary, native}, {certificate.GateRoot, g.image, g.subject.Platform}, {certificate.GateRecords, records, g.subject.Platform}} {
		if m.dest == certificate.GateRecords && !g.records {
			continue
		}
		ref, err := g.solve(ctx, m.state, m.of)
		if err != nil {
			return res, err
		}
		mounts = append(mounts, gateway.Mount{Dest: m.dest, Ref: ref, Readonly: true})
	}
	var answer json.RawMessage
	err = g.contain(ctx, mounts, []string{"/harness", "gate"}, func(ctx context.Context, in io.Writer, out io.Reader) (err error) {
		answer, err = confine.Serve(ctx, out, in, req, g.program)
		return err
	})
	if err == nil {
		err = json.Unmarshal(answer, &res)
	}
	return res, err
}

func (g *gate) solve(ctx context.Context, st bkllb.State, p recipe.Platform) (gateway.Reference, error) {
	def, err := st.Marshal(ctx, bkllb.Platform(llb.OCIPlatform(p)))
	if err != nil {
		return nil, err
	}
	res, err := g.client.Solve(ctx, gateway.SolveRequest{Definition: def.ToPB(), Evaluate: true})
	if err != nil {
		return nil, err
	}
	return res.SingleRef()
}

// Where a program's container has what its supervisor reads and writes. The program, which runs as
// another user, can write to neither.
const (
	programFile = "/run/assay/program/program.json"
	outcomeDir  = "/run/assay/out"
	outcomeFile = "outcome.json"
)

// tmpSize is the size of a program's /tmp, in bytes.
const tmpSize = 1 << 30

// program runs a program of the image in a container of its own: the image, read only, with an
// empty /tmp. Nothing of it stays.
func (g *gate) program(ctx context.Context, p confine.Program) confine.Outcome {
	ctx, stop := context.WithTimeoutCause(ctx, p.Limits.Total(), errors.New("it did not end within its limit"))
	defer stop()
	graph, err := g.programGraph(p)
	if err != nil {
		return confine.Failure("%v", err)
	}
	ran, err := g.solve(ctx, graph, g.subject.Platform)
	if err == nil {
		var b []byte
		if b, err = readFile(ctx, ran, outcomeFile); err == nil {
			return confine.ReadOutcome(bytes.NewReader(b), p.Limits)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return confine.Failure("%v", err)
}

// programGraph returns the graph whose result is the outcome of a program.
func (g *gate) programGraph(p confine.Program) (bkllb.State, error) {
	request, err := json.Marshal(p)
	if err != nil {
		return bkllb.State{}, err
	}
	title := fmt.Sprintf("[gate %s] %s: run %.60s", g.subject.Platform.Arch, g.subject.Name, strings.Join(p.Args, " "))
	opts := []bkllb.RunOption{
		bkllb.Args([]string{confine.Path, "confine", programFile, outcomeDir + "/" + outcomeFile}),
		// Directories, since BuildKit leaves a directory behind for each file that it mounts.
		bkllb.AddMount(path.Dir(confine.Path), g.binary, bkllb.Readonly),
		bkllb.AddMount(path.Dir(programFile), bkllb.Scratch().File(bkllb.Mkfile(path.Base(programFile), 0o400, request)), bkllb.Readonly),
		bkllb.AddMount("/tmp", bkllb.Scratch(), bkllb.Tmpfs(bkllb.TmpfsSize(tmpSize))),
		bkllb.ReadonlyRootFS(), bkllb.Network(pb.NetMode_NONE), bkllb.IgnoreCache, bkllb.WithCustomName(title),
	}
	for _, dir := range p.Dirs {
		opts = append(opts, bkllb.AddMount(dir, bkllb.Scratch(), bkllb.Tmpfs(bkllb.TmpfsSize(1<<20))))
	}
	return g.image.Run(opts...).AddMount(outcomeDir, bkllb.Scratch()), nil
}

// contain starts a program in a container without network, talks to it, and removes the container,
// whatever is still running in it.
func (g *gate) contain(ctx context.Context, mounts []gateway.Mount, args []string, talk func(context.Context, io.Writer, io.Reader) error) error {
	ctr, err := g.client.NewContainer(ctx, gateway.NewContainerRequest{Mounts: mounts, NetMode: pb.NetMode_NONE})
	if err != nil {
		return err
	}
	defer ctr.Release(context.WithoutCancel(ctx)) //nolint:errcheck // its end is all that matters
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	proc, err := ctr.Start(ctx, gateway.StartRequest{
		Args: args, Cwd: "/", Stdin: stdin, Stdout: stdout, Stderr: nopCloser{g.log}, Env: []string{"PATH=/"},
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := proc.Wait()
		stdout.Close()
		ended <- err
	}()
	defer context.AfterFunc(ctx, func() {
		stdout.CloseWithError(context.Cause(ctx))
		stdin.CloseWithError(context.Cause(ctx))
	})()
	if err = talk(ctx, in, out); err != nil {
		select { // how the program ended says more than that its answer is missing
		case died := <-ended:
			err = errors.Join(err, died)
		default:
		}
	}
	in.Close()
	out.Close()
	return err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// records returns what [certificate.BaseDir] contains about a base, taken from the base itself.
func (s *Solver) records(src recipe.Source, p recipe.Platform) (bkllb.State, error) {
	ref, err := s.Provider.Image(src)
	if err != nil {
		return bkllb.State{}, err
	}
	base := bkllb.Image(ref, bkllb.Platform(llb.OCIPlatform(p)), bkllb.WithCustomName(llb.BaseName(src, p)))
	in := func(file string) string { return strings.TrimPrefix(file, certificate.BaseDir) }
	return bkllb.Scratch().File(bkllb.Copy(base, "/var/lib/dpkg/status", in(certificate.BaseStatusPath)).
		Copy(base, "/etc/ld.so.cache", in(certificate.BaseCachePath)).
		// As a pattern, since images of others have none.
		Copy(base, strings.Replace(certificate.SpecPath, ".json", ".jso[n]", 1), "/", &bkllb.CopyInfo{AllowWildcard: true, AllowEmptyWildcard: true}).
		Copy(base, "/var/lib/dpkg/info", in(certificate.BaseInfoDir), &bkllb.CopyInfo{CopyDirContentsOnly: true, CreateDestPath: true})), nil
}

// converse connects to a builder's frontend interface, and shows what it does.
func (s *Solver) converse(ctx context.Context, b *daemon.Builder, name string, talk func(context.Context, gateway.Client, *watcher) error) error {
	watched, w := s.Progress.watch(ctx, name, s.Provider.Limits.Total)
	_, err := b.Client.Build(watched, client.SolveOpt{Session: s.attachables(), OCIStores: s.stores()}, "assay",
		func(ctx context.Context, c gateway.Client) (*gateway.Result, error) {
			return gateway.NewResult(), talk(ctx, c, w)
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

// read solves a graph and reads files of the result.
func (s *Solver) read(ctx context.Context, b *daemon.Builder, def *bkllb.Definition, name string, use func(read func(string) ([]byte, error)) error) error {
	return s.converse(ctx, b, name, func(ctx context.Context, c gateway.Client, _ *watcher) error {
		res, err := c.Solve(ctx, gateway.SolveRequest{Definition: def.ToPB(), Evaluate: true})
		if err != nil {
			return err
		}
		ref, err := res.SingleRef()
		if err != nil {
			return err
		}
		return use(func(file string) ([]byte, error) { return readFile(ctx, ref, file) })
	})
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
