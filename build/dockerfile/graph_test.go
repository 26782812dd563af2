package dockerfile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bkllb "github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerui"
	"github.com/moby/buildkit/solver/pb"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/mod/module"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/llb"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/golden"
)

// baseConfig is the configuration of every base.
var baseConfig = ocispec.ImageConfig{
	Env:    []string{"PATH=/usr/local/sbin:/usr/sbin:/sbin", "BASE=yes", "LD_LIBRARY_PATH=/base/lib"},
	Labels: map[string]string{"base": "yes"}, Entrypoint: []string{"/base-entrypoint"}, Cmd: []string{"base"},
}

type baseResolver struct{}

func (baseResolver) ResolveImageConfig(_ context.Context, ref string, o sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	text, err := json.Marshal(ocispec.Image{
		Platform: *o.ImageOpt.Platform, Config: baseConfig,
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromString(ref)}}, // BuildKit takes an image without layers for scratch
	})
	pinned := digest.FromBytes(text)
	if _, d, ok := strings.Cut(ref, "@"); ok {
		pinned = digest.Digest(d)
	}
	return ref, pinned, text, err
}

// frontend returns what BuildKit's frontend makes of a directory, on a builder with the given native
// platform.
func frontend(t *testing.T, files map[string]string, p, native recipe.Platform, args map[string]string) (*dockerfile2llb.Result, error) {
	t.Helper()
	target, caps, local := llb.OCIPlatform(p), pb.Caps.CapSet(pb.Caps.All()), bkllb.Local("context")
	return dockerfile2llb.Dockerfile2LLB(t.Context(), []byte(files["Dockerfile"]), dockerfile2llb.ConvertOpt{
		Config:       dockerui.Config{BuildArgs: args, BuildPlatforms: []ocispec.Platform{llb.OCIPlatform(native)}, TargetPlatforms: []ocispec.Platform{target}},
		MetaResolver: baseResolver{}, TargetPlatform: &target, LLBCaps: &caps, MainContext: &local,
	})
}

// A work is what a graph does, in words that do not depend on who made it.
type work struct {
	t     *testing.T
	ops   map[digest.Digest]*pb.Op
	files map[string]string // of the context
	debs  map[string]string // by file name, NAME=VERSION
	done  map[string][]string
	names map[string]string // what is copied or mounted from, by hash, for a diff
	dirs  map[string]bool   // what a script makes, or a copy
}

// workOf returns the steps of a graph in order, and what they copy and mount from.
func workOf(t *testing.T, s bkllb.State, p recipe.Platform, files, debs map[string]string) (steps []string, from map[string]string) {
	t.Helper()
	def, err := s.Marshal(t.Context(), bkllb.Platform(llb.OCIPlatform(p)))
	if err != nil {
		t.Fatal(err)
	}
	w := &work{t, map[digest.Digest]*pb.Op{}, files, debs, map[string][]string{}, map[string]string{}, map[string]bool{"/": true}}
	var last *pb.Op
	for _, dt := range def.Def {
		last = &pb.Op{}
		if err := last.Unmarshal(dt); err != nil {
			t.Fatal(err)
		}
		w.ops[digest.FromBytes(dt)] = last
	}
	return w.state(last.Inputs[0]), w.names
}

// state returns the steps that lead to an output of an operation.
func (w *work) state(in *pb.Input) []string {
	key := fmt.Sprint(in.Digest, in.Index)
	if steps, ok := w.done[key]; ok {
		return steps
	}
	op := w.ops[digest.Digest(in.Digest)]
	var steps []string
	switch {
	case op.GetSource() != nil:
		steps = []string{w.source(op)}
	case op.GetExec() != nil:
		steps = w.exec(op)
	case op.GetFile() != nil:
		steps = w.file(op)
	case op.GetMerge() != nil:
		for _, m := range op.GetMerge().Inputs {
			steps = append(slices.Clone(steps), w.state(op.Inputs[m.Input])...)
		}
	default:
		w.t.Fatalf("an operation of unknown kind: %v", op)
	}
	if op.GetFile() != nil || op.GetExec() != nil {
		sortWrites(steps)
	}
	w.done[key] = steps
	return steps
}

// sortWrites sorts the files and links that follow one another by path: those of one path stay in order.
func sortWrites(steps []string) {
	start := len(steps)
	for start > 0 && (strings.HasPrefix(steps[start-1], "file ") || strings.HasPrefix(steps[start-1], "link ")) {
		start--
	}
	slices.SortStableFunc(steps[start:], func(a, b string) int { return strings.Compare(pathOf(a), pathOf(b)) })
}

