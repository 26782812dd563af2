// Package kernels has the kernels of the collective engine on NVIDIA GPUs: as
// CUDA C++, and compiled to PTX, which is embedded, for compute capability 8.0
// and 9.0. Newer processors run the latter.
//
// The PTX in ptx is by CUDA 11.8, so that every driver that is supported takes
// it. A CUDA image's harness has, in ptx/own, also what the image's own nvcc made
// of the same sources, which comes first. A driver older than that nvcc refuses
// it: a newer CUDA of the same major version runs on such a driver, but not its
// PTX. All modules for one compute capability are one archive, a tar compressed by
// zstd: they are much alike, and together take a quarter of what they take apart.
//
// A module holds the kernels that only move bytes, or those that reduce one
// element type by one operation: drivers compile a module whole, which takes
// seconds for those of all operations. Of each module there is a variant for few
// ranks, whose kernels are smaller and start sooner. The kernels' arguments are
// the structures of abi.h.
package kernels

import (
	"archive/tar"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/klauspost/compress/zstd"
)

//go:generate go run ./gen

// Files are the directories ptx and, in a CUDA image's harness, ptx/own.
//
//go:embed ptx
var Files embed.FS

// archs are the compute capabilities that there is PTX for, newest first.
var archs = []int{90, 80}

// Movement is the module of the kernels that only move bytes.
const Movement = "movement"

// PTX reads a module, from one of the directories of Files, for processors of
// compute capability cc, ten times the major plus the minor number: for the newest
// that such a processor can run. It is an error if cc is below 80, or there is no
// such module.
func PTX(dir fs.FS, module string, cc int) ([]byte, error) {
	for _, arch := range archs {
		if arch <= cc {
			return read(dir, fmt.Sprintf("sm_%d.tar.zst", arch), module+".ptx")
		}
	}
	return nil, fmt.Errorf("kernels: compute capability %d.%d is too old: they need %d.%d",
		cc/10, cc%10, archs[len(archs)-1]/10, archs[len(archs)-1]%10)
}

// Compilers are the versions of nvcc that the PTX in the directories of Files is by,
// the image's own first.
func Compilers() []string { return compilers(Files) }

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

// read goes through an archive to a file in it.
func read(dir fs.FS, archive, name string) (text []byte, err error) {
	f, err := dir.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	defer f.Close()
	// One at a time: eight processes of a node do this at once.
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", archive, err)
	}
	defer z.Close()
	for files := tar.NewReader(z); ; {
		switch h, err := files.Next(); {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("kernels: %s has no %s", archive, name)
		case err != nil:
			return nil, fmt.Errorf("kernels: %s: %w", archive, err)
		case h.Name == name:
			if text, err = io.ReadAll(files); err != nil {
				return nil, fmt.Errorf("kernels: %s: %s: %w", archive, name, err)
			}
			return text, nil
		}
	}
}
