package dockerfile

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
)

// Directory returns a Dockerfile and the files beside it that it mounts and copies, by relative
// path. Scripts are files in the directory of the component or stage that they belong to, packages
// a list for each stage, and all downloads one stage. No file needs a mode of its own: Git keeps
// none, and a clone has its user's.
//
// A recipe may lack what the lock does not pin. The Dockerfile's first lines name it then, and
// nothing is built before it is given.
func Directory(r *recipe.Recipe, env Env) (map[string]string, error) {
	w := &writer{r: r, env: env, downloads: map[string]download{}, dir: &directory{files: map[string]string{}, digests: map[string]string{}, aliases: map[string]string{}}}
	if err := w.write(); err != nil {
		return nil, err
	}
	w.dir.files["Dockerfile"] = w.head() + w.dir.arguments(env) + w.dir.sources() + w.body.String()
	return w.dir.files, nil
}

// Where a step finds what is beside the Dockerfile: its own script, and what scripts have in common.
const (
	stepFile  = "/run/step"
	commonDir = "/run/" + recipe.CommonDir
)

const netrcSecret = "netrc"

// A directory is what is beside the Dockerfile, and what the Dockerfile has of it. A nil one is none.
type directory struct {
	files   map[string]string // by path
	images  strings.Builder   // the stages that are images
	aliases map[string]string // their names, by instruction
	adds    strings.Builder   // the instructions that download
	modules bool              // the stage of the Go modules is written
	proxied bool              // their proxy needs a credential

	digests map[string]string // the argument for the digest of an image or download, by its reference
	lacking []string          // the references, in order
	added   []string          // the arguments for downloads
	open    []string          // the lists of packages without versions
	unknown []string          // what else the lock does not pin
}

// note ends the Dockerfile's line about itself.
func (d *directory) note() string {
	if d == nil {
		return ""
	}
	return " with the files beside it"
}

// layout notes a context whose packages the lock does not pin.
func (d *directory) layout(src recipe.Source) {
	if note := "the context " + src.Ref + ", of which no package is pinned"; d != nil && src.Digest == "" && !slices.Contains(d.unknown, note) {
		d.unknown = append(d.unknown, note)
	}
}

func (d *directory) proxyLocked() bool { return d != nil && d.proxied }

// missing writes what must be given before anything is built.
func (d *directory) missing(b *strings.Builder) {
	if d == nil || len(d.lacking)+len(d.unknown)+len(d.open) == 0 {
		return
	}
	fmt.Fprintln(b, "# NOT LOCKED: this cannot be built before it has the following. \"assay lock\" resolves it; image.json has only what is locked.")
	for _, ref := range d.lacking {
		fmt.Fprintf(b, "#   --build-arg %s=sha256:… of %s\n", d.digests[ref], ref)
	}
	for _, u := range d.unknown {
		fmt.Fprintf(b, "#   %s\n", u)
	}
	if len(d.open) > 0 {
		lists := wrap(append([]string{"the versions of packages, and of what they depend on, in"}, d.open...))
		fmt.Fprintf(b, "#   %s\n", strings.ReplaceAll(lists, continued, "\n#   "))
	}
}