// pathOf is the path of a step that writes.
func pathOf(step string) string {
	for _, end := range []string{" to ", " -", " u"} {
		if before, _, ok := strings.Cut(step[len("file "):], end); ok {
			return before
		}
	}
	return step
}

var contextRef = regexp.MustCompile(`^docker-image://docker\.io/library/(base-\w+-\w+|` + component.HarnessSource + `):latest@|^oci-layout://assay\.local/(.*)@`)

func (w *work) source(op *pb.Op) string {
	s := op.GetSource()
	if m := contextRef.FindStringSubmatch(s.Identifier); m != nil {
		return "context " + m[1] + m[2]
	}
	scheme, ref, _ := strings.Cut(s.Identifier, "://")
	switch scheme {
	case "http", "https":
		return "download " + s.Attrs[pb.AttrHTTPChecksum]
	case "local":
		return "the context"
	}
	return fmt.Sprintf("%s %s %s/%s", scheme, strings.TrimPrefix(ref, "mirror.example.org/"), op.Platform.OS, op.Platform.Architecture)
}

// at names what is at a path of a state.
func (w *work) at(steps []string, file string) string {
	file = path.Clean("/" + file)
	if len(steps) == 1 && strings.HasPrefix(steps[0], "download ") && !strings.Contains(steps[0], " copied to ") {
		return steps[0]
	}
	for _, s := range steps { // the stage of all downloads
		if from, to, ok := strings.Cut(s, " copied to "); ok && to == file && strings.HasPrefix(from, "download ") {
			return from
		}
	}
	text := strings.Join(steps, "\n")
	name := digest.FromString(text).Encoded()[:12]
	w.names[name] = text
	return name + ":" + file
}

