// Package kernels has the kernels of the collective engine on NVIDIA GPUs: as
// CUDA C++, and compiled to PTX, which is embedded, for compute capability 8.0
// and 9.0. Newer processors run the latter.
//
// The PTX in ptx is by CUDA 11.8, so that every driver that is supported takes
// it. A CUDA image's harness has, in ptx/own, also what the image's own nvcc made
// of the same sources, which comes first. A driver older than that nvcc refuses
// it: a newer CUDA of the same major version runs on such a driver, but not its
// PTX.
//
// A module holds the kernels that only move bytes, or those that reduce one
// element type by one operation: drivers compile a module whole, which takes
// seconds for those of all operations. Of each module there is a variant for few
// ranks, whose kernels are smaller and start sooner. The kernels' arguments are
// the structures of abi.h.
package kernels

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/assay-hpc/assay/coll/elem"
)

//go:generate go run ./gen

//go:embed ptx
var files embed.FS

// archs are the compute capabilities that there is PTX for, newest first.
var archs = []int{90, 80}

// Movement is the module of the kernels that only move bytes.
const Movement = "movement"

// Modules are the names of all modules, Movement and the Module of each element
// type and operation, and of their variants for few ranks.
func Modules() []string {
	m := []string{Movement}
	for _, t := range elem.Types {
		for op := elem.Sum; op < elem.Avg; op++ {
			m = append(m, Module(t, op))
		}
	}
	for _, module := range m {
		m = append(m, ForRanks(module, FewRanks))
	}
	return m
}

// PTX is a module's texts for processors of compute capability cc, ten times the
// major plus the minor number: for the newest that such a processor can run. The
// first that the driver takes is the one to use. It is an error if cc is below
// 80, or there is no such module.
func PTX(module string, cc int) ([][]byte, error) { return ptx(files, module, cc) }

func ptx(files fs.FS, module string, cc int) ([][]byte, error) {
	for _, arch := range archs {
		if arch > cc {
			continue
		}
		var texts [][]byte
		for _, dir := range []string{"ptx/own/", "ptx/"} {
			text, err := read(files, fmt.Sprintf("%s%s.sm_%d.ptx.gz", dir, module, arch))
			switch {
			case err == nil:
				texts = append(texts, text)
			case dir == "ptx/" || !errors.Is(err, fs.ErrNotExist):
				return nil, err
			}
		}
		return texts, nil
	}
	return nil, fmt.Errorf("kernels: compute capability %d.%d is too old: they need %d.%d",
		cc/10, cc%10, archs[len(archs)-1]/10, archs[len(archs)-1]%10)
}

// Compilers are the versions of nvcc that the texts of PTX are by, in the same
// order.
func Compilers() []string { return compilers(files) }

func compilers(files fs.FS) []string {
	var versions []string
	for _, name := range []string{"ptx/own/SUM", "ptx/SUM"} {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			continue // not in this build
		}
		line, _, _ := strings.Cut(string(text), "\n")
		versions = append(versions, strings.TrimPrefix(line, "# nvcc "))
	}
	return versions
}

func read(files fs.FS, name string) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", name, err)
	}
	var text bytes.Buffer
	if _, err := io.Copy(&text, r); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", name, err)
	}
	return text.Bytes(), nil
}
