//go:build cuda && cgo

package membw

import (
	"embed"
	"fmt"
	"io/fs"
)

// The PTX in ptx is built with CUDA 11.8, so that every supported driver accepts it. The harness of
// a CUDA image has its own next to it ([driver.LoadNewest]).
//
//go:embed ptx
var files embed.FS

// archs are the compute capabilities with PTX, newest first.
var archs = []int{90, 80}

// ptx reads the kernels for a compute capability, given as ten times the major plus the minor
// number.
func ptx(dir fs.FS, cc int) ([]byte, error) {
	for _, arch := range archs {
		if arch <= cc {
			return fs.ReadFile(dir, fmt.Sprintf("kernels.sm_%d.ptx", arch))
		}
	}
	return nil, fmt.Errorf("compute capability %d.%d is too old: the kernels need 8.0", cc/10, cc%10)
}
