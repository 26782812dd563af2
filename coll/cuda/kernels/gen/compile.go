package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/coll/elem"
)

// A target is a compute capability to compile PTX for, and those to assemble that PTX for.
type target struct {
	ptx    int
	cubins []int
}

// newest is the target with the PTX that is stored: drivers compile it for GPUs without
// machine code.
const newest = 90

// targetsOf returns the targets for a compiler that knows the given compute capabilities.
// Machine code runs on later GPUs of its major number: 7.0's on 7.5, 8.0's on 8.6 and 8.9,
// 10.0's on 10.3, 12.0's on 12.1. CUDA 13 has dropped 7.0.
func targetsOf(knows []int) []target {
	var all []target
	for _, t := range []int{70, 75} {
		if slices.Contains(knows, t) {
			all = append(all, target{t, []int{t}})
			break
		}
	}
	last := target{newest, []int{90}}
	for _, t := range []int{100, 120} {
		if slices.Contains(knows, t) {
			last.cubins = append(last.cubins, t)
		}
	}
	return append(all, target{80, []int{80}}, last)
}

// types are the element types of reductions.
var types = elem.Types

// fewRanks is the number of ranks for which loops are unrolled in the variants of modules for
// few ranks. kernels.FewRanks is the same.
const fewRanks = 4

// A compiler is nvcc.
type compiler struct {
	path, version string
	targets       []target
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
	knows, err := exec.Command(path, "--list-gpu-arch").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list-gpu-arch: %w", path, err)
	}
	var archs []int
	for word := range strings.FieldsSeq(string(knows)) {
		if n, err := strconv.Atoi(strings.TrimPrefix(word, "compute_")); err == nil {
			archs = append(archs, n)
		}
	}
	return &compiler{path, string(m[1]), targetsOf(archs)}, nil
}

// A unit is a source compiled for a target.
type unit struct {
	module  string
	few     bool // the variant for few ranks
	source  string
	target  target
	defines []string
}

func (c *compiler) units() []unit {
	var u []unit
	for _, t := range c.targets {
		add := func(module, source string, defines ...string) {
			few := append(slices.Clone(defines), fmt.Sprintf("-DASSAY_RANKS=%d", fewRanks))
			u = append(u, unit{module, false, source, t, defines}, unit{module, true, source, t, few})
		}
		add("movement", "movement.cu")
		for _, t := range types {
			if t.Norms() {
				add("norm_"+t.String(), "norm.cu", fmt.Sprintf("-DASSAY_TYPE=%d", t))
			}
			for op := elem.Sum; op < elem.Avg; op++ {
				add(t.String()+"_"+op.String(), "reduction.cu", fmt.Sprintf("-DASSAY_TYPE=%d", t), fmt.Sprintf("-DASSAY_OP=%d", op))
			}
		}
	}
	return u
}

// A code is the compiled code of a unit.
type code struct {
	ptx    []byte
	cubins [][]byte // in the order of the target's cubins
}

// compileAll compiles those of the units that have no code yet, from a copy of the sources, so that
// concurrent edits have no effect.
func (c *compiler) compileAll(sources map[string][]byte, todo []unit, codes []code) error {
	tmp, err := os.MkdirTemp("", "ptx")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(tmp, name), text, 0o644); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(runtime.NumCPU())
	for i, u := range todo {
		g.Go(func() (err error) {
			if ctx.Err() == nil && codes[i].cubins == nil {
				codes[i], err = c.compile(ctx, u, tmp)
			}
			return err
		})
	}
	return g.Wait()
}

// archive is the name of the archive for the unit's code of a kind and architecture.
func (u unit) archive(kind string, arch int) string {
	if u.few {
		return fmt.Sprintf("ptx/%s_%d.r%d.tar", kind, arch, fewRanks)
	}
	return fmt.Sprintf("ptx/%s_%d.tar", kind, arch)
}

// An archiveFile is a file of an archive.
type archiveFile struct {
	name    string
	content []byte
}

// archives returns the files of each archive, by its name and in the order of their units:
// cubins for each architecture and variant, and the newest target's PTX.
func archives(todo []unit, codes []code) map[string][]archiveFile {
	all := map[string][]archiveFile{}
	for i, u := range todo {
		add := func(kind string, arch int, name string, content []byte) {
			archive := u.archive(kind, arch)
			all[archive] = append(all[archive], archiveFile{name, content})
		}
		for k, arch := range u.target.cubins {
			var content []byte
			if codes[i].cubins != nil { // for other units only the names are needed
				content = codes[i].cubins[k]
			}
			add("sm", arch, u.module+".cubin", content)
		}
		if u.target.ptx == newest {
			add("compute", newest, u.module+".ptx", codes[i].ptx)
		}
	}
	return all
}

// compile compiles a source to PTX, and assembles cubins from that PTX, so that the cubins do
// not depend on the source's path either.
func (c *compiler) compile(ctx context.Context, u unit, dir string) (code, error) {
	base := fmt.Sprintf("sm_%d.%s.%t", u.target.ptx, u.module, u.few)
	run := func(out string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, c.path, append([]string{"-O3", "-o", out}, args...)...)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", out, err, text)
		}
		return os.ReadFile(filepath.Join(dir, out))
	}
	args := append([]string{"--ptx", "-std=c++17", fmt.Sprintf("-arch=compute_%d", u.target.ptx)}, u.defines...)
	text, err := run(base+".ptx", append(args, u.source)...)
	if err != nil {
		return code{}, err
	}
	text = strip(text)
	if err := os.WriteFile(filepath.Join(dir, base+".ptx"), text, 0o644); err != nil {
		return code{}, err
	}
	made := code{ptx: text}
	for _, arch := range u.target.cubins {
		cubin, err := run(fmt.Sprintf("%s.%d.cubin", base, arch), "--cubin", fmt.Sprintf("-arch=sm_%d", arch), base+".ptx")
		if err != nil {
			return code{}, err
		}
		made.cubins = append(made.cubins, cubin)
	}
	return made, nil
}

// internal matches what nvcc puts into the names of functions with internal linkage: a hash of
// the source's path, the source's name, and a hash of more or, in some versions, the name of a
// kernel.
var internal = regexp.MustCompile(`[0-9a-f]{8}(_[0-9]+_[a-z]+_cu_)([0-9a-f]{8})?`)

var zeros = []byte("00000000")

// strip removes what does not come from the sources: comments, which name the compiler's
// build, and hashes of paths, which become zeros. It also drops empty lines.
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
