// Package llb turns a recipe into BuildKit's graph. It does no I/O: the caller provides whatever
// must be looked up (a mirror's URL, a base image's configuration) in an Env. Steps that two
// recipes have in common become the same vertex, so BuildKit runs them once.
package llb

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/util/system"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/assay-hpc/assay/build/recipe"
)

// ContentStore is the id under which the session offers assay's own OCI
// layout: bases made of Debian packages and the harness's source.
const ContentStore = "assay"

// FileName is the name of the only file in the content that [Env.File] returns.
const FileName = "file"

// DownloadPrefix is the prefix of the names of download vertices.
const DownloadPrefix = "[download] "

// Env contains what a recipe leaves open.
type Env struct {
	Native recipe.Platform // the builder's own platform
	Epoch  time.Time       // timestamp of files that steps write (SOURCE_DATE_EPOCH)

	// URL maps a download's URL to where it is fetched from (mirrors, the
	// client's default archive): a URL, or the absolute path of a file.
	URL func(string) (string, error)
	// File returns the manifest digest, in ContentStore, of the file with that SHA-256, which
	// only this machine can read: URL has returned a path.
	File func(sum string) (digest.Digest, error)
	// Secret returns the id of the secret with the Authorization header that a URL from URL
	// needs, "" for none; nil means that no URL needs one.
	Secret func(url string) string
	// Image maps a pinned base to the reference to pull, with digest.
	Image func(recipe.Source) (string, error)
	// Layout returns the manifest digest, in ContentStore, of content that assay itself creates,
	// for the platform.
	Layout func(recipe.Source, recipe.Platform) (digest.Digest, error)
	// Config returns the image configuration of a base (FromImage or
	// FromLayout) for the platform.
	Config func(recipe.Source, recipe.Platform) (ocispec.ImageConfig, error)
}

// Image returns the file system of the recipe's image and its configuration.
func Image(r *recipe.Recipe, env Env) (llb.State, ocispec.Image, error) {
	b := &builder{r: r, env: env, stages: map[string]stage{}}
	if err := b.all(len(r.Stages)); err != nil {
		return llb.State{}, ocispec.Image{}, err
	}
	last := b.stages[r.Image().Name]
	return last.state, b.config(last.base), nil
}

// Before returns the file system of a stage before its step i, with the stage's environment.
// Package sets are resolved in it.
func Before(r *recipe.Recipe, stageName string, i int, env Env) (llb.State, error) {
	b := &builder{r: r, env: env, stages: map[string]stage{}}
	for n, s := range r.Stages {
		if s.Name != stageName {
			continue
		}
		if err := b.all(n); err != nil {
			return llb.State{}, err
		}
		s.Steps = s.Steps[:i]
		st, err := b.stage(s)
		return st.state, err
	}
	return llb.State{}, fmt.Errorf("llb: recipe %s has no stage %q", r.Target, stageName)
}

// OCIPlatform converts a platform to BuildKit's form.
func OCIPlatform(p recipe.Platform) ocispec.Platform {
	return ocispec.Platform{OS: p.OS, Architecture: p.Arch}
}

type stage struct {
	state llb.State
	base  ocispec.ImageConfig
}

type builder struct {
	r      *recipe.Recipe
	env    Env
	stages map[string]stage
}

func (b *builder) all(n int) error {
	for _, s := range b.r.Stages[:n] {
		st, err := b.stage(s)
		if err != nil {
			return fmt.Errorf("%s: stage %s: %w", b.r.Target, s.Name, err)
		}
		b.stages[s.Name] = st
	}
	return nil
}

func (b *builder) stage(s recipe.Stage) (stage, error) {
	p := b.r.Platform
	if s.Native {
		p = b.env.Native
	}
	st, err := b.from(s.From, p)
	if err != nil {
		return st, err
	}
	for _, v := range s.Env {
		st.state = st.state.AddEnv(v.Name, expand(v.Value, st.base.Env))
	}
	c := &cursor{builder: b, name: s.Name, platform: p, state: st.state}
	for _, step := range s.Steps {
		if err := c.step(step); err != nil {
			return st, err
		}
	}
	c.flush()
	st.state = c.state
	return st, nil
}

func (b *builder) from(src recipe.Source, p recipe.Platform) (stage, error) {
	platform := llb.Platform(OCIPlatform(p))
	switch src.Kind {
	case recipe.Scratch:
		return stage{state: llb.Scratch().Platform(OCIPlatform(p))}, nil
	case recipe.FromStage:
		return b.stages[src.Ref], nil
	case recipe.FromImage, recipe.FromLayout:
	default:
		return stage{}, fmt.Errorf("a stage cannot start from a %s", src.Kind)
	}
	cfg, err := b.env.Config(src, p)
	if err != nil {
		return stage{}, err
	}
	st, err := b.source(src, p, platform)
	if err != nil {
		return stage{}, err
	}
	st = st.Platform(OCIPlatform(p))
	if lookup(cfg.Env, "PATH") == "" { // what container runtimes search then
		cfg.Env = append(slices.Clone(cfg.Env), "PATH="+system.DefaultPathEnvUnix)
	}
	for _, kv := range cfg.Env {
		k, v, _ := strings.Cut(kv, "=")
		st = st.AddEnv(k, v)
	}
	return stage{state: st, base: cfg}, nil
}

