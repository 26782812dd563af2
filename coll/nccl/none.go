//go:build !cuda || !cgo

package nccl

import "fmt"

// A Library is libnccl.so.2, loaded. In this build there is none.
type Library struct{}

// Open fails with ErrUnavailable.
func Open() (*Library, error) {
	return nil, fmt.Errorf("%w: this build has no binding for it (cgo and the build tag cuda)", ErrUnavailable)
}
