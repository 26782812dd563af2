//go:build !cuda || !cgo

package driver

import "fmt"

// Built reports whether this build can use GPUs.
const Built = false

// Init fails with ErrNoDriver: this build has no CUDA.
func Init() error {
	return fmt.Errorf("%w: this build has no CUDA (cgo and the build tag cuda)", ErrNoDriver)
}
