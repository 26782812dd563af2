// Package solve turns recipes into images with BuildKit, all targets at once so that the steps
// they share run once. It runs the gate inside each finished image, and reports what failed,
// where, with the end of its log.
package solve

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	contentlocal "github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/docker/cli/cli/config"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/moby/buildkit/client"
	bkllb "github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/exporter/containerimage/exptypes"
	"github.com/moby/buildkit/session"
	"github.com/moby/buildkit/session/auth/authprovider"
	"github.com/moby/buildkit/session/secrets/secretsprovider"
	digest "github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/llb"
	"github.com/assay-hpc/assay/build/recipe"
)

// OutStore is the id under which the session offers the output layout.
const OutStore = "out"

// A Solver builds recipes with a set of builders.
type Solver struct {
	Builders []*daemon.Builder
	Provider *Provider
	Epoch    time.Time
	OutDir   string // OCI layout that images are written to; "" for one that is removed after the run
	Zstd     bool   // compress layers with zstd instead of gzip
	Progress *Progress
	// CacheFrom and CacheTo are BuildKit cache references: "type=registry,ref=…".
	CacheFrom, CacheTo []string
	// Harness returns a static program of a platform whose command "gate" is image.Gate, of package
	// harness/image: assay itself, or the harness.
	Harness func(context.Context, recipe.Platform) (file string, err error)

	gates   sync.Mutex // guards harness
	harness map[recipe.Platform]digest.Digest

	out, staging content.Store
	finish       *finisher
}

// Open prepares the output directory. The provider must already be open; it makes bases with this
// solver's builders.
func (s *Solver) Open() error {
	s.Provider.run = s.configure
	s.OutDir = cmp.Or(s.OutDir, filepath.Join(s.Provider.work.Dir, "out"))
	var err error
	if s.out, err = contentlocal.NewStore(s.OutDir); err != nil {
		return err
	}
	// BuildKit's exports are stored here until they are finished. Other builds have staging
	// stores of their own.
	if s.staging, err = contentlocal.NewStore(filepath.Join(s.Provider.work.Dir, "staging")); err != nil {
		return err
	}
	s.finish, err = newFinisher(s.staging, s.out, s.OutDir)
	if err == nil {
		s.finish.epoch, s.finish.zstd = s.Epoch, s.Zstd
	}
	return err
}

// env returns what a recipe leaves open, for the given builder.
func (s *Solver) env(ctx context.Context, b *daemon.Builder) llb.Env {
	return llb.Env{
		Native: b.Native, Epoch: s.Epoch,
		URL:    s.Provider.Mirror.URL,
		File:   s.Provider.File,
		Secret: s.secret,
		Image:  s.Provider.Image,
		Layout: s.Provider.Layout,
		Config: func(src recipe.Source, p recipe.Platform) (imageConfig, error) { return s.Provider.Config(ctx, src, p) },
	}
}

// Build builds a recipe's image into the output layout and returns the digest
// of its manifest.
func (s *Solver) Build(ctx context.Context, r *recipe.Recipe) (digest.Digest, error) {
	b, err := daemon.For(s.Builders, r.Platform)
	if err != nil {
		return "", err
	}
	if err := s.Provider.Prepare(ctx, r, b.Native); err != nil {
		return "", err
	}
	state, img, err := llb.Image(r, s.env(ctx, b))
	if err != nil {
		return "", err
	}
	cfg, err := json.Marshal(img)
	if err != nil {
		return "", err
	}
	def, err := state.Marshal(ctx, bkllb.Platform(llb.OCIPlatform(r.Platform)))
	if err != nil {
		return "", err
	}
	attrs := s.exportAttrs()
	attrs[exptypes.ExporterImageConfigKey] = string(cfg)
	opt := client.SolveOpt{
		Exports: []client.ExportEntry{{Type: client.ExporterOCI, Attrs: attrs, OutputStore: s.staging}},
		Session: s.attachables(), OCIStores: s.stores(),
		CacheImports: cacheEntries(s.CacheFrom), CacheExports: cacheEntries(s.CacheTo),
	}
	name := r.Target + " " + r.Platform.Arch
	res, err := s.solve(ctx, b, def, opt, name)
	if err != nil {
		return "", explain(r, err)
	}
	exported, err := digest.Parse(res.ExporterResponse[exptypes.ExporterImageDigestKey])
	if err != nil {
		return "", err
	}
	by, err := originsOf(r)
	if err != nil {
		return "", err
	}
	began := time.Now()
	d, err := s.finish.image(ctx, exported, by)
	if err == nil {
		s.Progress.Took(finishName(name), time.Since(began))
	}
	return d, err
}

