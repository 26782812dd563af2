//go:build !nvml || !cgo

package nvml

import "github.com/assay-hpc/assay/dcgm/health"

// New returns a source that has nothing: this build has no binding.
func New() health.Source { return none{} }

type none struct{}

func (none) Driver() (health.Driver, error) { return health.Driver{}, health.ErrNoBinding }

func (none) GPU(int, func(string)) (health.GPU, error) { return health.GPU{}, health.ErrNoBinding }

func (none) Counters(int) (map[string]uint64, error) { return nil, health.ErrNoBinding }