// arguments are the arguments that hold for all stages, with a default if there is one.
func (d *directory) arguments(env Env) string {
	words := []string{"ARG", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", env.Epoch.Unix())}
	for _, ref := range d.lacking {
		words = append(words, d.digests[ref])
	}
	return wrap(words) + "\n"
}

// image returns the name of the stage that is an image and nothing else: what is copied or mounted
// from an image cannot be an argument.
func (w *writer) image(src recipe.Source) string {
	d, native, name := w.dir, "", plain(strings.ToLower(src.Name()))
	if w.native {
		native, name = buildPlatform, name+"-native"
	}
	from := fmt.Sprintf("FROM %s%s@%s AS ", native, w.env.Image(src.Ref), d.digest(src))
	if alias, ok := d.aliases[from]; ok {
		return alias
	}
	alias := stageName(name)
	taken := slices.Collect(maps.Values(d.aliases))
	for _, s := range w.r.Stages {
		taken = append(taken, stageName(s.Name))
	}
	for n := 2; slices.Contains(taken, alias); n++ {
		alias = fmt.Sprint(stageName(name), "-", n)
	}
	d.aliases[from] = alias
	fmt.Fprintf(&d.images, "%s%s\n", from, alias)
	return alias
}

// digest returns a source's digest, or the argument that has it. The argument must have a value:
// BuildKit takes an empty checksum for none.
func (d *directory) digest(src recipe.Source) string {
	if src.Digest != "" {
		return src.Digest
	}
	name, ok := d.digests[src.Ref]
	if !ok {
		name = fmt.Sprintf("DIGEST_%d", len(d.lacking)+1)
		d.digests[src.Ref], d.lacking = name, append(d.lacking, src.Ref)
	}
	return "${" + name + ":?}"
}

// download adds a file to the stage of all downloads, each in a directory of its own.
func (d *directory) download(n int, src recipe.Source, at string) download {
	file := fmt.Sprintf("/%d/%s", n, plain(src.Name()))
	sum := d.digest(src)
	if src.Digest == "" {
		d.added = append(d.added, d.digests[src.Ref])
	}
	fmt.Fprintf(&d.adds, "ADD --checksum=%s \\\n    %s %s\n", sum, literalWord(at), file)
	return download{"downloads", file}
}

// sources are the stages of what comes from outside.
func (d *directory) sources() string {
	var b strings.Builder
	if d.images.Len() > 0 {
		b.WriteString("\n" + d.images.String())
	}
	if d.adds.Len() > 0 {
		b.WriteString("\nFROM scratch AS downloads\n")
		if len(d.added) > 0 {
			b.WriteString(wrap(append([]string{"ARG"}, d.added...)) + "\n")
		}
		b.WriteString(d.adds.String())
	}
	return b.String()
}

// plain returns a name with only what needs no quoting anywhere.
func plain(name string) string {
	name = strings.Trim(special.ReplaceAllString(name, "-"), "-")
	if name == "" || name == "." || name == ".." {
		return "file"
	}
	return name
}

var special = regexp.MustCompile(`[^\w.+]+`)

// plainTree is plain for each element of a path.
func plainTree(name string) string {
	elements := strings.Split(strings.Trim(name, "/"), "/")
	for i, e := range elements {
		elements[i] = plain(e)
	}
	return strings.Join(elements, "/")
}

// put adds a file and returns its path, which is another one if a different file has it.
func (d *directory) put(name, content string) string {
	name = plainTree(name)
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	for n := 2; ; n++ {
		if have, ok := d.files[name]; !ok || have == content {
			d.files[name] = content
			return name
		}
		name = fmt.Sprint(stem, "-", n, ext)
	}
}

// packages is the step that installs a set. Packages without a version wait for one: apt takes
// none for an error.
func (d *directory) packages(s *recipe.Stage, st recipe.Apt, sed string) recipe.Run {
	open := d != nil && st.Debs == nil
	if open {
		for _, p := range st.Packages {
			name, version, _ := strings.Cut(p, "=")
			st.Debs = append(st.Debs, recipe.Deb{Name: name, Version: version})
		}
	}
	run := st.Online(sed, "packages/"+s.Name+".sh")
	if open {
		d.open = append(d.open, d.put(run.Pieces[1].File, run.Pieces[1].Text))
	}
	return run
}

// script runs a script's pieces, which are files, in one shell.
func (d *directory) script(s *recipe.Stage, flags []string, r recipe.Run) string {
	pieces := r.Pieces
	if len(pieces) == 0 {
		pieces = []recipe.Piece{{File: s.Name + "/" + r.Title + ".sh", Text: r.Script}}
	}
	var vars []string
	for _, v := range r.Env {
		vars = append(vars, v.Name+"="+shellWord(v.Value))
	}
	if strings.ContainsAny(strings.Join(vars, ""), "\r\n") { // an instruction cannot say it
		vars, pieces = nil, append([]recipe.Piece{{File: s.Name + "/" + r.Title + "-env.sh", Text: exports(r.Env)}}, pieces...)
	}
	words := []string{"RUN"}
	if !r.Network {
		words = append(words, "--network=none")
	}
	mounts, files := d.mount(pieces)
	instruction, run := wrap(slices.Concat(words, mounts, flags)), wrap(shellCommand(vars, files))
	if len(instruction)+len(run) < lineWidth {
		return instruction + " " + run + "\n"
	}
	return instruction + continued + run + "\n"
}

// mount puts pieces beside the Dockerfile and returns the flags that mount them, and where.
func (d *directory) mount(pieces []recipe.Piece) (flags, files []string) {
	for _, p := range pieces {
		from := d.put(p.File, p.Text)
		at := stepFile + ".sh"
		if slices.Contains(files, at) {
			at = fmt.Sprint(stepFile, len(flags), ".sh")
		}
		to := at
		if strings.HasPrefix(from, recipe.CommonDir) {
			at = commonDir + path.Base(from)
			from, to = path.Clean(recipe.CommonDir), path.Clean(commonDir)
		}
		if flag := fmt.Sprintf("--mount=source=%s,target=%s", from, to); !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
		files = append(files, at)
	}
	return flags, files
}

// shellCommand runs files one after the other in one shell, with variables.
func shellCommand(vars, files []string) []string {
	if len(files) == 1 {
		return append(vars, "sh -eu "+files[0])
	}
	command := []string{"set -eu;"}
	if len(vars) > 0 {
		command = append(append(command, "export"), vars...)
		command[len(command)-1] += ";"
	}
	return append(command, ". "+strings.Join(files, "; . "))
}

// shellWord quotes a value if it is not a plain word.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return shellQuote(s)
}

