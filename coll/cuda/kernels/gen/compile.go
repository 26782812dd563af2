package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"

	"github.com/assay-hpc/assay/coll/elem"
)

// archs are the compute capabilities to compile for.
var archs = []int{80, 90}

// fewRanks is for how many ranks loops are unrolled in the variants of modules
// for few of them. kernels.FewRanks is the same.
const fewRanks = 4

// A compiler is nvcc.
type compiler struct {
	path, version string
}

var release = regexp.MustCompile(`release .*, V(\S+)`)

func newCompiler(path string) (*compiler, error) {
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("no nvcc: %w", err)
	}
	m := release.FindSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("%s --version does not say which: %q", path, out)
	}
	return &compiler{path, string(m[1])}, nil
}

// A unit is a source compiled to one PTX.
type unit struct {
	name    string // of the PTX: MODULE.ptx or MODULE.rRANKS.ptx
	source  string
	arch    int
	defines []string
}

func units() []unit {
	var u []unit
	for _, arch := range archs {
		add := func(module, source string, defines ...string) {
			few := append(slices.Clone(defines), fmt.Sprintf("-DASSAY_RANKS=%d", fewRanks))
			u = append(u, unit{module + ".ptx", source, arch, defines}, unit{fmt.Sprintf("%s.r%d.ptx", module, fewRanks), source, arch, few})
		}
		add("movement", "movement.cu")
		for _, t := range elem.Types {
			for op := elem.Sum; op < elem.Avg; op++ {
				add(t.String()+"_"+op.String(), "reduction.cu", fmt.Sprintf("-DASSAY_TYPE=%d", t), fmt.Sprintf("-DASSAY_OP=%d", op))
			}
		}
	}
	return u
}

// compileAll gives an archive for each architecture, by its name, with the PTX of
// its units in their order. It compiles a copy of the
// sources, so that what is edited meanwhile does not get in.
func (c *compiler) compileAll(sources map[string][]byte) (map[string][]byte, error) {
	tmp, err := os.MkdirTemp("", "ptx")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(tmp, name), text, 0o644); err != nil {
			return nil, err
		}
	}
	todo := units()
	texts := make([][]byte, len(todo))
	slots := make(chan struct{}, runtime.NumCPU())
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	var all sync.WaitGroup
	for i, u := range todo {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			text, err := c.compile(ctx, u, tmp)
			if err != nil {
				fail(err) // of those under way only the first counts
			}
			texts[i] = text
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return archive(todo, texts)
}

// archive puts the PTX of units together.
func archive(todo []unit, texts [][]byte) (map[string][]byte, error) {
	archives := map[string][]byte{}
	for _, arch := range archs {
		var out bytes.Buffer
		files := tar.NewWriter(&out)
		for i, u := range todo {
			if u.arch != arch {
				continue
			}
			if err := files.WriteHeader(&tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: u.name, Mode: 0o644, Size: int64(len(texts[i]))}); err != nil {
				return nil, err
			}
			if _, err := files.Write(texts[i]); err != nil {
				return nil, err
			}
		}
		if err := files.Close(); err != nil {
			return nil, err
		}
		archives[fmt.Sprintf("sm_%d.tar", arch)] = out.Bytes()
	}
	return archives, nil
}

func (c *compiler) compile(ctx context.Context, u unit, dir string) ([]byte, error) {
	out := fmt.Sprintf("sm_%d.%s", u.arch, u.name)
	args := []string{"--ptx", "-O3", "-std=c++17", fmt.Sprintf("-arch=compute_%d", u.arch), "-o", out}
	args = append(append(args, u.defines...), u.source)
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", out, err, text)
	}
	text, err := os.ReadFile(filepath.Join(dir, out))
	if err != nil {
		return nil, err
	}
	return strip(text), nil
}

// internal is what nvcc puts into the names of functions with internal linkage:
// a hash of the source's path, the source's name, and a hash of more or, by some
// versions, the name of a kernel.
var internal = regexp.MustCompile(`[0-9a-f]{8}(_[0-9]+_[a-z]+_cu_)([0-9a-f]{8})?`)

var zeros = []byte("00000000")

// strip takes away what does not come from the sources: comments, which name the
// compiler's build, and hashes of paths. It drops empty lines, too.
func strip(ptx []byte) []byte {
	var out []byte
	for line := range bytes.Lines(ptx) {
		if text := bytes.TrimSpace(line); len(text) > 0 && !bytes.HasPrefix(text, []byte("//")) {
			out = append(out, line...)
		}
	}
	return internal.ReplaceAllFunc(out, func(found []byte) []byte {
		m := internal.FindSubmatch(found)
		return slices.Concat(zeros, m[1], zeros[:len(m[2])])
	})
}
