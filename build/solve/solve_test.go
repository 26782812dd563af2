package solve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/buildkit/client"
	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/solver/pb"
	digest "github.com/opencontainers/go-digest"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/fetch"
	bkgraph "github.com/assay-hpc/assay/build/llb"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/mirror"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/confine"
)

var amd64 = recipe.Platform{OS: "linux", Arch: "amd64"}

// vertex is a step as BuildKit reports it.
func vertex(name, err string) *client.Vertex {
	now := time.Unix(1, 0)
	return &client.Vertex{Digest: digest.FromString(name), Name: name, Started: &now, Error: err}
}

func log(name, text string) *client.VertexLog {
	return &client.VertexLog{Vertex: digest.FromString(name), Data: []byte(text)}
}

// progress swallows what would be displayed.
func progress(t *testing.T) *Progress {
	p := &Progress{display: make(chan *client.SolveStatus), done: make(chan struct{}), steps: map[digest.Digest]*Count{}}
	go func() {
		defer close(p.done)
		for range p.display {
		}
	}()
	t.Cleanup(p.Close)
	return p
}

// watched sends what BuildKit reports through a watcher.
func watched(p *Progress, name string, list ...*client.SolveStatus) *watcher {
	_, w := p.watch(context.Background(), name, 0)
	for _, st := range list {
		w.ch <- st
	}
	close(w.ch)
	w.wait()
	return w
}

func status(vs ...*client.Vertex) *client.SolveStatus { return &client.SolveStatus{Vertexes: vs} }

func logs(ls ...*client.VertexLog) *client.SolveStatus { return &client.SolveStatus{Logs: ls} }

