// Package kernels has the kernels of the collective engine on NVIDIA GPUs, as CUDA C++ sources
// and as compiled code, which is embedded. The compiled code is machine code for compute
// capability 7.0, 8.0, 9.0 and the later ones that the compiler knows, and PTX for newer GPUs.
//
// The code in ptx is compiled by CUDA 11.8, so that every supported driver accepts it. The
// harness of a CUDA image also has, in ptx/own, the code that the image's own nvcc compiled
// from the same sources; that is used first. A driver older than that nvcc refuses its PTX: a
// newer CUDA of the same major version runs on such a driver, but its PTX does not. All
// modules for one architecture and number of ranks are in one archive, a tar compressed with
// zstd: they are much alike, and compressed together take a fraction of their separate sizes.
//
// A module holds the kernels that only move bytes, those that reduce one element type by one
// operation, or those that normalize rows of a type: compilers compile a whole module at a time, and would take seconds for one
// with all operations. Each module has a variant for few ranks with smaller kernels that start
// sooner. The kernels' arguments are the structures of abi.h.
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

// Code reads all modules from one of the directories of Files and returns them by name. They
// are for communicators of the given number of ranks, and for GPUs of compute capability cc,
// ten times the major plus the minor number. If there is no machine code for these GPUs,
// compiled is false and the code is PTX, which the driver has to compile; that takes a minute
// or so the first time. If there is no PTX either, the error is a *TooOld.
func Code(dir fs.FS, cc, ranks int) (code map[string][]byte, compiled bool, err error) {
	variant := ".tar.zst"
	if ranks <= FewRanks {
		variant = fmt.Sprintf(".r%d.tar.zst", FewRanks)
	}
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, false, fmt.Errorf("kernels: %w", err)
	}
	if len(entries) == 0 {
		return nil, false, fmt.Errorf("kernels: %w", fs.ErrNotExist)
	}
	machine, ptx, least := 0, 0, 0
	for _, e := range entries {
		var arch int
		if _, err := fmt.Sscanf(e.Name(), "sm_%d", &arch); err == nil && e.Name() == fmt.Sprintf("sm_%d%s", arch, variant) {
			if arch/10 == cc/10 && arch <= cc {
				machine = max(machine, arch)
			}
			if least == 0 || arch < least {
				least = arch
			}
		}
		if _, err := fmt.Sscanf(e.Name(), "compute_%d", &arch); err == nil && e.Name() == fmt.Sprintf("compute_%d%s", arch, variant) && arch <= cc {
			ptx = max(ptx, arch)
		}
	}
	switch {
	case machine > 0:
		code, err = read(dir, fmt.Sprintf("sm_%d%s", machine, variant), ".cubin")
		return code, true, err
	case ptx > 0:
		code, err = read(dir, fmt.Sprintf("compute_%d%s", ptx, variant), ".ptx")
		return code, false, err
	}
	return nil, false, &TooOld{cc, least}
}

// TooOld is the error for a GPU for which there are no kernels. It is an
// fs.ErrNotExist: another directory may have some.
type TooOld struct{ CC, Least int } // ten times the major number of a compute capability, plus the minor one

func (e *TooOld) Error() string {
	return fmt.Sprintf("kernels: compute capability %d.%d is too old: they need %d.%d", e.CC/10, e.CC%10, e.Least/10, e.Least%10)
}

func (e *TooOld) Unwrap() error { return fs.ErrNotExist }

// Compilers returns the versions of nvcc that compiled the code in the directories of Files,
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

// read reads an archive of all modules.
func read(dir fs.FS, archive, suffix string) (map[string][]byte, error) {
	f, err := dir.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	defer f.Close()
	// Without concurrency: eight processes of a node do this at the same time.
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", archive, err)
	}
	defer z.Close()
	code := map[string][]byte{}
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("kernels: %s: %w", archive, err)
		}
		if code[strings.TrimSuffix(h.Name, suffix)], err = io.ReadAll(files); err != nil {
			return nil, fmt.Errorf("kernels: %s: %s: %w", archive, h.Name, err)
		}
	}
	for _, m := range Modules() {
		if len(code[m.Name]) == 0 {
			return nil, fmt.Errorf("kernels: %s has no %s%s", archive, m.Name, suffix)
		}
	}
	return code, nil
}
