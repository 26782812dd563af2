//go:build !cuda || !cgo

package world

import (
	"context"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// gpuFactory is nil in a build without CUDA.
var gpuFactory *executor.Factory

// GPUs returns the reason why there are no GPUs.
func GPUs() ([]perf.Device, error) { return nil, driver.Init() }

// AboutKernels returns an empty string: there are no kernels.
func AboutKernels() string { return "" }

// gpuWorld fails as GPUs does.
func (j *job) gpuWorld(context.Context, perf.Config, []perf.Device) (*World, error) {
	return nil, driver.Init()
}

// tuneGPUs fails as GPUs does.
func (j *job) tuneGPUs(context.Context, *Tuning, []perf.Device, func(choose.Place, []choose.Row) error) error {
	return driver.Init()
}