// source returns a source as a state to copy or mount from, or to start from.
func (b *builder) source(src recipe.Source, p recipe.Platform, opts ...llb.ConstraintsOpt) (llb.State, error) {
	platform := llb.Platform(OCIPlatform(p))
	switch src.Kind {
	case recipe.FromStage:
		return b.stages[src.Ref].state, nil
	case recipe.FromImage:
		ref, err := b.env.Image(src)
		if err != nil {
			return llb.State{}, err
		}
		return llb.Image(ref, platform, llb.WithCustomName(BaseName(src, p))), nil
	case recipe.FromLayout:
		d, err := b.env.Layout(src, p)
		if err != nil {
			return llb.State{}, err
		}
		return llb.OCILayout("assay.local/"+src.Ref+"@"+d.String(), llb.OCIStore("", ContentStore),
			platform, llb.WithCustomName(BaseName(src, p))), nil
	case recipe.FromURL:
		return b.download(src.Ref, src.Digest, src.Name())
	}
	return llb.State{}, fmt.Errorf("cannot read from a %s", src.Kind)
}

// BaseName is the name of the vertex of a base, or of other content that assay provides.
func BaseName(src recipe.Source, p recipe.Platform) string {
	return fmt.Sprintf("[base] %s %s", src.Ref, p)
}

func (b *builder) download(url, sum, name string) (llb.State, error) {
	at, err := b.env.URL(url)
	if err != nil {
		return llb.State{}, err
	}
	d, err := digest.Parse(sum)
	if err != nil {
		return llb.State{}, fmt.Errorf("%s: checksum %q: %w", url, sum, err)
	}
	if path.IsAbs(at) {
		m, err := b.env.File(sum)
		if err != nil {
			return llb.State{}, fmt.Errorf("%s: %w", url, err)
		}
		st := llb.OCILayout("assay.local/file@"+m.String(), llb.OCIStore("", ContentStore), llb.WithCustomName(DownloadPrefix+name))
		return llb.Scratch().File(llb.Copy(st, "/"+FileName, "/"+name, llb.WithCreatedTime(b.env.Epoch)), llb.WithCustomName(DownloadPrefix+name)), nil
	}
	opts := []llb.HTTPOption{llb.Checksum(d), llb.Filename(name), llb.WithCustomName(DownloadPrefix + name)}
	if b.env.Secret != nil {
		if id := b.env.Secret(at); id != "" {
			opts = append(opts, llb.AuthHeaderSecret(id))
		}
	}
	return llb.HTTP(at, opts...), nil
}

// config returns the image's configuration: the base's, overridden by the recipe's.
func (b *builder) config(base ocispec.ImageConfig) ocispec.Image {
	rc := b.r.Config
	img := ocispec.Image{Platform: OCIPlatform(b.r.Platform), Config: base}
	epoch := b.env.Epoch
	img.Created = &epoch
	img.RootFS.Type = "layers"
	img.Config.Env = mergeEnv(base.Env, rc.Env)
	labels := map[string]string{}
	for k, v := range base.Labels {
		labels[k] = v
	}
	for k, v := range rc.Labels {
		labels[k] = v
	}
	img.Config.Labels = labels
	if rc.WorkingDir != "" {
		img.Config.WorkingDir = rc.WorkingDir
	}
	img.Config.Entrypoint, img.Config.Cmd = rc.Entrypoint, rc.Cmd
	return img
}

// mergeEnv overrides the base's variables with the recipe's. The base's keep their position.
func mergeEnv(base []string, vars []recipe.Var) []string {
	out := append([]string(nil), base...)
next:
	for _, v := range vars {
		kv := v.Name + "=" + expand(v.Value, base)
		for i, have := range out {
			if strings.HasPrefix(have, v.Name+"=") {
				out[i] = kv
				continue next
			}
		}
		out = append(out, kv)
	}
	return out
}

// expand replaces ${NAME} by the base's value, and removes the colon that an empty value leaves
// at an end of a list.
func expand(v string, base []string) string {
	var out strings.Builder
	rest := v
	for {
		before, ref, ok := strings.Cut(rest, "${")
		name, after, closed := strings.Cut(ref, "}")
		if !ok || !closed {
			out.WriteString(rest)
			break
		}
		out.WriteString(before)
		out.WriteString(lookup(base, name))
		rest = after
	}
	if rest == v { // no reference
		return v
	}
	return strings.Trim(out.String(), ":")
}

func lookup(env []string, name string) string {
	for _, kv := range env {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v
		}
	}
	return ""
}

// parent returns the directory of an absolute path.
func parent(p string) string { return path.Dir(path.Clean(p)) }
