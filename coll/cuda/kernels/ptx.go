// Package kernels has the kernels of the collective engine on NVIDIA GPUs: as
// CUDA C++, and compiled to PTX, which is embedded, for compute capability 8.0
// and 9.0. Newer processors run the latter.
//
// A module holds the kernels that only move bytes, or those that reduce one
// element type by one operation: drivers compile a module whole, which takes
// seconds for those of all operations. The kernels' arguments are the structures
// of abi.h.
package kernels

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"

	"github.com/assay-hpc/assay/coll/elem"
)

//go:generate go run ./gen

//go:embed ptx
var files embed.FS

// archs are the compute capabilities that there is PTX for, newest first.
var archs = []int{90, 80}

// Movement is the module of the kernels that only move bytes.
const Movement = "movement"

// Modules are the names of all modules: Movement, and the Module of each element
// type and operation.
func Modules() []string {
	m := []string{Movement}
	for _, t := range elem.Types {
		for op := elem.Sum; op < elem.Avg; op++ {
			m = append(m, Module(t, op))
		}
	}
	return m
}

// PTX is a module's text for processors of compute capability cc, ten times the
// major plus the minor number. It is the newest that such a processor can run.
// It is an error if cc is below 80, or there is no such module.
func PTX(module string, cc int) ([]byte, error) {
	for _, arch := range archs {
		if arch <= cc {
			return read(fmt.Sprintf("ptx/%s.sm_%d.ptx.gz", module, arch))
		}
	}
	return nil, fmt.Errorf("kernels: compute capability %d.%d is too old: they need %d.%d",
		cc/10, cc%10, archs[len(archs)-1]/10, archs[len(archs)-1]%10)
}

func read(name string) ([]byte, error) {
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
