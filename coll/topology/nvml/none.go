//go:build !nvml || !cgo

package nvml

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/topology"
)

// A Library is NVML, opened. In this build there is none.
type Library struct{}

// Open fails with ErrUnavailable.
func Open() (*Library, error) {
	return nil, fmt.Errorf("%w: this build has no binding for it (cgo and the build tag nvml)", ErrUnavailable)
}

// GPUs fails with ErrUnavailable.
func (*Library) GPUs() ([]topology.NVMLGPU, error) { return nil, ErrUnavailable }

// Close does nothing.
func (*Library) Close() error { return nil }

// LinkStates fails with ErrUnavailable.
func (*Library) LinkStates() ([]LinkState, error) { return nil, ErrUnavailable }

// DriverVersion is empty.
func (*Library) DriverVersion() string { return "" }