// AfterNames returns the names of the steps that follow an image's last step.
func AfterNames(target string, p recipe.Platform) (export, finish string) {
	return exportName(target + " " + p.Arch), finishName(target + " " + p.Arch)
}

func exportName(image string) string { return "[export] " + image }
func finishName(image string) string { return "[finish] " + image }

// baseOf describes the base of a recipe's image, independent of where it was pulled from.
func baseOf(r *recipe.Recipe) (string, error) {
	stages := map[string]recipe.Source{}
	for _, st := range r.Stages {
		stages[st.Name] = st.From
	}
	src := r.Stages[len(r.Stages)-1].From
	for src.Kind == recipe.FromStage {
		src = stages[src.Ref]
	}
	if src.Kind != recipe.FromImage {
		return "made by debootstrap: " + src.Ref, nil
	}
	ref, err := name.ParseReference(src.Ref)
	if err != nil {
		return "", err
	}
	return "pulled from " + ref.Context().Name() + "@" + src.Digest, nil
}

// WithEntrypoint creates an image with the same layers that starts a program.
func (s *Solver) WithEntrypoint(ctx context.Context, manifest digest.Digest, entrypoint ...string) (digest.Digest, error) {
	return s.finish.withEntrypoint(ctx, manifest, entrypoint)
}

// exportAttrs requests the image's own layers as plain tars; see finisher.
func (s *Solver) exportAttrs() map[string]string {
	return map[string]string{
		"tar": "false", "oci-mediatypes": "true", "compression": "uncompressed",
		string(exptypes.OptKeySourceDateEpoch): strconv.FormatInt(s.Epoch.Unix(), 10),
	}
}

func (s *Solver) stores() map[string]content.Store {
	return map[string]content.Store{llb.ContentStore: s.Provider.store, OutStore: s.out}
}

// aptAuth is the id of the secret with the mirrors' credentials for apt.
const aptAuth = "assay.apt-auth"

// secret returns the id of the secret for a URL on a mirror.
func (s *Solver) secret(url string) string {
	if l, ok := s.Provider.Mirror.Location(url); ok {
		return "assay.mirror." + l.Name
	}
	return ""
}

// netrc returns the id of the secret for a URL on a mirror, in .netrc format.
func (s *Solver) netrc(url string) string {
	if id := s.secret(url); id != "" {
		return id + ".netrc"
	}
	return ""
}

// attachables lets the builder use this user's credentials for registries and mirrors. They are
// not part of the graph: BuildKit requests them when it needs them.
func (s *Solver) attachables() []session.Attachable {
	secrets := map[string][]byte{aptAuth: []byte(s.Provider.Mirror.AptAuth())}
	for _, l := range s.Provider.Mirror.Locations() {
		secrets[s.secret(l.URL)] = []byte(l.Header())
		secrets[s.netrc(l.URL)] = []byte(s.Provider.Mirror.Netrc(l.URL))
	}
	return []session.Attachable{secretsprovider.FromMap(secrets), authprovider.NewDockerAuthProvider(authprovider.DockerAuthProviderConfig{
		AuthConfigProvider: authprovider.LoadAuthConfig(config.LoadDefaultConfigFile(discard{})),
	})}
}

// cacheEntries reads "type=registry,ref=host/repo:tag,mode=max".
func cacheEntries(list []string) []client.CacheOptionsEntry {
	var out []client.CacheOptionsEntry
	for _, s := range list {
		e := client.CacheOptionsEntry{Attrs: map[string]string{}}
		for _, kv := range strings.Split(s, ",") {
			if k, v, ok := strings.Cut(kv, "="); !ok {
				e.Type, e.Attrs["ref"] = "registry", kv
			} else if k == "type" {
				e.Type = v
			} else {
				e.Attrs[k] = v
			}
		}
		if e.Type == "" {
			e.Type = "registry"
		}
		out = append(out, e)
	}
	return out
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
