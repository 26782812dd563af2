package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/buildkit/client"
	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/dockerfile"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/build/solve"
)

// lock pins what both methods need.
func (b *bench) lock(ctx context.Context) error {
	text, err := os.ReadFile(b.matrix)
	if err != nil {
		return err
	}
	file := filepath.Join(b.dir, "matrix.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	var rules []string
	for from, to := range b.up.Mirrors() {
		rules = append(rules, from+"="+to)
	}
	if b.w, err = driver.Open(driver.Options{Matrix: file, Mirrors: rules, StateDir: filepath.Join(b.dir, "state"), Version: "bench"}); err != nil {
		return err
	}
	keyring, err := os.ReadFile(b.up.KeyFile())
	if err != nil {
		return err
	}
	if b.w.Publishers, err = solve.SignedWith(keyring); err != nil {
		return err
	}
	s, stop, err := b.w.NewSolver(ctx, driver.BuildOptions{OutDir: filepath.Join(b.dir, "lock"), Builders: []string{b.builder.Addr}, Progress: "quiet"})
	if err != nil {
		return err
	}
	defer stop()
	for _, w := range append([]*driver.Workspace{b.w}, b.alone()...) {
		rep, err := w.Resolve(ctx, s, w.Targets, nil, nil)
		if err != nil {
			return err
		}
		for key, why := range rep.Unresolved {
			return fmt.Errorf("%s is unresolved: %s", key, why)
		}
	}
	return nil
}

// alone returns a workspace for each target that contains no other target: every component is
// then built on the target's own base.
func (b *bench) alone() []*driver.Workspace {
	var out []*driver.Workspace
	for _, t := range b.w.Targets {
		w := *b.w
		w.Targets = []matrix.Target{t}
		out = append(out, &w)
	}
	return out
}

// assay builds the ten targets, and certifies them.
func (b *bench) assay(ctx context.Context) (int, int64, error) {
	res, err := b.w.Build(ctx, driver.BuildOptions{Names: []string{"*"}, OutDir: filepath.Join(b.dir, "assay"), Builders: []string{b.builder.Addr}, Jobs: b.jobs, Progress: "quiet"})
	if err != nil {
		return 0, 0, err
	}
	for _, t := range res.Targets {
		if t.Failed {
			return 0, 0, fmt.Errorf("%s: %s", t.Target, t.Error)
		}
	}
	if res.Executed == 0 {
		return 0, 0, nil
	}
	n, err := b.distribution([]*driver.Workspace{b.w}, true)
	return res.Executed, n, err
}

// distribution returns the total size of the packages from the distribution's own archive,
// counting each once, or once for every step that installs it.
func (b *bench) distribution(ws []*driver.Workspace, once bool) (int64, error) {
	var n int64
	seen := map[string]bool{}
	for _, w := range ws {
		for _, t := range w.Targets {
			mk, err := w.Recipe(t, t.Platforms[0], t.Platforms[0])
			if err != nil {
				return 0, err
			}
			for _, d := range packages(mk.Recipe) {
				if !strings.HasPrefix(d.URL, "debian") || once && seen[d.SHA256] {
					continue
				}
				seen[d.SHA256] = true
				n += d.Size
			}
		}
	}
	return n, nil
}

func packages(r *recipe.Recipe) []recipe.Deb {
	var out []recipe.Deb
	for _, s := range r.Stages {
		for _, st := range s.Steps {
			if a, ok := st.(recipe.Apt); ok {
				out = append(out, a.Debs...)
			}
		}
	}
	return out
}

// peer runs one buildctl for each target.
func (b *bench) peer(ctx context.Context) (int, int64, error) {
	var mu sync.Mutex
	steps := map[string]bool{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(b.jobs)
	ws := b.alone()
	for _, w := range ws {
		g.Go(func() error {
			executed, err := b.buildctl(ctx, w)
			mu.Lock()
			defer mu.Unlock()
			for _, s := range executed {
				steps[s] = true
			}
			return err
		})
	}
	if err := g.Wait(); err != nil || len(steps) == 0 {
		return 0, 0, err
	}
	n, err := b.distribution(ws, false)
	return len(steps), n, err
}

// buildctl builds a target's Dockerfile and returns the executed vertices.
func (b *bench) buildctl(ctx context.Context, w *driver.Workspace) ([]string, error) {
	t := w.Targets[0]
	dir := filepath.Join(b.dir, "dockerfiles", t.Name)
	contexts, err := b.dockerfile(ctx, w, dir)
	if err != nil {
		return nil, err
	}
	args := []string{"--addr", b.builder.Addr, "build", "--progress", "rawjson", "--frontend", "dockerfile.v0",
		"--local", "context=" + dir, "--local", "dockerfile=" + dir,
		"--opt", "build-arg:SOURCE_DATE_EPOCH=" + strconv.FormatInt(w.Lock.Epoch, 10),
		"--oci-layout", "assay=" + filepath.Join(w.StateDir, "content"),
		"--output", "type=oci,tar=false,dest=" + filepath.Join(b.dir, "peer", t.Name)}
	for name, ref := range contexts {
		args = append(args, "--opt", "context:"+name+"=oci-layout://"+ref)
	}
	cmd := exec.CommandContext(ctx, b.options.buildctl, args...)
	var progress, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &errs, &progress
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("buildctl %s: %w\n%s", t.Name, err, lastLogs(progress.Bytes()))
	}
	return executed(progress.Bytes()), nil
}

// dockerfile writes the target's Dockerfile and returns the named contexts that it needs.
func (b *bench) dockerfile(ctx context.Context, w *driver.Workspace, dir string) (map[string]string, error) {
	t := w.Targets[0]
	p := t.Platforms[0]
	mk, err := w.Recipe(t, p, p)
	if err != nil {
		return nil, err
	}
	text, err := dockerfile.Write(mk.Recipe, dockerfile.Env{Epoch: w.Epoch(), URL: w.Mirror.URL, Image: w.Mirror.Image, Sed: w.Mirror.Sed()})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// Use the daemon's built-in frontend: there is no registry to fetch one from.
	text = strings.Replace(text, "# syntax=docker/dockerfile:1\n", "", 1)
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o644); err != nil {
		return nil, err
	}
	return b.contexts(ctx, w, mk)
}

