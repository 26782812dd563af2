package llb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/solver/pb"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/assay-hpc/assay/build/recipe"
)

var (
	amd64 = recipe.Platform{OS: "linux", Arch: "amd64"}
	arm64 = recipe.Platform{OS: "linux", Arch: "arm64"}
)

const basePath = "/usr/local/sbin:/usr/sbin:/sbin"

func sum(s string) string { return digest.FromString(s).String() }

func env(native recipe.Platform) Env {
	return Env{
		Native: native, Epoch: time.Unix(1_700_000_000, 0).UTC(),
		URL: func(u string) (string, error) {
			return strings.Replace(u, "https://", "http://mirror.example.org/", 1), nil
		},
		Image: func(s recipe.Source) (string, error) { return "mirror.example.org/" + s.Ref + "@" + s.Digest, nil },
		Layout: func(s recipe.Source, p recipe.Platform) (digest.Digest, error) {
			return digest.FromString(s.Ref + s.Digest + p.String()), nil
		},
		Config: func(s recipe.Source, p recipe.Platform) (ocispec.ImageConfig, error) {
			return ocispec.ImageConfig{
				Env: []string{"PATH=" + basePath, "BASE=yes"}, Labels: map[string]string{"base": "yes", "both": "base"},
				WorkingDir: "/base", Entrypoint: []string{"/base-entrypoint"}, Cmd: []string{"base"}, User: "nobody",
			}, nil
		},
	}
}

func file(url string) recipe.Source {
	return recipe.Source{Kind: recipe.FromURL, Ref: url, Digest: sum(url)}
}

func from(stage string) recipe.Source { return recipe.Source{Kind: recipe.FromStage, Ref: stage} }

// tool is a stage that many targets share: it compiles a download.
func tool(name string, native bool) recipe.Stage {
	return recipe.Stage{
		Name: name, Native: native, From: recipe.Source{Kind: recipe.FromImage, Ref: "docker.io/base:1", Digest: sum("base")},
		Steps: []recipe.Step{
			recipe.Run{Title: "compile", Script: "make\n", Mounts: []recipe.Mount{
				{Target: "/src.tar.gz", From: file("https://example.org/tool-1.0.tar.gz")},
				{Target: "/cache", From: recipe.Source{Kind: recipe.CacheVolume, Ref: "assay-cache"}},
			}},
		},
	}
}

// target is an image with one tool in it.
func target(name string, p recipe.Platform, stages ...recipe.Stage) *recipe.Recipe {
	img := recipe.Stage{Name: "image", From: recipe.Source{Kind: recipe.FromLayout, Ref: "base-a-b", Digest: sum(name)}}
	for _, s := range stages {
		img.Steps = append(img.Steps, recipe.Copy{From: from(s.Name), Src: "/out/tool", Dst: "/opt/" + s.Name})
	}
	return &recipe.Recipe{Target: name, Platform: p, Stages: append(stages, img)}
}

// A graph is a marshaled state.
type graph struct {
	def *llb.Definition
	ops map[digest.Digest]*pb.Op
}

func marshal(t *testing.T, s llb.State, p recipe.Platform) graph {
	t.Helper()
	def, err := s.Marshal(t.Context(), llb.Platform(OCIPlatform(p)))
	if err != nil {
		t.Fatal(err)
	}
	g := graph{def, map[digest.Digest]*pb.Op{}}
	for i, dt := range def.Def {
		var op pb.Op
		if err := op.Unmarshal(dt); err != nil {
			t.Fatal(err)
		}
		if i < len(def.Def)-1 { // the last one only points at the result
			g.ops[digest.FromBytes(dt)] = &op
		}
	}
	return g
}

func image(t *testing.T, r *recipe.Recipe, e Env) graph {
	t.Helper()
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	s, _, err := Image(r, e)
	if err != nil {
		t.Fatal(err)
	}
	return marshal(t, s, r.Platform)
}

