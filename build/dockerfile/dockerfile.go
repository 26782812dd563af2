// Package dockerfile writes a recipe as a Dockerfile: a template for people that builds the same
// image as the graph of build/llb. It is pure. [Write] puts everything into the Dockerfile;
// [Directory] keeps scripts, lists of packages and files beside it.
//
// A Dockerfile cannot express two things: a base made with debootstrap, and the harness's source.
// These are named build contexts, listed in the first lines of the text. Package sets are
// installed from the archives at their pinned versions; the graph mounts the pinned files
// instead.
package dockerfile

import (
	"encoding/json"
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
	w := &writer{r: r, env: env, downloads: map[string]download{}}
	if err := w.write(); err != nil {
		return "", err
	}
	return w.head() + w.pre.String() + w.body.String(), nil
}

func (w *writer) write() error {
	for i := range w.r.Stages {
		if err := w.stage(&w.r.Stages[i]); err != nil {
			return fmt.Errorf("%s: stage %s: %w", w.r.Target, w.r.Stages[i].Name, err)
		}
	}
	if err := w.config(); err != nil {
		return fmt.Errorf("%s: %w", w.r.Target, err)
	}
	return nil
}

type writer struct {
	r         *recipe.Recipe
	env       Env
	pre, body strings.Builder
	downloads map[string]download // by URL
	contexts  []string
	locked    []string        // hosts that need a credential
	native    bool            // the stage that is being written is
	made      map[string]bool // the directories that it has
	dir       *directory      // nil: everything is in the Dockerfile
}

// A download is where a downloaded file is in the Dockerfile.
type download struct{ stage, path string }

func (w *writer) head() string {
	var b strings.Builder
	fmt.Fprintln(&b, "# syntax=docker/dockerfile:1")
	fmt.Fprintf(&b, "# %s for %s, recipe %s. Written by \"assay dockerfile\"%s.\n", w.r.Target, w.r.Platform, w.r.Declared()[:12], w.dir.note())
	w.dir.missing(&b)
	secrets := w.secrets()
	build := []string{"# Build with: docker buildx build --platform " + w.r.Platform.String()}
	if w.dir == nil {
		build[0] += fmt.Sprintf(" --build-arg SOURCE_DATE_EPOCH=%d", w.env.Epoch.Unix())
	}
	for _, c := range w.contexts {
		build = append(build, "--build-context "+c+"=…")
	}
	for _, s := range secrets {
		build = append(build, "--secret id="+s.id+",src=…")
	}
	command := strings.Join(build, continued)
	if w.dir != nil {
		command = wrap(build)
	}
	fmt.Fprintln(&b, strings.ReplaceAll(command, continued, " \\\n#   "), ".")
	for _, c := range w.contexts {
		fmt.Fprintf(&b, "# %s: %s\n", c, contextHelp(c))
	}
	for _, s := range secrets {
		fmt.Fprintf(&b, "# %s: %s\n", s.id, s.help)
	}
	return b.String()
}

type secret struct{ id, help string }

