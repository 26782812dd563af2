// Package dockerfile writes a recipe as a Dockerfile: a template for people
// that makes the same image as the graph of build/llb. It is pure.
//
// Two things cannot be said in a Dockerfile and are left to named build
// contexts, which the text's first lines name: a base made with debootstrap,
// and the harness's source. Package sets are installed from the archives at
// their pinned versions, where the graph mounts the pinned files.
package dockerfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/build/recipe"
)

// Env is what a recipe leaves open.
type Env struct {
	Epoch time.Time
	URL   func(string) (string, error) // where a download comes from
	Image func(string) string          // where a base comes from
}

// Write returns the Dockerfile.
func Write(r *recipe.Recipe, env Env) (string, error) {
	w := &writer{r: r, env: env, downloads: map[string]string{}}
	for i := range r.Stages {
		if err := w.stage(&r.Stages[i], i == len(r.Stages)-1); err != nil {
			return "", fmt.Errorf("%s: stage %s: %w", r.Target, r.Stages[i].Name, err)
		}
	}
	w.config()
	return w.head() + w.pre.String() + w.body.String(), nil
}

type writer struct {
	r         *recipe.Recipe
	env       Env
	pre, body strings.Builder
	downloads map[string]string // URL to stage name
	contexts  []string
}

func (w *writer) head() string {
	var b strings.Builder
	fmt.Fprintln(&b, "# syntax=docker/dockerfile:1")
	fmt.Fprintf(&b, "# %s for %s, recipe %s. Written by \"assay dockerfile\".\n", w.r.Target, w.r.Platform, w.r.Hash()[:12])
	fmt.Fprintf(&b, "# Build with: docker buildx build --platform %s --build-arg SOURCE_DATE_EPOCH=%d", w.r.Platform, w.env.Epoch.Unix())
	for _, c := range w.contexts {
		fmt.Fprintf(&b, " \\\n#   --build-context %s=…", c)
	}
	fmt.Fprint(&b, " .\n")
	for _, c := range w.contexts {
		fmt.Fprintf(&b, "# %s: %s\n", c, contextHelp(c))
	}
	return b.String()
}

func contextHelp(name string) string {
	if strings.HasPrefix(name, "base-") {
		return "a Debian base: oci-layout://DIR:TAG, or docker-image://debian:bookworm-slim for one that is close"
	}
	return "a checkout of assay, for the harness's source"
}

func (w *writer) context(name string) string {
	if !slices.Contains(w.contexts, name) {
		w.contexts = append(w.contexts, name)
	}
	return name
}

func (w *writer) stage(s *recipe.Stage, image bool) error {
	from, err := w.from(s.From)
	if err != nil {
		return err
	}
	native := ""
	if s.Native && s.From.Kind != recipe.FromStage {
		native = "--platform=$BUILDPLATFORM "
	}
	fmt.Fprintf(&w.body, "\nFROM %s%s AS %s\n", native, from, stageName(s.Name))
	if s.From.Kind != recipe.FromStage {
		fmt.Fprintln(&w.body, "ARG SOURCE_DATE_EPOCH")
	}
	for _, v := range s.Env {
		fmt.Fprintf(&w.body, "ENV %s=%q\n", v.Name, v.Value)
	}
	for _, st := range s.Steps {
		if err := w.step(st); err != nil {
			return err
		}
	}
	return nil
}

func stageName(s string) string { return strings.NewReplacer(".", "-", "/", "-").Replace(s) }

func (w *writer) from(src recipe.Source) (string, error) {
	switch src.Kind {
	case recipe.Scratch:
		return "scratch", nil
	case recipe.FromStage:
		return stageName(src.Ref), nil
	case recipe.FromImage:
		ref := w.env.Image(src.Ref)
		if src.Digest != "" {
			ref += "@" + src.Digest
		}
		return ref, nil
	case recipe.FromLayout:
		return w.context(src.Ref), nil
	case recipe.FromURL:
		return w.download(src)
	}
	return "", fmt.Errorf("a Dockerfile cannot start from a %s", src.Kind)
}