// sources returns the source operations by identifier.
func (g graph) sources() map[string]*pb.Op {
	out := map[string]*pb.Op{}
	for _, op := range g.ops {
		if s := op.GetSource(); s != nil {
			out[s.Identifier] = op
		}
	}
	return out
}

// exec returns the operation that runs the script.
func (g graph) exec(t *testing.T, script string) *pb.Op {
	t.Helper()
	for _, op := range g.ops {
		if e := op.GetExec(); e != nil && e.Meta.Args[len(e.Meta.Args)-1] == script {
			return op
		}
	}
	t.Fatalf("nothing runs %q", script)
	return nil
}

// count returns how many operations there are of each kind.
func (g graph) count() map[string]int {
	out := map[string]int{}
	for _, op := range g.ops {
		name := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", op.Op), "*pb.Op_"))
		out[name]++
	}
	return out
}

func TestSameRecipeSameBytes(t *testing.T) {
	e := env(amd64)
	a, b := image(t, target("a", amd64, tool("tool", false)), e), image(t, target("a", amd64, tool("tool", false)), e)
	if !slices.EqualFunc(a.def.Def, b.def.Def, func(x, y []byte) bool { return string(x) == string(y) }) {
		t.Error("one recipe gives two graphs")
	}
}

// TestSharedStage: a stage that two targets have in common is the same
// vertices in both graphs, so BuildKit runs it once, whatever each target
// calls it and whatever stands around it.
func TestSharedStage(t *testing.T) {
	for _, native := range []bool{false, true} {
		e := env(amd64)
		one := target("one", amd64, tool("tool", native))
		two := target("two", amd64, recipe.Stage{Name: "other", From: recipe.Source{Kind: recipe.Scratch}, Steps: []recipe.Step{recipe.File{Path: "/out/tool"}}}, tool("the-tool", native))
		two.Stages[2].Steps = append(two.Stages[2].Steps, recipe.Run{Title: "more", Script: "true\n"})

		s, err := Before(one, "tool", len(one.Stage("tool").Steps), e)
		if err != nil {
			t.Fatal(err)
		}
		shared := marshal(t, s, amd64)
		if len(shared.ops) != 3 { // base, download, run
			t.Fatalf("the stage has %d vertices: %v", len(shared.ops), shared.count())
		}
		for _, r := range []*recipe.Recipe{one, two} {
			g := image(t, r, e)
			for d, op := range shared.ops {
				if g.ops[d] == nil {
					t.Errorf("native=%v: %s lacks the stage's vertex %v", native, r.Target, op)
				}
			}
		}
	}
}

// TestSharedAcrossPlatforms: what does not depend on the platform — downloads,
// and stages that cross-compile — is one vertex for all platforms.
func TestSharedAcrossPlatforms(t *testing.T) {
	e := env(amd64)
	a, b := image(t, target("a", amd64, tool("tool", true)), e), image(t, target("a", arm64, tool("tool", true)), e)
	shared := maps.Clone(a.ops)
	maps.DeleteFunc(shared, func(d digest.Digest, _ *pb.Op) bool { return b.ops[d] == nil })
	if got := (graph{ops: shared}).count(); got["exec"] != 1 || got["source"] != 2 {
		t.Errorf("amd64 and arm64 share %v; want the native stage's run, its base and its download", got)
	}

	b = image(t, target("a", arm64, tool("tool", false)), e)
	const url = "http://mirror.example.org/example.org/tool-1.0.tar.gz"
	da, _ := a.sources()[url].Marshal()
	db, _ := b.sources()[url].Marshal()
	if string(da) != string(db) || len(da) == 0 {
		t.Error("a download is another vertex on another platform")
	}
}