func (w *writer) secrets() (all []secret) {
	for _, host := range w.locked {
		all = append(all, secret{"HTTP_AUTH_HEADER_" + host, "a file with the value of the Authorization header for that host, such as Basic and USER:PASSWORD in base64"})
	}
	if w.env.AptLocked {
		all = append(all, secret{aptSecret, "a file as apt_auth.conf(5) has it"})
	}
	if w.dir.proxyLocked() {
		all = append(all, secret{netrcSecret, "a .netrc file with the login for the proxy of Go modules"})
	}
	return all
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

// buildPlatform is the flag of a stage that runs on the builder's own platform.
const buildPlatform = "--platform=$BUILDPLATFORM "

func (w *writer) stage(s *recipe.Stage) error {
	w.native, w.made = s.Native, map[string]bool{"/": true}
	if err := w.goModules(s); err != nil {
		return err
	}
	from, err := w.from(s.From)
	if err != nil {
		return err
	}
	native := ""
	if s.Native && s.From.Kind != recipe.FromStage && (w.dir == nil || s.From.Kind != recipe.FromImage) {
		native = buildPlatform
	}
	fmt.Fprintf(&w.body, "\nFROM %s%s AS %s\n", native, from, stageName(s.Name))
	if s.From.Kind != recipe.FromStage {
		fmt.Fprintln(&w.body, "ARG SOURCE_DATE_EPOCH")
	}
	if err := w.vars("ENV", s.Env); err != nil {
		return err
	}
	if w.dir != nil {
		return w.stepsBeside(s)
	}
	for _, st := range s.Steps {
		if err := w.step(s, st); err != nil {
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
		if w.dir != nil {
			return w.image(src), nil
		}
		ref := w.env.Image(src.Ref)
		if src.Digest != "" {
			ref += "@" + src.Digest
		}
		return ref, nil
	case recipe.FromLayout:
		w.dir.layout(src)
		return w.context(src.Ref), nil
	case recipe.FromURL:
		d, err := w.download(src)
		return d.stage, err
	}
	return "", fmt.Errorf("a Dockerfile cannot start from a %s", src.Kind)
}

// location returns the URL that a download comes from.
func (w *writer) location(ref string) (string, error) {
	at, err := w.env.URL(ref)
	if err != nil {
		return "", err
	}
	if path.IsAbs(at) {
		return "", fmt.Errorf("%s comes from a directory of this machine, which a Dockerfile cannot name; print it without that --mirror", ref)
	}
	return at, nil
}

// download writes a stage that contains one verified file, or adds the file to the stage of all.
func (w *writer) download(src recipe.Source) (download, error) {
	if d, ok := w.downloads[src.Ref]; ok {
		return d, nil
	}
	at, err := w.location(src.Ref)
	if err != nil {
		return download{}, err
	}
	if w.env.Locked != nil && w.env.Locked(at) {
		u, err := url.Parse(at)
		if err != nil {
			return download{}, err
		}
		if !slices.Contains(w.locked, u.Hostname()) {
			w.locked = append(w.locked, u.Hostname())
		}
	}
	n := len(w.downloads) + 1
	d := download{fmt.Sprintf("download-%d", n), "/" + src.Name()}
	if w.dir != nil {
		d = w.dir.download(n, src, at)
	} else {
		fmt.Fprintf(&w.pre, "\nFROM scratch AS %s\nADD %s%s %s\n", d.stage, flag("checksum", src.Digest), literalWord(at), d.path)
	}
	w.downloads[src.Ref] = d
	return d, nil
}

// flag is an instruction's flag with a space behind it, "" without a value.
func flag(name, value string) string {
	if value == "" {
		return ""
	}
	return "--" + name + "=" + value + " "
}

// literalWord escapes what a Dockerfile expands in a word.
func literalWord(s string) string { return strings.NewReplacer(`\`, `\\`, `$`, `\$`).Replace(s) }

func (w *writer) step(s *recipe.Stage, st recipe.Step) error {
	switch st := st.(type) {
	case recipe.Run:
		return w.run(s, st)
	case recipe.Apt:
		if st.Debs != nil && len(st.Debs) == 0 {
			return nil // the stage has them all
		}
		// Package lists and packages come over the network here; in the graph they are verified
		// downloads.
		var flags []string
		if w.env.AptLocked {
			flags = append(flags, fmt.Sprintf("--mount=type=secret,id=%s,required=true,target=%s", aptSecret, recipe.AptAuthFile))
		}
		w.script(s, flags, w.dir.packages(s, st, w.env.Sed))
	case recipe.File:
		if st.Content != "" && !strings.HasSuffix(st.Content, "\n") {
			return fmt.Errorf("file %s does not end in a newline, which a here-document cannot say", st.Path)
		}
		if strings.ContainsAny(st.Path, " \t\r\n\"'") {
			return fmt.Errorf("the name of file %q cannot be said with a here-document", st.Path)
		}
		if mkdir := w.mkdir([]string{dir(st.Path)}); mkdir != "" {
			fmt.Fprintf(&w.body, "RUN --network=none %s", mkdir)
		}
		end := delimiter(st.Content)
		fmt.Fprintf(&w.body, "COPY --chmod=%04o <<'%s' %s\n%s%[2]s\n", st.Mode, end, literalWord(st.Path), st.Content)
	case recipe.Symlink:
		w.makes(dir(st.Path))
		w.script(s, nil, recipe.Run{Title: "link " + st.Path, Script: linkScript(st)})
	case recipe.Copy:
		return w.copy(st)
	}
	return nil
}

func linkScript(l recipe.Symlink) string {
	return fmt.Sprintf("mkdir -p %s\nln -sfn %s %s\n", shellQuote(dir(l.Path)), shellQuote(l.Target), shellQuote(l.Path))
}

// mkdir returns a command that makes the directories that the stage may not have, "" for none. Some
// releases of BuildKit give those that COPY makes the file's mode.
func (w *writer) mkdir(dirs []string) string {
	command := "mkdir -p"
	for _, d := range dirs {
		if !w.made[d] {
			command += " " + shellWord(d)
		}
		w.makes(d)
	}
	if command == "mkdir -p" {
		return ""
	}
	return command + "\n"
}

// makes notes that the stage has a directory.
func (w *writer) makes(d string) {
	for ; d != "/" && d != "."; d = path.Dir(d) {
		w.made[d] = true
	}
}

func dir(p string) string { return p[:max(strings.LastIndex(p, "/"), 1)] }

func (w *writer) copy(c recipe.Copy) error {
	from, err := w.from(c.From)
	if err != nil {
		return err
	}
	src, dst := c.Src, c.Dst
	if c.From.Kind == recipe.FromURL {
		src = w.downloads[c.From.Ref].path
		if strings.HasSuffix(dst, "/") {
			dst += c.From.Name()
		}
	}
	fmt.Fprintf(&w.body, "COPY --link --from=%s %s\n", from, operands(src, dst))
	w.makes(path.Dir(dst))
	return nil
}

// operands are what COPY copies and where: a JSON array if one is not a plain word. What COPY copies
// is a pattern, of which nothing here is meant as one.
func operands(paths ...string) string {
	if !slices.ContainsFunc(paths, func(p string) bool { return !plainPath.MatchString(p) }) {
		return strings.Join(paths, " ")
	}
	last := len(paths) - 1
	for i := range paths[:last] {
		paths[i] = wildcards.ReplaceAllString(strings.ReplaceAll(paths[i], `\`, `\\`), `[$0]`)
	}
	for i, p := range paths {
		paths[i] = literalWord(p)
	}
	return argv(paths)
}

var (
	plainPath = regexp.MustCompile(`^/?[\w.][\w./+:@=-]*$|^/$`)
	wildcards = regexp.MustCompile(`[[*?]|\\\\`) // BuildKit looks for a name with "\[" as it is
)

func (w *writer) run(s *recipe.Stage, r recipe.Run) error {
	var flags []string
	for _, m := range r.Mounts {
		if w.dir != nil && isGoModule(m) {
			continue // see goModules
		}
		flag, err := w.mount(m)
		if err != nil {
			return err
		}
		flags = append(flags, flag)
	}
	w.script(s, append(flags, w.dir.modulesMount(r)...), r)
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
	source := m.Path
	if m.From.Kind == recipe.FromURL {
		source = w.downloads[m.From.Ref].path
	}
	if source != "" {
		source = ",source=" + source
	}
	return fmt.Sprintf("--mount=from=%s%s,target=%s", from, source, m.Target), nil
}

// script writes a script that runs as in the graph: sh -eu. It is a here-document if it is not
// beside the Dockerfile.
func (w *writer) script(s *recipe.Stage, flags []string, r recipe.Run) {
	if w.dir != nil {
		w.body.WriteString(w.dir.script(s, flags, r))
		return
	}
	opts := ""
	if !r.Network {
		opts = " --network=none"
	}
	for _, flag := range flags {
		opts += " \\\n    " + flag
	}
	if len(flags) > 0 {
		opts += " \\\n   "
	}
	text := exports(r.Env) + r.Script
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	end := delimiter(text)
	fmt.Fprintf(&w.body, "# %s\nRUN%s <<'%s'\nset -eu\n%s%[3]s\n", r.Title, opts, end, text)
}

func exports(vars []recipe.Var) string {
	var b strings.Builder
	for _, v := range vars {
		fmt.Fprintf(&b, "export %s=%s\n", v.Name, shellQuote(v.Value))
	}
	return b.String()
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
	words := []string{instruction}
	for _, v := range vars {
		if strings.Contains(v.Value, "\n") {
			return fmt.Errorf("the value of %s has more than one line, which %s cannot say", v.Name, instruction)
		}
		words = append(words, fmt.Sprintf("%s=\"%s\"", v.Name, expression(v.Value)))
	}
	switch {
	case len(vars) == 0:
	case w.dir != nil:
		fmt.Fprintln(&w.body, wrap(words))
	default:
		fmt.Fprintln(&w.body, words[0], strings.Join(words[1:], continued))
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
	labels := make([]string, 0, len(c.Labels))
	for _, k := range slices.Sorted(maps.Keys(c.Labels)) {
		if strings.Contains(c.Labels[k], "\n") {
			return fmt.Errorf("the value of %s has more than one line, which LABEL cannot say", k)
		}
		labels = append(labels, fmt.Sprintf("%s=\"%s\"", k, literal(c.Labels[k])))
	}
	switch {
	case len(labels) == 0:
	case w.dir != nil:
		fmt.Fprintln(&w.body, wrap(append([]string{"LABEL"}, labels...)))
	default:
		fmt.Fprintf(&w.body, "LABEL %s\n", strings.Join(labels, "\nLABEL "))
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
		text, err := json.Marshal(a)
		if err != nil {
			panic("dockerfile: " + err.Error()) // only text
		}
		quoted[i] = string(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
