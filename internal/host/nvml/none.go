//go:build !nvml || !cgo

package nvml

import "github.com/assay-hpc/assay/internal/host/sysfs"

// A Library is NVML. This build has no binding: its methods fail with ErrNoBinding.
type Library struct{}

// New returns a library without a binding.
func New() *Library { return &Library{} }

// Open fails with ErrNoBinding.
func Open() (*Library, error) { return nil, ErrNoBinding }

// Close does nothing.
func (*Library) Close() error { return nil }

// Driver fails with ErrNoBinding.
func (*Library) Driver() (Driver, error) { return Driver{}, ErrNoBinding }

// GPU fails with ErrNoBinding.
func (*Library) GPU(int, func(string)) (GPU, error) { return GPU{}, ErrNoBinding }

// Counters fails with ErrNoBinding.
func (*Library) Counters(int) (map[string]uint64, error) { return nil, ErrNoBinding }

// Places fails with ErrNoBinding.
func (*Library) Places() ([]Place, error) { return nil, ErrNoBinding }

// Links fails with ErrNoBinding.
func (*Library) Links() (map[sysfs.BusID]Links, error) { return nil, ErrNoBinding }

// Read fails with ErrNoBinding.
func (*Library) Read(sysfs.BusID) (Reading, error) { return Reading{}, ErrNoBinding }
