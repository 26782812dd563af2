//go:build cuda && cgo

package membw

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// The PTX in ptx is by CUDA 11.8, so that every driver that is supported takes
// it. A CUDA image's harness has, in ptx/own, also what the image's own nvcc made
// of the same source.
//
//go:embed ptx
var files embed.FS

// archs are the compute capabilities that there is PTX for, newest first.
var archs = []int{90, 80}

// ptx gives the texts of the kernels for a compute capability, ten times the
// major plus the minor number. The first that the driver takes is the one to use.
func ptx(files fs.FS, cc int) (texts [][]byte, err error) {
	for _, arch := range archs {
		if arch > cc {
			continue
		}
		name := fmt.Sprintf("kernels.sm_%d.ptx", arch)
		if text, err := fs.ReadFile(files, "ptx/own/"+name); err == nil {
			texts = append(texts, text)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		text, err := fs.ReadFile(files, "ptx/"+name)
		return append(texts, text), err
	}
	return nil, fmt.Errorf("compute capability %d.%d is too old: the kernels need 8.0", cc/10, cc%10)
}