func TestPlatforms(t *testing.T) {
	for _, tt := range []struct {
		target, native recipe.Platform
		isNative       bool
		want           string
	}{
		{arm64, amd64, true, "amd64"},
		{arm64, amd64, false, "arm64"},
		{amd64, arm64, true, "arm64"},
		{amd64, amd64, true, "amd64"},
	} {
		g := image(t, target("a", tt.target, tool("tool", tt.isNative)), env(tt.native))
		if got := g.exec(t, "make\n").Platform.Architecture; got != tt.want {
			t.Errorf("target %v, builder %v, native=%v: the stage runs on %s; want %s", tt.target, tt.native, tt.isNative, got, tt.want)
		}
		for id, op := range g.sources() {
			if strings.HasPrefix(id, "docker-image://") && op.Platform.Architecture != tt.want {
				t.Errorf("target %v, builder %v, native=%v: the base is pulled for %s; want %s", tt.target, tt.native, tt.isNative, op.Platform.Architecture, tt.want)
			}
			if strings.HasPrefix(id, "oci-layout://") && op.Platform.Architecture != tt.target.Arch {
				t.Errorf("the image's base is for %s; want %v", op.Platform.Architecture, tt.target)
			}
		}
	}
}

// TestMerging: neighbouring files are one FileOp, neighbouring copies one
// MergeOp.
func TestMerging(t *testing.T) {
	f := func(p string) recipe.Step { return recipe.File{Path: p, Mode: 0o644, Content: p} }
	c := func(dst string) recipe.Step { return recipe.Copy{From: from("tool"), Src: "/out/tool", Dst: dst} }
	run := recipe.Run{Title: "run", Script: "true\n"}
	link := recipe.Symlink{Path: "/l", Target: "/m"}
	for _, tt := range []struct {
		name             string
		steps            []recipe.Step
		file, merge, run int // operations besides those of the stage "tool"
	}{
		{"nothing", nil, 0, 0, 0},
		{"one file", []recipe.Step{f("/a")}, 1, 0, 0},
		{"three files and a link", []recipe.Step{f("/a"), f("/b"), link, f("/c/d/e")}, 1, 0, 0},
		{"one copy", []recipe.Step{c("/a")}, 1, 1, 0},
		{"three copies", []recipe.Step{c("/a"), c("/b"), c("/c")}, 3, 1, 0},
		{"the same copy twice", []recipe.Step{c("/a"), c("/a")}, 1, 1, 0},
		{"files, then copies", []recipe.Step{f("/a"), f("/b"), c("/c"), c("/d")}, 3, 1, 0},
		{"copies, then files", []recipe.Step{c("/c"), c("/d"), f("/a"), f("/b")}, 3, 1, 0},
		{"a run between files", []recipe.Step{f("/a"), run, f("/b")}, 2, 0, 1},
		{"a run between copies", []recipe.Step{c("/a"), run, c("/b")}, 2, 2, 1},
	} {
		r := target("a", amd64, tool("tool", false))
		r.Image().Steps = tt.steps
		g := image(t, r, env(amd64))
		got := g.count()
		tools := 0
		if len(tt.steps) > 0 && slices.ContainsFunc(tt.steps, func(s recipe.Step) bool { _, ok := s.(recipe.Copy); return ok }) {
			tools = 1
		}
		want := map[string]int{"file": tt.file, "merge": tt.merge, "exec": tt.run + tools, "source": 1 + 2*tools}
		maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: operations (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestOrder: a later step sees what an earlier one wrote.
func TestOrder(t *testing.T) {
	r := target("a", amd64, tool("tool", false))
	r.Image().Steps = []recipe.Step{
		recipe.File{Path: "/a", Mode: 0o600, Content: "a"},
		recipe.Copy{From: from("tool"), Src: "/out/tool", Dst: "/b"},
		recipe.Run{Title: "look", Script: "cat /a /b\n"},
	}
	g := image(t, r, env(amd64))
	look := g.exec(t, "cat /a /b\n")
	merge := g.ops[digest.Digest(look.Inputs[0].Digest)]
	if merge.GetMerge() == nil || len(merge.Inputs) != 2 {
		t.Fatalf("the run stands on %v; want the merge of the copy", merge)
	}
	files := g.ops[digest.Digest(merge.Inputs[0].Digest)].GetFile()
	if files == nil || len(files.Actions) != 2 || files.Actions[0].GetMkdir() == nil || files.Actions[1].GetMkfile().GetPath() != "/a" || files.Actions[1].GetMkfile().Mode != 0o600 {
		t.Errorf("the merge stands on %v; want the file", files)
	}
	copied := g.ops[digest.Digest(merge.Inputs[1].Digest)].GetFile()
	if copied == nil || copied.Actions[0].GetCopy().GetDest() != "/b" || copied.Actions[0].Input != -1 {
		t.Errorf("the copy is %v; want one on scratch, whatever lies below", copied)
	}
	// The environment goes on behind a merge.
	if env := look.GetExec().Meta.Env; !slices.Contains(env, "PATH="+basePath) || !slices.Contains(env, "BASE=yes") {
		t.Errorf("behind a merge the environment is %q", env)
	}
}

// TestLinkReplaces: a link takes the place of what the base has there.
func TestLinkReplaces(t *testing.T) {
	r := target("a", amd64, tool("tool", false))
	r.Image().Steps = []recipe.Step{recipe.Symlink{Path: "/opt/l", Target: "/m"}}
	for _, op := range image(t, r, env(amd64)).ops {
		f := op.GetFile()
		if f == nil {
			continue
		}
		n := len(f.Actions)
		if n != 3 || f.Actions[1].GetRm().GetPath() != "/opt/l" || !f.Actions[1].GetRm().AllowNotFound || f.Actions[2].GetSymlink().GetNewpath() != "/opt/l" {
			t.Errorf("the link is %v; want it after the removal of what is there", f.Actions)
		}
		return
	}
	t.Error("there is no link")
}

// TestCopyIsShared: a copy's layer does not depend on what lies below it.
func TestCopyIsShared(t *testing.T) {
	a, b := image(t, target("a", amd64, tool("tool", false)), env(amd64)), image(t, target("b", amd64, tool("tool", false)), env(amd64))
	var layers int
	for d, op := range a.ops {
		if f := op.GetFile(); f != nil && f.Actions[0].GetCopy() != nil {
			layers++
			if b.ops[d] == nil {
				t.Error("two images with another base have another layer for the same copy")
			}
		}
	}
	if layers != 1 {
		t.Errorf("%d copies; want 1", layers)
	}
}

func TestCopySource(t *testing.T) {
	for _, tt := range []struct {
		from     recipe.Source
		src      string
		wantSrc  string
		contents bool
	}{
		{from("tool"), "/out/tool", "/out/tool", false},
		{from("tool"), "/out/", "/out", true},
		{from("tool"), "out", "/out", false},
		{from("tool"), "/", "/", true},
		{file("https://example.org/a.tar"), "", "/a.tar", false},
		{file("https://example.org/a.tar"), "/a.tar", "/a.tar", false},
	} {
		r := target("a", amd64, tool("tool", false))
		r.Image().Steps = []recipe.Step{recipe.Copy{From: tt.from, Src: tt.src, Dst: "/dst"}}
		var found bool
		for _, op := range image(t, r, env(amd64)).ops {
			if f := op.GetFile(); f != nil {
				c := f.Actions[0].GetCopy()
				found = true
				if c.Src != tt.wantSrc || c.DirCopyContents != tt.contents || c.Dest != "/dst" || !c.CreateDestPath || c.Timestamp != env(amd64).Epoch.UnixNano() {
					t.Errorf("copy of %q gives %v; want %q, contents %v", tt.src, c, tt.wantSrc, tt.contents)
				}
			}
		}
		if !found {
			t.Errorf("copy of %q: no copy", tt.src)
		}
	}
}

func TestNetwork(t *testing.T) {
	for _, tt := range []struct {
		step recipe.Step
		want pb.NetMode
	}{
		{recipe.Run{Script: "x\n"}, pb.NetMode_NONE},
		{recipe.Run{Script: "x\n", Network: true}, pb.NetMode_UNSET},
		{aptStep(), pb.NetMode_NONE},
	} {
		r := target("a", amd64)
		r.Image().Steps = []recipe.Step{tt.step}
		for _, op := range image(t, r, env(amd64)).ops {
			if e := op.GetExec(); e != nil && e.Network != tt.want {
				t.Errorf("%T runs with network %v; want %v", tt.step, e.Network, tt.want)
			}
		}
	}
}

func TestRun(t *testing.T) {
	r := target("a", amd64, tool("tool", false))
	r.Image().Env = []recipe.Var{{Name: "PATH", Value: "/opt/bin:${PATH}"}}
	r.Image().Steps = []recipe.Step{recipe.Run{
		Title: "t", Script: "x\n", Env: []recipe.Var{{Name: "A", Value: "${b} $c"}},
		Mounts: []recipe.Mount{
			{Target: "/tool", From: from("tool"), Path: "out"},
			{Target: "/file", From: file("https://example.org/a.tar")},
			{Target: "/src", From: recipe.Source{Kind: recipe.FromLayout, Ref: "harness-source", Digest: sum("source")}},
			{Target: "/cache", From: recipe.Source{Kind: recipe.CacheVolume, Ref: "assay-x"}},
		},
	}}
	e := image(t, r, env(amd64)).exec(t, "x\n").GetExec()
	if diff := cmp.Diff([]string{"/bin/sh", "-euc", "x\n"}, e.Meta.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	for _, kv := range []string{"PATH=/opt/bin:" + basePath, "BASE=yes", "A=${b} $c", "SOURCE_DATE_EPOCH=1700000000"} {
		if !slices.Contains(e.Meta.Env, kv) {
			t.Errorf("the environment %q lacks %s", e.Meta.Env, kv)
		}
	}
	type mount struct {
		selector string
		readonly bool
		cache    string
	}
	got := map[string]mount{}
	for _, m := range e.Mounts {
		got[m.Dest] = mount{m.Selector, m.Readonly, m.GetCacheOpt().GetID()}
	}
	want := map[string]mount{
		"/": {}, "/tool": {"out", true, ""}, "/file": {"a.tar", true, ""}, "/src": {"", true, ""}, "/cache": {"", false, "assay-x"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

func aptStep() recipe.Apt {
	return recipe.Apt{Title: "install", Packages: []string{"b"}, Debs: []recipe.Deb{
		{Name: "a", Version: "1:1", Arch: "all", URL: "https://example.org/pool/a.deb", SHA256: strings.TrimPrefix(sum("a"), "sha256:"), Size: 1},
		{Name: "b", Version: "2", Arch: "amd64", URL: "https://example.org/pool/b.deb", SHA256: strings.TrimPrefix(sum("b"), "sha256:"), Size: 1},
	}}
}

// TestDownloads: each has its checksum, comes from where Env.URL says, and has
// the name that apt wants.
func TestDownloads(t *testing.T) {
	r := target("a", amd64, tool("tool", false))
	r.Image().Steps = append(r.Image().Steps, aptStep())
	g := image(t, r, env(amd64))
	want := map[string][2]string{
		"http://mirror.example.org/example.org/tool-1.0.tar.gz": {sum("https://example.org/tool-1.0.tar.gz"), "tool-1.0.tar.gz"},
		"http://mirror.example.org/example.org/pool/a.deb":      {sum("a"), "a_1_1_all.deb"},
		"http://mirror.example.org/example.org/pool/b.deb":      {sum("b"), "b_2_amd64.deb"},
	}
	got := map[string][2]string{}
	for id, op := range g.sources() {
		if strings.HasPrefix(id, "http") {
			got[id] = [2]string{op.GetSource().Attrs[pb.AttrHTTPChecksum], op.GetSource().Attrs[pb.AttrHTTPFilename]}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("downloads (-want +got):\n%s", diff)
	}
	e := g.exec(t, aptStep().Script()).GetExec()
	if m := e.Mounts[len(e.Mounts)-1]; m.Dest != recipe.DebsDir || !m.Readonly {
		t.Errorf("the packages are mounted as %v", m)
	}
	var gather int
	for _, op := range g.ops {
		if f := op.GetFile(); f != nil && len(op.Inputs) == 2 {
			gather = len(f.Actions)
		}
	}
	if gather != 2 {
		t.Errorf("the packages are gathered by %d actions of one FileOp; want 2", gather)
	}
}

func TestSources(t *testing.T) {
	r := target("a", amd64, tool("tool", false))
	for id, op := range image(t, r, env(amd64)).sources() {
		switch {
		case strings.HasPrefix(id, "docker-image://"):
			if want := "docker-image://mirror.example.org/docker.io/base:1@" + sum("base"); id != want {
				t.Errorf("the base is %s; want %s", id, want)
			}
		case strings.HasPrefix(id, "oci-layout://"):
			want := "oci-layout://assay.local/base-a-b@" + digest.FromString("base-a-b"+sum("a")+"linux/amd64").String()
			if id != want || op.GetSource().Attrs[pb.AttrOCILayoutStoreID] != ContentStore {
				t.Errorf("the layout is %s in %v; want %s", id, op.GetSource().Attrs, want)
			}
		}
	}
}

func TestConfig(t *testing.T) {
	r := target("a", arm64)
	r.Config = recipe.Config{
		Env:    []recipe.Var{{Name: "PATH", Value: "/opt/bin:${PATH}"}, {Name: "LD_LIBRARY_PATH", Value: "/opt/lib:${LD_LIBRARY_PATH}"}, {Name: "NEW", Value: "x:"}},
		Labels: map[string]string{"both": "recipe", "own": "yes"},
	}
	_, got, err := Image(r, env(amd64))
	if err != nil {
		t.Fatal(err)
	}
	created := env(amd64).Epoch
	want := ocispec.Image{
		Created: &created, Platform: ocispec.Platform{OS: "linux", Architecture: "arm64"},
		Config: ocispec.ImageConfig{
			User: "nobody", Env: []string{"PATH=/opt/bin:" + basePath, "BASE=yes", "LD_LIBRARY_PATH=/opt/lib", "NEW=x:"},
			WorkingDir: "/base", Labels: map[string]string{"base": "yes", "both": "recipe", "own": "yes"},
		},
		RootFS: ocispec.RootFS{Type: "layers"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

// TestBaseWithoutPath: a base that sets no PATH has the one of container runtimes, which the image's
// extends.
func TestBaseWithoutPath(t *testing.T) {
	r := target("a", arm64)
	r.Config = recipe.Config{Env: []recipe.Var{{Name: "PATH", Value: "/opt/bin:${PATH}"}}}
	e := env(amd64)
	e.Config = func(recipe.Source, recipe.Platform) (ocispec.ImageConfig, error) {
		return ocispec.ImageConfig{Env: []string{"BASE=yes"}}, nil
	}
	_, got, err := Image(r, e)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"BASE=yes", "PATH=/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	slices.Sort(got.Config.Env)
	if !slices.Equal(got.Config.Env, want) {
		t.Errorf("the environment is %q; want %q", got.Config.Env, want)
	}
}

func TestExpand(t *testing.T) {
	base := []string{"PATH=/bin", "EMPTY=", "SELF=${SELF}", "EQ=a=b"}
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"a:", "a:"}, // says so itself
		{"$PATH", "$PATH"},
		{"/opt:${PATH}", "/opt:/bin"},
		{"${PATH}:/opt", "/bin:/opt"},
		{"${PATH}${PATH}", "/bin/bin"},
		{"/opt:${GONE}", "/opt"},
		{"${GONE}:/opt", "/opt"},
		{"${EMPTY}", ""},
		{"x${SELF}", "x${SELF}"}, // once, not for ever
		{"${EQ}", "a=b"},
		{"a${open", "a${open"},
		{"${PATH}${open", "/bin${open"},
	} {
		if got := expand(tt.in, base); got != tt.want {
			t.Errorf("expand(%q) = %q; want %q", tt.in, got, tt.want)
		}
	}
}

// TestBefore: a package set is resolved in the stage as it is before the set
// is installed.
func TestBefore(t *testing.T) {
	r := target("a", amd64, tool("tool", false))
	r.Image().Steps = []recipe.Step{recipe.Run{Script: "first\n"}, aptStep(), recipe.Run{Script: "last\n"}}
	s, err := Before(r, "image", 1, env(amd64))
	if err != nil {
		t.Fatal(err)
	}
	g := marshal(t, s, amd64)
	g.exec(t, "first\n")
	if n := g.count()["exec"]; n != 1 {
		t.Errorf("%d steps run before the set; want 1", n)
	}
	if len(r.Image().Steps) != 3 {
		t.Error("Before shortens the recipe")
	}
	if _, err := Before(r, "gone", 0, env(amd64)); err == nil || err.Error() != `llb: recipe a has no stage "gone"` {
		t.Errorf("a stage that is not there: %v", err)
	}
}

func TestErrors(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name   string
		change func(*recipe.Recipe, *Env)
		want   string
	}{
		{"url", func(_ *recipe.Recipe, e *Env) { e.URL = func(string) (string, error) { return "", boom } }, "a: stage tool: boom"},
		{"image", func(_ *recipe.Recipe, e *Env) { e.Image = func(recipe.Source) (string, error) { return "", boom } }, "a: stage tool: boom"},
		{"layout", func(_ *recipe.Recipe, e *Env) {
			e.Layout = func(recipe.Source, recipe.Platform) (digest.Digest, error) { return "", boom }
		}, "a: stage image: boom"},
		{"no checksum", func(r *recipe.Recipe, _ *Env) {
			r.Stages[0].Steps = []recipe.Step{recipe.Copy{From: recipe.Source{Kind: recipe.FromURL, Ref: "https://example.org/x"}, Dst: "/x"}}
		}, `a: stage tool: https://example.org/x: checksum "": invalid checksum digest format`},
		{"from a download", func(r *recipe.Recipe, _ *Env) { r.Stages[0].From = file("https://example.org/x") }, "a: stage tool: a stage cannot start from a download"},
		{"copy from a cache", func(r *recipe.Recipe, _ *Env) {
			r.Stages[0].Steps = []recipe.Step{recipe.Copy{From: recipe.Source{Kind: recipe.CacheVolume, Ref: "c"}}}
		}, "a: stage tool: cannot read from a cache"},
	} {
		r, e := target("a", amd64, tool("tool", false)), env(amd64)
		tt.change(r, &e)
		if _, _, err := Image(r, e); err == nil || err.Error() != tt.want {
			t.Errorf("%s: Image = %v; want %s", tt.name, err, tt.want)
		}
	}
}

// TestLayerTitles: there is one for each layer, of the stages below, too; files and
// links that follow one another in a stage are one, and an empty set is none.
func TestLayerTitles(t *testing.T) {
	r := &recipe.Recipe{Target: "x", Platform: amd64, Stages: []recipe.Stage{
		{Name: "lower", From: recipe.Source{Kind: recipe.FromLayout, Ref: "base"}, Steps: []recipe.Step{
			recipe.Run{Title: "set up"}, recipe.Apt{Title: "install packages", Debs: make([]recipe.Deb, 3)}, recipe.File{Path: "/a"},
		}},
		{Name: "tool", Steps: []recipe.Step{recipe.Run{Title: "compile"}}},
		{Name: "image", From: from("lower"), Steps: []recipe.Step{
			recipe.File{Path: "/b"}, recipe.Symlink{Path: "/c"}, recipe.Apt{Title: "nothing"}, recipe.Copy{From: from("tool"), Dst: "/opt"}, recipe.File{Path: "/d"},
		}},
	}}
	want := []string{"set up", "install packages (3)", "write /a", "write /b and 1 more", "copy tool to /opt", "write /d"}
	if d := cmp.Diff(want, LayerTitles(r)); d != "" {
		t.Errorf("titles (-want +got):\n%s", d)
	}
}
