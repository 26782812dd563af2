// Package dockerfile writes a recipe as a Dockerfile: a template for people that builds the same
// image as the graph of build/llb. It is pure.
//
// A Dockerfile cannot express two things: a base made with debootstrap, and the harness's source.
// These are named build contexts, listed in the first lines of the text. Package sets are
// installed from the archives at their pinned versions; the graph mounts the pinned files
// instead.
package dockerfile

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/build/archive"
	"github.com/assay-hpc/assay/build/recipe"
)

// Env contains what a recipe leaves open.
type Env struct {
	Epoch time.Time
	URL   func(string) (string, error) // where a download comes from
	Image func(string) string          // where a base comes from
	Sed   string                       // applied to the package sources, for mirrors
	// Locked reports whether a mirror's URL needs a credential; AptLocked, whether apt does.
	// Credentials are passed as secrets when the image is built.
	Locked    func(url string) bool
	AptLocked bool
}

// Write returns the Dockerfile.
func Write(r *recipe.Recipe, env Env) (string, error) {
	w := &writer{r: r, env: env, downloads: map[string]string{}}
	for i := range r.Stages {
		if err := w.stage(&r.Stages[i], i == len(r.Stages)-1); err != nil {
			return "", fmt.Errorf("%s: stage %s: %w", r.Target, r.Stages[i].Name, err)
		}
	}
	if err := w.config(); err != nil {
		return "", fmt.Errorf("%s: %w", r.Target, err)
	}
	return w.head() + w.pre.String() + w.body.String(), nil
}

type writer struct {
	r         *recipe.Recipe
	env       Env
	pre, body strings.Builder
	downloads map[string]string // maps URL to stage name
	contexts  []string
	locked    []string // hosts that need a credential
}

func (w *writer) head() string {
	var b strings.Builder
	fmt.Fprintln(&b, "# syntax=docker/dockerfile:1")
	fmt.Fprintf(&b, "# %s for %s, recipe %s. Written by \"assay dockerfile\".\n", w.r.Target, w.r.Platform, w.r.Declared()[:12])
	fmt.Fprintf(&b, "# Build with: docker buildx build --platform %s --build-arg SOURCE_DATE_EPOCH=%d", w.r.Platform, w.env.Epoch.Unix())
	for _, c := range w.contexts {
		fmt.Fprintf(&b, " \\\n#   --build-context %s=…", c)
	}
	for _, host := range w.locked {
		fmt.Fprintf(&b, " \\\n#   --secret id=HTTP_AUTH_HEADER_%s,src=…", host)
	}
	if w.env.AptLocked {
		fmt.Fprintf(&b, " \\\n#   --secret id=%s,src=…", aptSecret)
	}
	fmt.Fprint(&b, " .\n")
	for _, c := range w.contexts {
		fmt.Fprintf(&b, "# %s: %s\n", c, contextHelp(c))
	}
	for _, host := range w.locked {
		fmt.Fprintf(&b, "# HTTP_AUTH_HEADER_%s: a file with the value of the Authorization header for that host, such as Basic and USER:PASSWORD in base64\n", host)
	}
	if w.env.AptLocked {
		fmt.Fprintf(&b, "# %s: a file as apt_auth.conf(5) has it\n", aptSecret)
	}
	return b.String()
}

const aptSecret = "apt-auth"