func (w *work) file(op *pb.Op) (steps []string) {
	input := func(i int64) []string {
		if i < 0 || i >= int64(len(op.Inputs)) {
			return nil
		}
		return w.state(op.Inputs[i])
	}
	actions := op.GetFile().Actions
	steps = slices.Clone(input(actions[0].Input))
	for i, a := range actions {
		switch {
		case a.GetMkfile() != nil:
			f := a.GetMkfile()
			steps = append(steps, fileStep(f.Path, f.Mode, f.Data))
		case a.GetSymlink() != nil:
			steps = append(steps, fmt.Sprintf("link %s to %s", a.GetSymlink().Newpath, a.GetSymlink().Oldpath))
		case a.GetCopy() != nil:
			c, from := a.GetCopy(), input(a.SecondaryInput)
			if len(from) == 1 && from[0] == "the context" {
				to := c.Dest
				if strings.HasSuffix(to, "/") {
					to += path.Base(c.Src)
				}
				text, ok := w.files[strings.TrimPrefix(c.Src, "/")]
				if !ok {
					w.t.Errorf("%s is copied, and is not beside the Dockerfile", c.Src)
				}
				if !slices.ContainsFunc(slices.Collect(maps.Keys(w.dirs)), func(d string) bool { return d == path.Dir(to) || strings.HasPrefix(d, path.Dir(to)+"/") }) {
					w.t.Errorf("COPY may have to make the directory of %s, with the file's mode", to)
				}
				steps = append(steps, fileStep(to, c.Mode, []byte(text)))
				continue
			}
			src := c.Src
			if c.AllowWildcard { // a pattern; none is meant as one
				src = strings.ReplaceAll(escaped.ReplaceAllString(src, "$1"), `\\`, `\`)
				if match, err := path.Match(c.Src, src); err != nil || !match {
					w.t.Errorf("%q does not copy %q: %v", c.Src, src, err)
				}
			}
			what, to := w.at(from, src), c.Dest
			if strings.HasPrefix(what, "download ") && strings.HasSuffix(to, "/") {
				to += path.Base(src)
			}
			w.dirs[path.Dir(to)] = true
			steps = append(steps, what+" copied to "+path.Clean(to))
		case a.GetRm() != nil && i+1 < len(actions) && actions[i+1].GetSymlink().GetNewpath() == a.GetRm().Path: // the link takes its place
		case a.GetMkdir() == nil: // only what holds the others is made
			w.t.Fatalf("an action of unknown kind: %v", a)
		}
	}
	return steps
}

func fileStep(name string, mode int32, text []byte) string {
	return fmt.Sprintf("file %s %v %s", name, fs.FileMode(mode), digest.FromBytes(text).Encoded()[:12])
}

var (
	assignment = regexp.MustCompile(`(?s)^(\w+)=((?:[\w./:=,+@%-]|'(?:[^']|'\\'')*')*)[ ;]+`)
	escaped    = regexp.MustCompile(`\[([[*?]|\\\\)\]`)
	linkLine   = regexp.MustCompile(`(?m)\Amkdir -p ('.*')\nln -sfn ('.*') ('.*')\n`)
	mkdirLine  = regexp.MustCompile(`\Amkdir -p(( ([\w./:=,+@%-]+|'[^'\n]*'))+)(\n|$)`)
	mkdirWord  = regexp.MustCompile(`[\w./:=,+@%-]+|'[^'\n]*'`)
	installed  = regexp.MustCompile(`\$apt update\n\$apt install((?: \\\n  \S+)+)\nrm -rf /tmp/assay-apt\n`)
)

// command returns a script, as the files of the context that a command runs, and its variables.
func (w *work) command(line string, at map[string]string) (script string, env []string) {
	rest := strings.TrimPrefix(strings.TrimPrefix(line, "set -eu; "), "export ")
	for {
		m := assignment.FindStringSubmatch(rest)
		if m == nil {
			break
		}
		value := m[2]
		if strings.HasPrefix(value, "'") {
			value = strings.ReplaceAll(value[1:len(value)-1], `'\''`, "'")
		}
		env, rest = append(env, m[1]+"="+value), rest[len(m[0]):]
	}
	for f := range strings.SplitSeq(rest, "; ") {
		name, ok := strings.CutPrefix(f, ". ")
		if !ok {
			name, ok = strings.CutPrefix(f, "sh -eu ")
		}
		file, mounted := at[name]
		if dir, base := path.Split(name); !mounted && at[path.Clean(dir)] != "" {
			file = path.Join(at[path.Clean(dir)], base)
		}
		text, exists := w.files[file]
		if !ok || !exists {
			w.t.Fatalf("the command %q runs %q, which is not beside the Dockerfile; mounted are %v", line, name, at)
		}
		script += text
	}
	return script, env
}

func (w *work) exec(op *pb.Op) []string {
	e := op.GetExec()
	var below, mounts []string
	var set string // packages
	beside := map[string]string{}
	for _, m := range e.Mounts {
		var from []string
		if m.Input >= 0 {
			from = w.state(op.Inputs[m.Input])
		}
		switch {
		case m.Dest == "/":
			below = from
			continue
		case m.MountType == pb.MountType_CACHE:
			mounts = append(mounts, fmt.Sprintf("cache %s at %s, %v", path.Base(m.CacheOpt.ID), m.Dest, m.CacheOpt.Sharing))
			continue
		case len(from) == 1 && from[0] == "the context":
			beside[m.Dest] = strings.TrimPrefix(m.Selector, "/")
		case m.Dest == recipe.DebsDir:
			set = w.packages(op.Inputs[m.Input])
		case m.Selector == "/go/cache/download":
			for line := range strings.Lines(w.files["go-modules/sums"]) {
				sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
				mounts = append(mounts, fmt.Sprintf("download sha256:%s at %s/%s", sum, m.Dest, file))
			}
			if fetch := from[len(from)-1]; !strings.Contains(fetch, "sha256sum --check --strict") || !strings.Contains(fetch, "network UNSET") {
				w.t.Errorf("the modules come from\n%s", fetch)
			}
		default:
			mounts = append(mounts, w.at(from, m.Selector)+" at "+m.Dest)
		}
		if !m.Readonly {
			w.t.Errorf("%s is mounted writable", m.Dest)
		}
	}
	script, env := e.Meta.Args[len(e.Meta.Args)-1], slices.Clone(e.Meta.Env)
	if len(beside) > 0 {
		var own []string
		script, own = w.command(script, beside)
		env = append(env, own...)
	}
	if links, ok := w.writes(script); ok {
		return append(slices.Clone(below), links...)
	}
	network := e.Network.String()
	if m := installed.FindStringSubmatch(script); m != nil {
		set = strings.Join(strings.Fields(strings.ReplaceAll(m[1], "\\", "")), " ")
		script, network = strings.Replace(script, m[0], "INSTALL\n", 1), "NONE"
	}
	if set != "" {
		script = strings.Replace(script, "$apt install "+recipe.DebsDir+"/*.deb\n", "INSTALL\n", 1)
		mounts = append(mounts, "packages "+set)
	}
	slices.Sort(mounts)
	slices.Sort(env)
	return append(slices.Clone(below), fmt.Sprintf("run in %s, network %s, env %q, mounts\n  %s\n%s", e.Meta.Cwd, network, env, strings.Join(mounts, "\n  "), strings.TrimSpace(script)))
}

// writes returns the links that a script makes, and notes the directories; false for any other script.
func (w *work) writes(script string) (links []string, ok bool) {
	unquoted := func(s string) string { return strings.Trim(strings.ReplaceAll(s, `'\''`, "\x00"), "'") }
	plainly := func(s string) string { return strings.ReplaceAll(unquoted(s), "\x00", "'") }
	for script != "" {
		if m := linkLine.FindStringSubmatch(script); m != nil {
			w.dirs[plainly(m[1])] = true
			links = append(links, fmt.Sprintf("link %s to %s", plainly(m[3]), plainly(m[2])))
			script = script[len(m[0]):]
			continue
		}
		m := mkdirLine.FindStringSubmatch(script)
		if m == nil {
			return nil, false
		}
		for _, d := range mkdirWord.FindAllString(m[1], -1) {
			w.dirs[plainly(d)] = true
		}
		script = script[len(m[0]):]
	}
	return links, true
}

// packages returns the packages of a graph's directory of files.
func (w *work) packages(in *pb.Input) string {
	var names []string
	for _, a := range w.ops[digest.Digest(in.Digest)].GetFile().Actions {
		name, ok := w.debs[path.Base(a.GetCopy().Src)]
		if !ok {
			w.t.Errorf("%s is no package of the recipe", a.GetCopy().Src)
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// compare holds what BuildKit makes of a recipe's directory against the graph of the recipe.
func compare(t *testing.T, r *recipe.Recipe, native recipe.Platform) map[string]string {
	t.Helper()
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	e := env()
	files, err := Directory(r, e)
	if err != nil {
		t.Fatal(err)
	}
	debs := map[string]string{}
	for _, s := range r.Stages {
		for _, st := range s.Steps {
			if apt, ok := st.(recipe.Apt); ok {
				for _, d := range apt.Debs {
					debs[d.File()] = d.Name + "=" + d.Version
				}
			}
		}
	}
	for name, text := range files {
		if own, err := os.ReadFile(filepath.Join("../component", name)); err == nil && string(own) != text {
			t.Errorf("%s is not the component's own file", name)
		}
	}
	parse(t, files["Dockerfile"])
	res, err := frontend(t, files, r.Platform, native, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, files["Dockerfile"])
	}
	got, gotFrom := workOf(t, res.State, r.Platform, files, debs)
	state, img, err := llb.Image(r, llb.Env{
		Native: native, Epoch: e.Epoch, URL: func(u string) (string, error) {
			return e.URL(strings.Replace(u, "debian:", "https://deb.example.org/", 1))
		},
		Image: func(s recipe.Source) (string, error) { return e.Image(s.Ref) + "@" + s.Digest, nil },
		Layout: func(s recipe.Source, p recipe.Platform) (digest.Digest, error) {
			return digest.FromString(s.Ref + p.String()), nil
		},
		Config: func(recipe.Source, recipe.Platform) (ocispec.ImageConfig, error) { return baseConfig, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	want, wantFrom := workOf(t, state, r.Platform, nil, debs)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the image's steps (-graph +Dockerfile):\n%s", diff)
	}
	if diff := cmp.Diff(wantFrom, gotFrom); diff != "" {
		t.Errorf("what is copied and mounted from, by hash (-graph +Dockerfile):\n%s", diff)
	}
	if diff := cmp.Diff(img.Config, res.Image.Config.ImageConfig, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(ocispec.ImageConfig{}, "ArgsEscaped")); diff != "" {
		t.Errorf("the image's configuration (-graph +Dockerfile):\n%s", diff)
	}
	return files
}

func TestDirectoryIsTheSample(t *testing.T) {
	r := sample()
	r.Stages[1].Steps[1] = recipe.Run{Title: "use what is odd", Env: []recipe.Var{{Name: "X", Value: "it's $x"}, {Name: "B"}, {Name: "C", Value: "/p:q"}}, Script: "use\n"}
	img := r.Image()
	apt := img.Steps[0].(recipe.Apt)
	apt.Debs = debs("arm64", "hwloc-nox", "libhwloc15")
	img.Steps[0] = apt
	img.Steps = append(img.Steps, recipe.Copy{From: img.Steps[2].(recipe.Copy).From, Src: "/tool-1.2.tar.gz", Dst: "/usr/local/src/"},
		recipe.Copy{From: recipe.Source{Kind: recipe.FromURL, Ref: "https://downloads.example.org/get?file=a+b", Digest: "sha256:" + sum("odd")}, Src: "/get?file=a+b", Dst: "/usr/lib/odd/"},
		recipe.File{Path: "/etc/x/a", Mode: 0o644, Content: "a\n"}, recipe.File{Path: "/etc/x/b", Mode: 0o644, Content: "b\n"}, recipe.File{Path: "/etc/x/c", Mode: 0o600, Content: "c\n"},
		recipe.Copy{From: recipe.Source{Kind: recipe.FromStage, Ref: "tool"}, Src: "/out/[a] $b*\\c", Dst: "/opt/[a] $b*\\c"},
		recipe.File{Path: "/etc/a b/[x]*", Mode: 0o640, Content: "no newline"}, recipe.File{Path: "/etc/$HOME", Mode: 0o4755},
		recipe.File{Path: "/etc/same", Mode: 0o644, Content: "first\n"}, recipe.Symlink{Path: "/etc/link", Target: "same"}, recipe.File{Path: "/etc/same", Mode: 0o644, Content: "second\n"})
	files := compare(t, r, r.Platform)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "-- %s --\n%s", name, files[name])
	}
	golden.Check(t, "directory.golden", b.String())
}

// TestDirectoryIsTheGraph: for every target and platform of matrix.yaml, the Dockerfile does what the
// graph does, and is short.
func TestDirectoryIsTheGraph(t *testing.T) {
	for _, in := range matrixInputs(t) {
		t.Run(in.Target.Name+"/"+in.Platform.Arch, func(t *testing.T) {
			t.Parallel()
			files := compare(t, resolved(t, in), in.Native)
			most := 250
			if in.Target.Name == "fabric-debian12" {
				most = 60
			}
			if n := strings.Count(files["Dockerfile"], "\n"); n > most {
				t.Errorf("the Dockerfile has %d lines; want %d at most", n, most)
			}
			in.Lock = lock.New()
			res, err := component.Make(in)
			if err != nil {
				t.Fatal(err)
			}
			checkUnlocked(t, res.Recipe, in.Native, in.Target.Variant == "efa" && in.Platform.Arch == "amd64")
		})
	}
}

// checkUnlocked: without what a lock would have, the Dockerfile says so and cannot be built; if each is
// set, without each of it.
func checkUnlocked(t *testing.T, r *recipe.Recipe, native recipe.Platform, each bool) {
	t.Helper()
	files, err := Directory(r, env())
	if err != nil {
		t.Fatal(err)
	}
	text := files["Dockerfile"]
	if n := strings.Count(text, "\n"); n > 250 {
		t.Errorf("not locked, the Dockerfile has %d lines; want 250 at most", n)
	}
	if !strings.Contains(text, "\n# NOT LOCKED: ") || !strings.Contains(text, "packages/image.sh") {
		t.Errorf("it does not say what it lacks:\n%s", text)
	}
	parse(t, text)
	args := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#   --build-arg (\w+)=sha256:… of (.*)$`).FindAllStringSubmatch(text, -1) {
		args[m[1]] = "sha256:" + sum(m[2])
	}
	if len(args) == 0 {
		t.Errorf("no digest is asked for:\n%s", text)
	}
	if _, err := frontend(t, files, r.Platform, native, args); err != nil {
		t.Errorf("with all digests: %v", err)
	}
	if !each {
		return
	}
	for name := range args {
		some := maps.Clone(args)
		delete(some, name)
		if _, err := frontend(t, files, r.Platform, native, some); err == nil {
			t.Errorf("without %s it could be built", name)
		}
	}
}

// matrixInputs are the targets of matrix.yaml on their platforms, each on a builder of the same
// platform, and some on another.
func matrixInputs(t *testing.T) (all []component.Input) {
	t.Helper()
	text, err := os.ReadFile("../../matrix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, targets, err := component.Read("matrix.yaml", bytes.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	mods := []module.Version{{Path: "github.com/Example/mod", Version: "v1.2.3"}, {Path: "example.org/x", Version: "v0.1.0"}}
	for _, target := range targets {
		for _, p := range target.Platforms {
			all = append(all, component.Input{
				Target: target, All: targets, Platform: p, Native: nativeOf(target, p), Lock: lock.New(),
				Source: component.Source{Digest: "sha256:" + sum("source"), Version: "0.1.0", Go: "1.26.8", Modules: mods, CUDAModules: mods},
			})
		}
	}
	return all
}

// nativeOf is an amd64 builder for the variants.
func nativeOf(t matrix.Target, p recipe.Platform) recipe.Platform {
	if t.Variant != "" {
		return recipe.Platform{OS: "linux", Arch: "amd64"}
	}
	return p
}

// TestDirectoryOfVariables: what an instruction cannot say of a step's variables is in a file.
func TestDirectoryOfVariables(t *testing.T) {
	for _, value := range []string{"", "a b", "$HOME ${x} $(id) `id`", `it's "quoted" \ \\`, "<<EOF", "two\nlines", "ä", "# no comment", `ends in \`} {
		r := sample()
		r.Image().Steps = []recipe.Step{recipe.Run{Title: "t", Env: []recipe.Var{{Name: "X", Value: value}, {Name: "Y", Value: "y"}}, Script: "printf '%s %s' \"$X\" \"$Y\"\n"}}
		files, err := Directory(r, env())
		if err != nil {
			t.Fatal(err)
		}
		stages := parse(t, files["Dockerfile"])
		run := find[*instructions.RunCommand](stages[len(stages)-1:])[0]
		line := strings.Join(run.CmdLine, " ")
		dir := t.TempDir()
		for i, name := range []string{"image/t-env.sh", "image/t.sh"} {
			text, ok := files[name]
			if !ok {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, path.Base(name)), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			mounted := "/run/step.sh"
			if i == 1 && strings.Contains(line, "/run/step1.sh") {
				mounted = "/run/step1.sh"
			}
			line = strings.ReplaceAll(line, mounted, filepath.Join(dir, path.Base(name)))
		}
		if out, err := exec.Command("/bin/sh", "-c", line).CombinedOutput(); err != nil || string(out) != value+" y" {
			t.Errorf("the shell sees %q, %v; want %q (%s)", out, err, value+" y", line)
		}
	}
}

// TestDirectoryOfSets: of the packages that are not locked, the lists are named as they are.
func TestDirectoryOfSets(t *testing.T) {
	r := sample()
	r.Image().Steps = []recipe.Step{recipe.Apt{Title: "a", Packages: []string{"jq", "curl=1.2"}}, recipe.Apt{Title: "b", Packages: []string{"git"}}}
	files, err := Directory(r, env())
	if err != nil {
		t.Fatal(err)
	}
	if want := "#   the versions of packages, and of what they depend on, in packages/image.sh packages/image-2.sh\n"; !strings.Contains(files["Dockerfile"], want) {
		t.Errorf("the Dockerfile does not begin with %q:\n%s", want, files["Dockerfile"])
	}
	if a, b := files["packages/image.sh"], files["packages/image-2.sh"]; !strings.Contains(a, "  jq= \\\n  curl=1.2\n") || !strings.Contains(b, "  git=\n") {
		t.Errorf("the lists are\n%s\n%s", a, b)
	}
}

// TestDirectoryCredentials: what needs a credential asks for it as a secret.
func TestDirectoryCredentials(t *testing.T) {
	e := env()
	e.AptLocked, e.Locked = true, func(url string) bool { return strings.HasPrefix(url, "https://modules.example.org") }
	in := matrixInputs(t)[0]
	files, err := Directory(resolved(t, in), e)
	if err != nil {
		t.Fatal(err)
	}
	text := files["Dockerfile"]
	for _, want := range []string{
		"--secret id=HTTP_AUTH_HEADER_modules.example.org,src=…", "--secret id=apt-auth,src=…", "--secret id=netrc,src=…",
		"--mount=type=secret,id=netrc,required=true,target=/run/step.netrc", "--mount=type=secret,id=apt-auth,required=true,target=" + recipe.AptAuthFile,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile has no %s:\n%s", want, text)
		}
	}
	if !strings.Contains(files["go-modules/fetch.sh"], "NETRC=/run/step.netrc\n") {
		t.Errorf("the go command is not told of its login:\n%s", files["go-modules/fetch.sh"])
	}
	parse(t, text)
}
