package llb

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/solver/pb"

	"github.com/assay-hpc/assay/build/recipe"
)

// A cursor walks the steps of one stage. Consecutive files become one FileOp, consecutive copies
// one MergeOp: one layer instead of many, and one mount instead of a chain.
type cursor struct {
	*builder
	name     string
	platform recipe.Platform
	state    llb.State
	files    *llb.FileAction
	written  []string // the paths that files writes
	copies   []llb.State
}

func (c *cursor) step(s recipe.Step) error {
	switch s := s.(type) {
	case recipe.File:
		c.flushCopies()
		c.file(func(a *llb.FileAction) *llb.FileAction {
			return a.Mkfile(s.Path, fs.FileMode(s.Mode), []byte(s.Content), llb.WithCreatedTime(c.env.Epoch))
		}, s.Path)
		return nil
	case recipe.Symlink:
		c.flushCopies()
		c.file(func(a *llb.FileAction) *llb.FileAction {
			// The base may have one there: an image of assay's own has.
			return a.Rm(s.Path, llb.WithAllowNotFound(true)).Symlink(s.Target, s.Path, llb.WithCreatedTime(c.env.Epoch))
		}, s.Path)
		return nil
	case recipe.Copy:
		c.flushFiles()
		return c.copy(s)
	case recipe.Run:
		c.flush()
		return c.run(s)
	case recipe.Apt:
		c.flush()
		return c.apt(s)
	}
	return fmt.Errorf("llb: unknown step %T", s)
}

func (c *cursor) flush() {
	c.flushFiles()
	c.flushCopies()
}

func (c *cursor) file(add func(*llb.FileAction) *llb.FileAction, p string) {
	mkdir := llb.Mkdir(parent(p), 0o755, llb.WithParents(true), llb.WithCreatedTime(c.env.Epoch))
	if c.files == nil {
		c.files = mkdir
	} else {
		c.files = c.files.Mkdir(parent(p), 0o755, llb.WithParents(true), llb.WithCreatedTime(c.env.Epoch))
	}
	c.files = add(c.files)
	c.written = append(c.written, p)
}

func (c *cursor) flushFiles() {
	if c.files != nil {
		c.state = c.state.File(c.files, c.label(FilesTitle(c.written)))
		c.files, c.written = nil, nil
	}
}

func (c *cursor) flushCopies() {
	if len(c.copies) == 0 {
		return
	}
	merged := llb.Merge(append([]llb.State{c.state}, c.copies...), c.label(MergeTitle))
	// Merge starts a new state: carry the environment and platform over.
	c.state = c.state.WithOutput(merged.Output())
	c.copies = nil
}

func (c *cursor) copy(s recipe.Copy) error {
	from, err := c.source(s.From, c.platform)
	if err != nil {
		return err
	}
	info := &llb.CopyInfo{CreateDestPath: true, CopyDirContentsOnly: strings.HasSuffix(s.Src, "/")}
	src := path.Clean("/" + s.Src)
	if s.From.Kind == recipe.FromURL {
		src = "/" + s.From.Name() // the only file of a download
	}
	layer := llb.Scratch().Platform(OCIPlatform(c.platform)).
		File(llb.Copy(from, src, s.Dst, info, llb.WithCreatedTime(c.env.Epoch)), c.label(s.Title()))
	c.copies = append(c.copies, layer)
	return nil
}

func (c *cursor) run(s recipe.Run) error {
	opts := []llb.RunOption{
		llb.Args([]string{"/bin/sh", "-euc", s.Script}),
		llb.AddEnv("SOURCE_DATE_EPOCH", fmt.Sprint(c.env.Epoch.Unix())),
		c.label(s.Title),
	}
	for _, v := range s.Env {
		opts = append(opts, llb.AddEnv(v.Name, v.Value))
	}
	if !s.Network {
		opts = append(opts, llb.Network(pb.NetMode_NONE))
	}
	for _, m := range s.Mounts {
		o, err := c.mount(m)
		if err != nil {
			return err
		}
		opts = append(opts, o)
	}
	c.state = c.state.Run(opts...).Root()
	return nil
}