var plainWord = regexp.MustCompile(`^[\w./:=,+@%-]+$`)

const (
	lineWidth = 140
	continued = " \\\n    "
)

// wrap breaks the words of an instruction into lines.
func wrap(words []string) string {
	lines := []string{words[0]}
	for _, w := range words[1:] {
		if last := &lines[len(lines)-1]; len(*last)+len(w) < lineWidth {
			*last += " " + w
		} else {
			lines = append(lines, w)
		}
	}
	return strings.Join(lines, continued)
}

// stepsBeside writes a stage's steps. Files that follow one another into a directory are one COPY
// with their mode, links one script. A COPY of a tree would be shorter, and give the directories
// that exist the modes of those beside the Dockerfile.
func (w *writer) stepsBeside(s *recipe.Stage) error {
	for i := 0; i < len(s.Steps); {
		group := writes(s.Steps[i:])
		if len(group) == 0 {
			if err := w.step(s, s.Steps[i]); err != nil {
				return err
			}
			i++
			continue
		}
		if overlap(group) { // their order counts
			group = group[:1]
		}
		w.writeGroup(s, group)
		i += len(group)
	}
	return nil
}

// writes returns the first steps that write files and links.
func writes(steps []recipe.Step) []recipe.Step {
	for i, s := range steps {
		if written(s) == "" {
			return steps[:i]
		}
	}
	return steps
}

// written is the path of a file or link.
func written(s recipe.Step) string {
	switch s := s.(type) {
	case recipe.File:
		return s.Path
	case recipe.Symlink:
		return s.Path
	}
	return ""
}

// overlap reports whether one path is another one's, or below it.
func overlap(steps []recipe.Step) bool {
	for i, a := range steps {
		for _, b := range steps[:i] {
			if a, b := written(a)+"/", written(b)+"/"; strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
				return true
			}
		}
	}
	return false
}

// writeGroup writes files and links that do not depend on one another: first directories and links.
func (w *writer) writeGroup(s *recipe.Stage, steps []recipe.Step) {
	var dirs []string
	links := ""
	for _, st := range steps {
		switch st := st.(type) {
		case recipe.File:
			dirs = append(dirs, dir(st.Path))
		case recipe.Symlink:
			links += linkScript(st)
			w.makes(dir(st.Path))
		}
	}
	if mkdir := w.mkdir(dirs); links != "" {
		w.script(s, nil, recipe.Run{Title: "links", Script: mkdir + links})
	} else if mkdir != "" {
		fmt.Fprintf(&w.body, "RUN --network=none %s", mkdir)
	}
	for len(steps) > 0 {
		first, ok := steps[0].(recipe.File)
		files := following(steps, func(f recipe.File) bool { return ok && dir(f.Path) == dir(first.Path) && f.Mode == first.Mode })
		if ok {
			w.files(s, files)
		}
		steps = steps[max(len(files), 1):]
	}
}

// following returns the first steps that are of one kind and fit.
func following[T recipe.Step](steps []recipe.Step, fits func(T) bool) (out []T) {
	for _, s := range steps {
		st, ok := s.(T)
		if !ok || !fits(st) {
			break
		}
		out = append(out, st)
	}
	return out
}

func (w *writer) files(s *recipe.Stage, files []recipe.File) {
	var paths []string
	for _, f := range files {
		name := w.dir.put("files/"+s.Name+f.Path, f.Content)
		if len(files) > 1 && path.Base(name) != path.Base(f.Path) { // its name there needs to be said
			w.files(s, files[:1])
			w.files(s, files[1:])
			return
		}
		paths = append(paths, name)
	}
	to := files[0].Path
	if len(files) > 1 {
		to = strings.TrimSuffix(dir(to), "/") + "/"
	}
	fmt.Fprintf(&w.body, "COPY --chmod=%04o %s\n", files[0].Mode, operands(append(paths, to)...))
}