func contextHelp(name string) string {
	if rest, ok := strings.CutPrefix(name, "base-"); ok {
		suite, _, _ := strings.Cut(rest, "-")
		distro := "debian"
		if s, known := archive.Find(suite); known {
			distro = s.Distro
		}
		return fmt.Sprintf("its base: oci-layout://DIR:TAG, or docker-image://%s:%s for one that is close", distro, suite)
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
	if err := w.vars("ENV", s.Env); err != nil {
		return err
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

// download writes a stage that contains one verified file.
func (w *writer) download(src recipe.Source) (string, error) {
	if name, ok := w.downloads[src.Ref]; ok {
		return name, nil
	}
	at, err := w.env.URL(src.Ref)
	if err != nil {
		return "", err
	}
	if path.IsAbs(at) {
		return "", fmt.Errorf("%s comes from a directory of this machine, which a Dockerfile cannot name; print it without that --mirror", src.Ref)
	}
	if w.env.Locked != nil && w.env.Locked(at) {
		u, err := url.Parse(at)
		if err != nil {
			return "", err
		}
		if !slices.Contains(w.locked, u.Hostname()) {
			w.locked = append(w.locked, u.Hostname())
		}
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
		// Package lists and packages come over the network here; in the graph they are verified
		// downloads.
		opts := "RUN"
		if w.env.AptLocked {
			opts += fmt.Sprintf(" --mount=type=secret,id=%s,required=true,target=%s", aptSecret, recipe.AptAuthFile)
		}
		w.script(opts, st.Title, st.Online(w.env.Sed, "").Script)
	case recipe.File:
		if st.Content != "" && !strings.HasSuffix(st.Content, "\n") {
			return fmt.Errorf("file %s does not end in a newline, which a here-document cannot say", st.Path)
		}
		end := delimiter(st.Content)
		fmt.Fprintf(&w.body, "COPY --chmod=%04o <<'%s' %s\n%s%[2]s\n", st.Mode, end, st.Path, st.Content)
	case recipe.Symlink:
		w.script("RUN --network=none", "link "+st.Path, fmt.Sprintf("mkdir -p %s\nln -sfn %s %s\n", shellQuote(dir(st.Path)), shellQuote(st.Target), shellQuote(st.Path)))
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
		fmt.Fprintf(&env, "export %s=%s\n", v.Name, shellQuote(v.Value))
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

// script writes a here-document that runs as in the graph: sh -eu.
func (w *writer) script(opts, title, text string) {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	end := delimiter(text)
	fmt.Fprintf(&w.body, "# %s\n%s <<'%s'\nset -eu\n%s%[3]s\n", title, opts, end, text)
}

// delimiter returns a word that is not a line of the text. It is written in quotes, so that
// nothing in the text is expanded.
func delimiter(text string) string {
	word := "ASSAY_EOF"
	for n := 2; slices.Contains(strings.Split(text, "\n"), word); n++ {
		word = fmt.Sprint("ASSAY_EOF", n)
	}
	return word
}

// shellQuote quotes a value as one word, in which the shell expands nothing.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// vars writes variables as one instruction, in which every reference is to a value from before
// the instruction, as in the graph.
func (w *writer) vars(instruction string, vars []recipe.Var) error {
	for i, v := range vars {
		if strings.Contains(v.Value, "\n") {
			return fmt.Errorf("the value of %s has more than one line, which %s cannot say", v.Name, instruction)
		}
		if i == 0 {
			fmt.Fprint(&w.body, instruction, " ")
		} else {
			fmt.Fprint(&w.body, " \\\n    ")
		}
		fmt.Fprintf(&w.body, "%s=\"%s\"", v.Name, expression(v.Value))
	}
	if len(vars) > 0 {
		fmt.Fprintln(&w.body)
	}
	return nil
}

var (
	reference = regexp.MustCompile(`\$\{\w+\}`)
	first     = regexp.MustCompile(`^\$\{(\w+)\}:`)
	last      = regexp.MustCompile(`:\$\{(\w+)\}$`)
)

// expression escapes a value so that only ${NAME} is expanded. An empty variable at either end of
// a list also removes its colon.
func expression(v string) string {
	var head, tail string
	if m := first.FindStringSubmatch(v); m != nil {
		head, v = fmt.Sprintf("${%s:+$%[1]s:}", m[1]), v[len(m[0]):]
	}
	if m := last.FindStringSubmatch(v); m != nil {
		tail, v = fmt.Sprintf("${%s:+:$%[1]s}", m[1]), v[:len(v)-len(m[0])]
	}
	var b strings.Builder
	at := 0
	for _, m := range reference.FindAllStringIndex(v, -1) {
		b.WriteString(literal(v[at:m[0]]) + v[m[0]:m[1]])
		at = m[1]
	}
	return head + b.String() + literal(v[at:]) + tail
}

func literal(v string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`).Replace(v) }

func (w *writer) config() error {
	c := w.r.Config
	if err := w.vars("ENV", c.Env); err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(c.Labels)) {
		fmt.Fprintf(&w.body, "LABEL %s=\"%s\"\n", k, literal(c.Labels[k]))
	}
	// People build FROM the image: no entrypoint or command of the base may run unasked.
	fmt.Fprintf(&w.body, "ENTRYPOINT %s\nCMD %s\n", argv(c.Entrypoint), argv(c.Cmd))
	if c.WorkingDir != "" {
		fmt.Fprintf(&w.body, "WORKDIR %s\n", c.WorkingDir)
	}
	return nil
}

// argv is a command in exec form.
func argv(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = fmt.Sprintf("%q", a)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