func (c *cursor) mount(m recipe.Mount) (llb.RunOption, error) {
	if m.From.Kind == recipe.CacheVolume {
		return llb.AddMount(m.Target, llb.Scratch(), llb.AsPersistentCacheDir(m.From.Ref, llb.CacheMountShared)), nil
	}
	src, err := c.source(m.From, c.platform)
	if err != nil {
		return nil, err
	}
	p := m.Path
	if m.From.Kind == recipe.FromURL {
		p = m.From.Name()
	}
	opts := []llb.MountOption{llb.Readonly}
	if p != "" {
		opts = append(opts, llb.SourcePath(p))
	}
	return llb.AddMount(m.Target, src, opts...), nil
}

// apt installs from a directory of pinned files. One FileOp gathers the files, so that the graph
// has one vertex per download and one for the set.
func (c *cursor) apt(s recipe.Apt) error {
	var gather *llb.FileAction
	for _, d := range s.Debs {
		src, err := c.download(d.URL, "sha256:"+d.SHA256, d.File())
		if err != nil {
			return err
		}
		if gather == nil {
			gather = llb.Copy(src, d.File(), "/", llb.WithCreatedTime(c.env.Epoch))
		} else {
			gather = gather.Copy(src, d.File(), "/", llb.WithCreatedTime(c.env.Epoch))
		}
	}
	if gather == nil {
		return nil
	}
	debs := llb.Scratch().File(gather, c.label(GatherTitle(s)))
	c.state = c.state.Run(
		llb.Args([]string{"/bin/sh", "-euc", s.Script()}),
		llb.AddEnv("SOURCE_DATE_EPOCH", fmt.Sprint(c.env.Epoch.Unix())),
		llb.AddMount(recipe.DebsDir, debs, llb.Readonly),
		llb.Network(pb.NetMode_NONE),
		c.label(s.Title),
	).Root()
	return nil
}

func (c *cursor) label(title string) llb.ConstraintsOpt {
	return llb.WithCustomName(VertexName(c.name, c.platform, title))
}

// VertexName names a vertex by stage and architecture, not by target: the vertex
// may belong to many targets.
func VertexName(stage string, on recipe.Platform, title string) string {
	return fmt.Sprintf("[%s %s] %s", stage, on.Arch, title)
}

// MergeTitle is the title of the vertex that merges consecutive copies.
const MergeTitle = "merge"

// GatherTitle is the title of the vertex before an installation of packages.
func GatherTitle(a recipe.Apt) string { return fmt.Sprintf("gather %d packages", len(a.Debs)) }

// FilesTitle is the title of the vertex that writes consecutive files and links.
func FilesTitle(paths []string) string {
	title := "write " + paths[0]
	if n := len(paths) - 1; n > 0 {
		title += fmt.Sprintf(" and %d more", n)
	}
	return title
}

// LayerTitles returns the titles of the image's layers above its base, from the base up.
func LayerTitles(r *recipe.Recipe) []string { return layerTitles(r, r.Image().Name) }

func layerTitles(r *recipe.Recipe, stage string) []string {
	s := r.Stage(stage)
	var titles []string
	if s.From.Kind == recipe.FromStage {
		titles = layerTitles(r, s.From.Ref)
	}
	var written []string
	flush := func() {
		if len(written) > 0 {
			titles = append(titles, FilesTitle(written))
		}
		written = nil
	}
	layer := func(title string) {
		flush()
		titles = append(titles, title)
	}
	for _, step := range s.Steps {
		switch step := step.(type) {
		case recipe.File:
			written = append(written, step.Path)
		case recipe.Symlink:
			written = append(written, step.Path)
		case recipe.Copy:
			layer(step.Title())
		case recipe.Run:
			layer(step.Title)
		case recipe.Apt:
			flush()
			if len(step.Debs) > 0 {
				layer(fmt.Sprintf("%s (%d)", step.Title, len(step.Debs)))
			}
		}
	}
	flush()
	return titles
}