func TestStepError(t *testing.T) {
	const canceled = "context canceled: context canceled"
	numbered := func(from, to int) string {
		var b strings.Builder
		for i := from; i <= to; i++ {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	exit := errors.New("process \"/bin/sh -euc a\\nlong\\nscript\" did not complete successfully: exit code: 2")
	for _, tt := range []struct {
		name      string
		in        []*client.SolveStatus
		err       error
		step, log string
		text      string
	}{
		{
			name: "one step fails",
			in: []*client.SolveStatus{
				status(vertex("base", ""), vertex("compile", "")),
				logs(log("base", "pulled\n"), log("compile", "cc\n")), logs(log("compile", "error: "), log("compile", "no\n")),
				status(vertex("compile", "exit code: 2")),
			},
			err: exit, step: "compile", log: "cc\nerror: no",
			text: "fabric amd64: step \"compile\" failed: exit code: 2\n    | cc\n    | error: no",
		},
		{
			name: "others are cancelled after it",
			in:   []*client.SolveStatus{status(vertex("compile", "exit code: 2")), logs(log("compile", "no\n")), status(vertex("other", canceled))},
			err:  exit, step: "compile", log: "no",
			text: "fabric amd64: step \"compile\" failed: exit code: 2\n    | no",
		},
		{
			name: "others are cancelled before it is reported",
			in:   []*client.SolveStatus{status(vertex("other", canceled)), status(vertex("compile", "exit code: 2"))},
			err:  exit, step: "compile",
			text: "fabric amd64: step \"compile\" failed: exit code: 2",
		},
		{
			name: "the last lines",
			in:   []*client.SolveStatus{logs(log("compile", numbered(1, 40)+"\n\n")), status(vertex("compile", "exit code: 2"))},
			err:  exit, step: "compile", log: numbered(26, 40),
			text: "fabric amd64: step \"compile\" failed: exit code: 2\n    | " + strings.ReplaceAll(numbered(26, 40), "\n", "\n    | "),
		},
		{
			name: "no step",
			in:   []*client.SolveStatus{status(vertex("base", ""))},
			err:  errors.New("no such builder"),
			text: "fabric amd64: no such builder",
		},
	} {
		got := watched(progress(t), "fabric amd64", tt.in...).stepError(tt.err)
		var e *StepError
		if !errors.As(got, &e) || e.Step != tt.step || e.Log != tt.log || !errors.Is(got, tt.err) {
			t.Errorf("%s: stepError = %#v; want step %q with log %q", tt.name, got, tt.step, tt.log)
			continue
		}
		if diff := cmp.Diff(tt.text, got.Error()); diff != "" {
			t.Errorf("%s: the message (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestChecksumStep: what BuildKit says of a damaged download names the URL and
// both values, as our own downloads do.
func TestChecksumStep(t *testing.T) {
	got, want := strings.Repeat("a", 64), strings.Repeat("b", 64)
	r := &recipe.Recipe{Stages: []recipe.Stage{
		{From: recipe.Source{Kind: recipe.FromURL, Ref: "https://a.example.org/x.tgz", Digest: "sha256:" + want}},
	}}
	deb := &recipe.Recipe{Stages: []recipe.Stage{{Steps: []recipe.Step{recipe.Apt{Debs: []recipe.Deb{{URL: "debian:pool/x.deb", SHA256: want}}}}}}}
	mount := &recipe.Recipe{Stages: []recipe.Stage{{Steps: []recipe.Step{recipe.Run{Mounts: []recipe.Mount{{From: r.Stages[0].From}}}}}}}
	for _, tt := range []struct {
		name string
		r    *recipe.Recipe
		err  string
		url  string
	}{
		{"after the download", r, fmt.Sprintf("failed to solve: digest mismatch sha256:%s: sha256:%s", got, want), "https://a.example.org/x.tgz"},
		{"before it", r, fmt.Sprintf("digest mismatch for http://m.example.org/x.tgz: sha256:%s (expected: sha256:%s)", got, want), "https://a.example.org/x.tgz"},
		{"a package", deb, fmt.Sprintf("digest mismatch sha256:%s: sha256:%s", got, want), "debian:pool/x.deb"},
		{"a mount", mount, fmt.Sprintf("digest mismatch sha256:%s: sha256:%s", got, want), "https://a.example.org/x.tgz"},
		{"another recipe's", &recipe.Recipe{}, fmt.Sprintf("digest mismatch sha256:%s: sha256:%s", got, want), "[download] x.tgz"},
	} {
		err := explain(tt.r, watched(progress(t), "fabric amd64", status(vertex("[download] x.tgz", tt.err))).stepError(errors.New(tt.err)))
		var sum *fetch.ChecksumError
		if !errors.As(err, &sum) || sum.Got != got || sum.Want != want || sum.URL != tt.url {
			t.Errorf("%s: explain = %v; want a *fetch.ChecksumError of %s", tt.name, err, tt.url)
			continue
		}
		if text := err.Error(); !strings.Contains(text, got) || !strings.Contains(text, want) {
			t.Errorf("%s: the message is %s", tt.name, text)
		}
	}
	other := watched(progress(t), "fabric amd64").stepError(errors.New("exit code: 1"))
	if err := explain(r, other); err != other {
		t.Errorf("explain of another error = %v", err)
	}
}

// TestSteps: a step that several solves share counts once.
func TestSteps(t *testing.T) {
	p := progress(t)
	cached := vertex("cached", "")
	cached.Cached = true
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			watched(p, fmt.Sprint(i), status(vertex("shared", ""), cached), status(vertex("shared", ""), vertex(fmt.Sprint("own ", i), "")), status(&client.Vertex{Digest: digest.FromString("waiting")}))
		})
	}
	wg.Wait()
	if executed, hit := p.Steps(); executed != 5 || hit != 1 {
		t.Errorf("Steps() = %d executed, %d cached; want 5 and 1", executed, hit)
	}
}

// TestTimes: what ran to its end counts with its time, once however many solves
// share it; what came from the cache, failed, or was only asked for does not.
func TestTimes(t *testing.T) {
	ran := func(name string, begin, end int64, change func(*client.Vertex)) *client.Vertex {
		b, e := time.Unix(begin, 0), time.Unix(end, 0)
		v := &client.Vertex{Digest: digest.FromString(name), Name: name, Inputs: []digest.Digest{"sha256:x"}, Started: &b, Completed: &e}
		if change != nil {
			change(v)
		}
		return v
	}
	source := func(v *client.Vertex) { v.Inputs = nil }
	running := ran("[image amd64] compile", 10, 0, func(v *client.Vertex) { v.Completed = nil })
	p := progress(t)
	for _, image := range []string{"fabric amd64", "login amd64"} {
		watched(p, image,
			status(running, ran("[image amd64] compile", 10, 40, nil)),
			status(ran("[image amd64] files", 1, 2, nil), &client.Vertex{Digest: digest.FromString("other files")}),
			status(ran("[image amd64] cached", 1, 9, func(v *client.Vertex) { v.Cached = true })),
			status(ran("[image amd64] failed", 1, 9, func(v *client.Vertex) { v.Error = "exit code: 1" })),
			status(ran("[download] asked.tgz", 1, 2, source)),
			status(ran("[download] fetched.tgz", 1, 2, source)), status(ran("[download] fetched.tgz", 5, 11, source)),
			status(ran("exporting to oci image format", 50, 53, func(v *client.Vertex) { source(v); v.Digest = digest.FromString(image) })),
		)
	}
	p.Took("[make] base linux/amd64", 7*time.Second)
	want := map[string][]time.Duration{
		"[image amd64] compile": {30 * time.Second}, "[image amd64] files": {time.Second}, "[download] fetched.tgz": {6 * time.Second},
		"[export] fabric amd64": {3 * time.Second}, "[export] login amd64": {3 * time.Second}, "[make] base linux/amd64": {7 * time.Second},
	}
	if diff := cmp.Diff(want, p.Times()); diff != "" {
		t.Errorf("Times (-want +got):\n%s", diff)
	}
}

func TestNewProgress(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := NewProgress(f, "plain")
	if err != nil {
		t.Fatal(err)
	}
	done := vertex("[image amd64] compile", "")
	at := time.Unix(2, 0)
	done.Completed = &at
	watched(p, "x", status(done))
	p.Close()
	p.Close() // a second time does no harm
	text, err := os.ReadFile(f.Name())
	if err != nil || !strings.Contains(string(text), "[image amd64] compile") {
		t.Errorf("the display shows %q, %v", text, err)
	}
	if _, err := NewProgress(f, "colourful"); err == nil {
		t.Error("NewProgress takes a mode that there is not")
	}
}

func TestTransient(t *testing.T) {
	for _, tt := range []struct {
		err  string
		want bool
	}{
		{"read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer", true},
		{"failed to copy: httpReadSeeker: failed open: unexpected status code https://r.example.org/v2/x: 503 Service Unavailable", true},
		{"unexpected EOF", true},
		{"dial tcp: i/o timeout", true},
		{"net/http: TLS handshake timeout", true},
		{"Get \"http://x\": 500 Internal Server Error", true},
		{"invalid response status code 502", true},
		{"failed to load cache key: invalid response status 502", true},
		{"failed to load cache key: invalid response status 429", true},
		{"failed to load cache key: Get \"https://x\": EOF", true},
		{"Get \"https://x\": dial tcp 10.0.0.1:443: connect: connection refused", true},
		{"stream error: stream ID 7; INTERNAL_ERROR; received from peer", true},
		{"failed to prepare a as b: failed to rename: rename /s/new-1 /s/21: file exists", true},
		{"invalid response status 501", false},
		{"invalid response status 404", false},
		{"invalid response status code 404", false},
		{"404 Not Found", false},
		{"401 Unauthorized", false},
		{"process \"/bin/sh -euc make\" did not complete successfully: exit code: 2", false},
		{"digest mismatch for http://x: sha256:aa (expected: sha256:bb)", false},
		{"no space left on device", false},
	} {
		if got := transient(errors.New(tt.err)); got != tt.want {
			t.Errorf("transient(%q) = %v; want %v", tt.err, got, tt.want)
		}
	}
}

func TestCacheEntries(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want client.CacheOptionsEntry
	}{
		{"registry.example.org/cache:tag", client.CacheOptionsEntry{Type: "registry", Attrs: map[string]string{"ref": "registry.example.org/cache:tag"}}},
		{"type=registry,ref=registry.example.org/cache:tag,mode=max", client.CacheOptionsEntry{Type: "registry", Attrs: map[string]string{"ref": "registry.example.org/cache:tag", "mode": "max"}}},
		{"ref=registry.example.org/cache", client.CacheOptionsEntry{Type: "registry", Attrs: map[string]string{"ref": "registry.example.org/cache"}}},
		{"type=gha,scope=a=b", client.CacheOptionsEntry{Type: "gha", Attrs: map[string]string{"scope": "a=b"}}},
		{"type=local,dest=/tmp/x", client.CacheOptionsEntry{Type: "local", Attrs: map[string]string{"dest": "/tmp/x"}}},
	} {
		got := cacheEntries([]string{tt.in})
		if diff := cmp.Diff([]client.CacheOptionsEntry{tt.want}, got); diff != "" {
			t.Errorf("cacheEntries(%q) (-want +got):\n%s", tt.in, diff)
		}
	}
	if got := cacheEntries(nil); len(got) != 0 {
		t.Errorf("cacheEntries(nil) = %v", got)
	}
}

func TestParseBase(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want matrix.Debootstrap
		ok   bool
	}{
		{"base-bookworm-minbase", matrix.Debootstrap{Suite: "bookworm", Variant: "minbase"}, true},
		{"base-bookworm", matrix.Debootstrap{}, false},
		{"harness-source", matrix.Debootstrap{}, false},
		{"other-a-b", matrix.Debootstrap{}, false},
		{"", matrix.Debootstrap{}, false},
	} {
		if got, ok := parseBase(tt.in); got != tt.want || ok != tt.ok {
			t.Errorf("parseBase(%q) = %v, %v; want %v, %v", tt.in, got, ok, tt.want, tt.ok)
		}
	}
}

func provider(t *testing.T) *Provider {
	t.Helper()
	p := &Provider{
		Mirror: mirror.New(mirror.Rule{From: "docker.io", To: "mirror.example.org:5000"}), Lock: lock.New(), StateDir: t.TempDir(),
		Source: []byte(strings.Repeat("\x00", 1024)), Epoch: time.Unix(1_767_225_600, 0).UTC(), Log: t.Logf,
	}
	if err := p.Open(); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPrepare: what a recipe refers to is made once, and found afterwards, also
// by another process.
func TestPrepare(t *testing.T) {
	p := provider(t)
	src := recipe.Source{Kind: recipe.FromLayout, Ref: component.HarnessSource, Digest: "sha256:12"}
	r := &recipe.Recipe{Target: "x", Platform: recipe.Platform{OS: "linux", Arch: "arm64"}, Stages: []recipe.Stage{
		{Name: "a", Native: true, Steps: []recipe.Step{recipe.Run{Mounts: []recipe.Mount{{From: src}}}}},
	}}
	if _, err := p.Layout(src, amd64); err == nil || !strings.Contains(err.Error(), "harness-source for linux/amd64 was not prepared") {
		t.Errorf("Layout before Prepare: %v", err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := p.Prepare(t.Context(), r, amd64); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want, err := p.Layout(src, amd64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Layout(src, r.Platform); err == nil {
		t.Error("the native stage's source was made for the image's architecture")
	}
	if cfg, err := p.Config(t.Context(), src, amd64); err != nil || len(cfg.Env) != 0 {
		t.Errorf("Config = %+v, %v", cfg, err)
	}
	other := &Provider{StateDir: p.StateDir, Epoch: p.Epoch}
	if err := other.Open(); err != nil {
		t.Fatal(err)
	}
	if got, err := other.Layout(src, amd64); err != nil || got != want {
		t.Errorf("another process finds %v, %v; want %v", got, err, want)
	}
	// Another date is another content.
	other.Epoch = other.Epoch.Add(24 * time.Hour)
	if got, err := other.Layout(src, amd64); err == nil {
		t.Errorf("another epoch finds %v", got)
	}
	r.Stages[0].Steps = []recipe.Step{recipe.Copy{From: recipe.Source{Kind: recipe.FromLayout, Ref: "unheard-of"}}}
	if err := p.Prepare(t.Context(), r, amd64); err == nil || err.Error() != `unheard-of for linux/amd64: no component makes "unheard-of"` {
		t.Errorf("Prepare of what no component makes: %v", err)
	}
}

func TestProviderImage(t *testing.T) {
	p := provider(t)
	sum := "sha256:" + strings.Repeat("12", 32)
	for in, want := range map[string]string{
		"docker.io/nvidia/cuda:12.9.1-devel": "mirror.example.org:5000/nvidia/cuda@" + sum,
		"registry.example.org/a/b:1":         "registry.example.org/a/b@" + sum,
	} {
		got, err := p.Image(recipe.Source{Kind: recipe.FromImage, Ref: in, Digest: sum})
		if err != nil || got != want {
			t.Errorf("Image(%s) = %q, %v; want %q", in, got, err, want)
		}
	}
	if got, err := p.Image(recipe.Source{Ref: "Not A Reference"}); err == nil {
		t.Errorf("Image of nonsense = %q", got)
	}
}

// TestGateWithoutBuilder: it says what would help.
func TestGateWithoutBuilder(t *testing.T) {
	s := &Solver{Provider: provider(t), Progress: progress(t), OutDir: t.TempDir()}
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Gate(context.Background(), Subject{Name: "x", Digest: digest.FromString("x"), Platform: amd64})
	if err == nil || !strings.Contains(err.Error(), "no builder runs linux/amd64") || !strings.Contains(err.Error(), "--builder") {
		t.Errorf("Gate = %v; want the remedy", err)
	}
}

// TestProgramGraph: a program of an image runs without network, on a root that it cannot change,
// and what its supervisor reads and writes is not the image's.
func TestProgramGraph(t *testing.T) {
	g := &gate{subject: Subject{Name: "fabric", Platform: amd64}, image: llb.Image("image"), binary: llb.Image("harness")}
	graph, err := g.programGraph(confine.Program{File: "/usr/sbin/sshd", Args: []string{"sshd", "-t"}, Env: []string{"A=b"}, Dirs: []string{"/run/sshd"}})
	if err != nil {
		t.Fatal(err)
	}
	def, err := graph.Marshal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, ignore := execOf(t, def)
	if diff := cmp.Diff([]string{confine.Path, "confine", programFile, "/run/assay/out/outcome.json"}, e.Meta.Args); diff != "" {
		t.Errorf("the command (-want +got):\n%s", diff)
	}
	if e.Network != pb.NetMode_NONE || e.Security != pb.SecurityMode_SANDBOX || !ignore || strings.Contains(strings.Join(e.Meta.Env, " "), "A=b") {
		t.Errorf("network %v, security %v, cache ignored %v, environment of the supervisor %q", e.Network, e.Security, ignore, e.Meta.Env)
	}
	var got []string
	for _, m := range e.Mounts {
		got = append(got, fmt.Sprint(m.Dest, " readonly=", m.Readonly, " output=", m.Output >= 0, " ", m.MountType))
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{
		"/ readonly=true output=false BIND", "/run/assay/bin readonly=true output=false BIND", "/run/assay/out readonly=false output=true BIND",
		"/run/assay/program readonly=true output=false BIND", "/run/sshd readonly=false output=false TMPFS", "/tmp readonly=false output=false TMPFS",
	}, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

// TestGateRecords: an image is held against its base's own records, whatever it has in their place.
func TestGateRecords(t *testing.T) {
	s := &Solver{Provider: provider(t)}
	base := recipe.Source{Kind: recipe.FromImage, Ref: "docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04", Digest: digest.FromString("base").String()}
	graph, err := s.records(base, amd64)
	if err != nil {
		t.Fatal(err)
	}
	def, err := graph.Marshal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, dt := range def.Def {
		var op pb.Op
		if err := op.Unmarshal(dt); err != nil {
			t.Fatal(err)
		}
		for _, a := range op.GetFile().GetActions() {
			if c := a.GetCopy(); c != nil {
				got = append(got, c.Src+" to "+c.Dest)
			}
		}
		if from, ok := strings.CutPrefix(op.GetSource().GetIdentifier(), "docker-image://"); ok {
			got = append(got, "from "+from)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{
		"/etc/ld.so.cache to /ld.so.cache", "/opt/assay/image.jso[n] to /", "/var/lib/dpkg/info to /info", "/var/lib/dpkg/status to /dpkg-status",
		"from mirror.example.org:5000/nvidia/cuda@" + base.Digest,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// execOf returns the only command of a graph, and whether its cache is
// ignored.
func execOf(t *testing.T, def *llb.Definition) (*pb.ExecOp, bool) {
	t.Helper()
	for _, dt := range def.Def {
		var op pb.Op
		if err := op.Unmarshal(dt); err != nil {
			t.Fatal(err)
		}
		if e := op.GetExec(); e != nil {
			return e, def.Metadata[digest.FromBytes(dt)].IgnoreCache
		}
	}
	t.Fatal("the graph runs nothing")
	return nil, false
}

// TestExplainGone: a package that its archive has dropped names the remedy.
func TestExplainGone(t *testing.T) {
	e := &StepError{Image: "fabric-debian12 amd64", Step: "[download] foo_1_amd64.deb", Err: errors.New("invalid response status 404")}
	got := explain(&recipe.Recipe{Target: "fabric-debian12"}, e).Error()
	for _, want := range []string{"foo_1_amd64.deb", "404", "assay lock --update fabric-debian12"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

// TestSlowDownload: BuildKit waits for a silent server for ever, so the solve
// ends when a download takes longer than it may; other steps have the time
// that they need.
func TestSlowDownload(t *testing.T) {
	running := func(name string, completed bool) *client.SolveStatus {
		v := vertex(name, "")
		if completed {
			v.Completed = v.Started
		}
		return status(v)
	}
	ctx, w := progress(t).watch(t.Context(), "fabric amd64", 2*time.Second)
	w.ch <- running("compile", false)
	w.ch <- running("[download] done.tgz", false)
	w.ch <- running("[download] done.tgz", true)
	w.ch <- running("[download] silent.tgz", false)
	w.ch <- running("[download] silent.tgz", false)
	<-ctx.Done()
	var limit *fetch.LimitError
	if err := context.Cause(ctx); !errors.As(err, &limit) || limit.URL != "[download] silent.tgz" || !strings.Contains(err.Error(), "--download-timeout") {
		t.Errorf("the solve ends for %v; want a *fetch.LimitError of silent.tgz", err)
	}
	close(w.ch)
	w.wait()

	ctx, w = progress(t).watch(t.Context(), "fabric amd64", 0)
	w.ch <- running("[download] slow.tgz", false)
	close(w.ch)
	<-w.done
	if ctx.Err() != nil || len(w.running) != 1 {
		t.Errorf("without a limit from the user: %v, %d clocks; want one that runs for long", ctx.Err(), len(w.running))
	}
	w.wait()
}

// TestGraphHasNoCredential: BuildKit's graph, which is recorded, cached and
// shown, names secrets and does not hold them.
func TestGraphHasNoCredential(t *testing.T) {
	p := provider(t)
	var rules []mirror.Rule
	for _, text := range []string{"goproxy:=https://robot:hunter2@m.example.org/go", "debian:=https://robot:hunter2@m.example.org/debian", "https://a.example.org=https://robot:hunter2@m.example.org/a"} {
		rule, err := mirror.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, rule)
	}
	p.Mirror = mirror.New(rules...)
	p.Mirror.Defaults["debian:"] = func() (string, error) { return "http://archive.example.org/debian", nil }
	s := &Solver{Provider: p, Epoch: p.Epoch}
	sum := strings.Repeat("ab", 32)
	file := func(url string) recipe.Mount {
		return recipe.Mount{Target: "/x", From: recipe.Source{Kind: recipe.FromURL, Ref: url, Digest: "sha256:" + sum}}
	}
	r := &recipe.Recipe{Target: "x", Platform: amd64, Stages: []recipe.Stage{{Name: "a", From: recipe.Source{Kind: recipe.Scratch}, Steps: []recipe.Step{
		recipe.Run{Title: "go", Script: "true", Mounts: []recipe.Mount{file("goproxy:a/@v/v1.zip"), file("https://a.example.org/x.tgz"), file("https://b.example.org/x.tgz")}},
		recipe.Apt{Title: "install", Debs: []recipe.Deb{{Name: "ssh", Version: "1", Arch: "amd64", URL: "debian:pool/ssh.deb", SHA256: sum, Size: 1}}},
		recipe.Apt{Title: "more", Packages: []string{"vim"}},
	}}}}
	b := &daemon.Builder{Native: amd64}
	state, _, err := bkgraph.Image(r, s.env(t.Context(), b))
	if err != nil {
		t.Fatal(err)
	}
	image, err := state.Marshal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	resolve, err := s.resolveGraph(t.Context(), b, r, component.Missing{Key: "x/amd64", Stage: "a", Step: 2, Platform: amd64})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		def  *llb.Definition
		want []string
	}{
		"image":   {image, []string{"https://m.example.org/go/a/@v/v1.zip", "https://m.example.org/a/x.tgz", "https://m.example.org/debian/pool/ssh.deb", "assay.mirror.goproxy:", "assay.mirror.https://a.example.org", "assay.mirror.debian:"}},
		"resolve": {resolve, []string{"https://m.example.org/debian", recipe.AptAuthFile, aptAuth}},
	} {
		var all strings.Builder
		for _, d := range tt.def.Def {
			all.Write(d)
		}
		fmt.Fprint(&all, tt.def.Metadata)
		for _, want := range tt.want {
			if !strings.Contains(all.String(), want) {
				t.Errorf("%s: the graph has no %q", name, want)
			}
		}
		for _, bad := range []string{"hunter2", "robot", base64.StdEncoding.EncodeToString([]byte("robot:hunter2"))} {
			if strings.Contains(all.String(), bad) {
				t.Errorf("%s: %q is in the graph", name, bad)
			}
		}
	}
}

// TestDirectoryMirror: what lies in a directory of this machine reaches builders
// through the session, verified, and its path is not in the graph.
func TestDirectoryMirror(t *testing.T) {
	p := provider(t)
	dir := t.TempDir()
	rule, err := mirror.ParseRule("https://a.example.org=" + dir)
	if err != nil {
		t.Fatal(err)
	}
	p.Mirror = mirror.New(rule)
	text := []byte("the source")
	if err := os.MkdirAll(filepath.Join(dir, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x/v1.tgz"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	const url = "https://a.example.org/x/v1.tgz"
	sum, size, err := p.Sum(t.Context(), url)
	if want := fmt.Sprintf("%x", sha256.Sum256(text)); err != nil || sum != want || size != int64(len(text)) {
		t.Fatalf("Sum = %s, %d, %v; want %s of %d bytes", sum, size, err, want, len(text))
	}
	src := recipe.Source{Kind: recipe.FromURL, Ref: url, Digest: "sha256:" + sum}
	r := &recipe.Recipe{Target: "x", Platform: amd64, Stages: []recipe.Stage{{Name: "a", From: recipe.Source{Kind: recipe.Scratch}, Steps: []recipe.Step{
		recipe.Run{Title: "unpack", Script: "true", Mounts: []recipe.Mount{{Target: "/x", From: src}}},
	}}}}
	s := &Solver{Provider: p, Epoch: p.Epoch}
	env := s.env(t.Context(), &daemon.Builder{Native: amd64})
	if _, _, err := bkgraph.Image(r, env); err == nil || !strings.Contains(err.Error(), url+": the file was not prepared") {
		t.Errorf("the graph before Prepare: %v", err)
	}
	if err := p.Prepare(t.Context(), r, amd64); err != nil {
		t.Fatal(err)
	}
	state, _, err := bkgraph.Image(r, env)
	if err != nil {
		t.Fatal(err)
	}
	def, err := state.Marshal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.File(src.Digest)
	if err != nil {
		t.Fatal(err)
	}
	all := string(bytes.Join(def.Def, nil))
	if !strings.Contains(all, m.String()) || strings.Contains(all, dir) {
		t.Errorf("the graph has the manifest: %v, the path: %v; want it without the path", strings.Contains(all, m.String()), strings.Contains(all, dir))
	}
	// Other content under the same name is refused, and so is a missing file.
	if err := os.WriteFile(filepath.Join(dir, "x/v1.tgz"), []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	fresh := provider(t)
	fresh.Mirror = p.Mirror
	var mismatch *fetch.ChecksumError
	if err := fresh.Prepare(t.Context(), r, amd64); !errors.As(err, &mismatch) {
		t.Errorf("Prepare with another file: %v; want a checksum error", err)
	}
	if err := os.Remove(filepath.Join(dir, "x/v1.tgz")); err != nil {
		t.Fatal(err)
	}
	if err := fresh.Prepare(t.Context(), r, amd64); err == nil || !strings.Contains(err.Error(), url) || !strings.Contains(err.Error(), "the mirror has no file") {
		t.Errorf("Prepare without the file: %v", err)
	}
}