// download makes a stage that holds one verified file.
func (w *writer) download(src recipe.Source) (string, error) {
	if name, ok := w.downloads[src.Ref]; ok {
		return name, nil
	}
	at, err := w.env.URL(src.Ref)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("download-%d", len(w.downloads)+1)
	w.downloads[src.Ref] = name
	sum := ""
	if src.Digest != "" {
		sum = "--checksum=" + src.Digest + " "
	}
	fmt.Fprintf(&w.pre, "\nFROM scratch AS %s\nADD %s%s /%s\n", name, sum, at, src.Name())
	return name, nil
}

func (w *writer) step(st recipe.Step) error {
	switch st := st.(type) {
	case recipe.Run:
		return w.run(st)
	case recipe.Apt:
		// Package lists and packages come over the network here; the graph has
		// them as verified downloads.
		w.script("RUN", st.Title, st.OnlineScript())
	case recipe.File:
		fmt.Fprintf(&w.body, "COPY --chmod=%04o <<'ASSAY_EOF' %s\n%s", st.Mode, st.Path, st.Content)
		if !strings.HasSuffix(st.Content, "\n") {
			return fmt.Errorf("file %s does not end in a newline, which a here-document cannot say", st.Path)
		}
		fmt.Fprintln(&w.body, "ASSAY_EOF")
	case recipe.Symlink:
		w.script("RUN --network=none", "link "+st.Path, fmt.Sprintf("mkdir -p %q\nln -sfn %q %q\n", dir(st.Path), st.Target, st.Path))
	case recipe.Copy:
		return w.copy(st)
	}
	return nil
}

func dir(p string) string { return p[:max(strings.LastIndex(p, "/"), 1)] }

func (w *writer) copy(c recipe.Copy) error {
	from, err := w.from(c.From)
	if err != nil {
		return err
	}
	src := c.Src
	if c.From.Kind == recipe.FromURL {
		src = "/" + c.From.Name()
	}
	fmt.Fprintf(&w.body, "COPY --link --from=%s %s %s\n", from, src, c.Dst)
	return nil
}

func (w *writer) run(r recipe.Run) error {
	opts := "RUN"
	if !r.Network {
		opts += " --network=none"
	}
	for _, m := range r.Mounts {
		o, err := w.mount(m)
		if err != nil {
			return err
		}
		opts += " \\\n    " + o
	}
	if len(r.Mounts) > 0 {
		opts += " \\\n   "
	}
	var env strings.Builder
	for _, v := range r.Env {
		fmt.Fprintf(&env, "export %s=%q\n", v.Name, v.Value)
	}
	w.script(opts, r.Title, env.String()+r.Script)
	return nil
}

func (w *writer) mount(m recipe.Mount) (string, error) {
	if m.From.Kind == recipe.CacheVolume {
		return fmt.Sprintf("--mount=type=cache,id=%s,target=%s", m.From.Ref, m.Target), nil
	}
	from, err := w.from(m.From)
	if err != nil {
		return "", err
	}
	o := fmt.Sprintf("--mount=type=bind,from=%s,target=%s", from, m.Target)
	if m.From.Kind == recipe.FromURL {
		o += ",source=/" + m.From.Name()
	} else if m.Path != "" {
		o += ",source=" + m.Path
	}
	return o, nil
}

// script writes a here-document that runs as the graph runs it: sh -eu.
func (w *writer) script(opts, title, text string) {
	fmt.Fprintf(&w.body, "# %s\n%s <<'ASSAY_EOF'\nset -eu\n%s", title, opts, text)
	if !strings.HasSuffix(text, "\n") {
		fmt.Fprintln(&w.body)
	}
	fmt.Fprintln(&w.body, "ASSAY_EOF")
}

func (w *writer) config() {
	c := w.r.Config
	for _, v := range c.Env {
		fmt.Fprintf(&w.body, "ENV %s=\"%s\"\n", v.Name, v.Value)
	}
	for _, k := range slices.Sorted(maps.Keys(c.Labels)) {
		fmt.Fprintf(&w.body, "LABEL %s=%q\n", k, c.Labels[k])
	}
	if c.WorkingDir != "" {
		fmt.Fprintf(&w.body, "WORKDIR %s\n", c.WorkingDir)
	}
}