func (b *bench) contexts(ctx context.Context, w *driver.Workspace, mk component.Result) (map[string]string, error) {
	s, stop, err := w.NewSolver(ctx, driver.BuildOptions{OutDir: filepath.Join(b.dir, "lock"), Builders: []string{b.builder.Addr}, Progress: "quiet"})
	if err != nil {
		return nil, err
	}
	defer stop()
	p := mk.Recipe.Platform
	if err := s.Provider.Prepare(ctx, mk.Recipe, p); err != nil {
		return nil, err
	}
	src := recipe.Source{Kind: recipe.FromLayout, Ref: component.HarnessSource}
	for _, st := range mk.Recipe.Stages {
		for _, step := range st.Steps {
			if run, ok := step.(recipe.Run); ok {
				for _, m := range run.Mounts {
					if m.From.Ref == component.HarnessSource {
						src = m.From
					}
				}
			}
		}
	}
	d, err := s.Provider.Layout(src, p)
	return map[string]string{component.HarnessSource: "assay@" + d.String()}, err
}

// executed returns the vertices that were run, not found in the cache.
func executed(rawjson []byte) []string {
	started, cached := map[string]bool{}, map[string]bool{}
	each(rawjson, func(s *client.SolveStatus) {
		for _, v := range s.Vertexes {
			started[v.Digest.String()] = started[v.Digest.String()] || v.Started != nil
			cached[v.Digest.String()] = cached[v.Digest.String()] || v.Cached
		}
	})
	var out []string
	for d := range started {
		if started[d] && !cached[d] {
			out = append(out, d)
		}
	}
	return out
}

func lastLogs(rawjson []byte) string {
	var lines []string
	each(rawjson, func(s *client.SolveStatus) {
		for _, l := range s.Logs {
			lines = append(lines, strings.TrimRight(string(l.Data), "\n"))
		}
		for _, v := range s.Vertexes {
			if v.Error != "" {
				lines = append(lines, v.Name+": "+v.Error)
			}
		}
	})
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

func each(rawjson []byte, f func(*client.SolveStatus)) {
	sc := bufio.NewScanner(bytes.NewReader(rawjson))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var s client.SolveStatus
		if json.Unmarshal(sc.Bytes(), &s) == nil {
			f(&s)
		}
	}
}
