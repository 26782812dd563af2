//go:build !cuda || !cgo

package main

import (
	"context"
	"io"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/perf"
)

// gpuFactory is nil in a build without CUDA.
var gpuFactory *executor.Factory

// gpus returns the reason why there are no GPUs.
func gpus() ([]perf.Device, error) { return nil, driver.Init() }

// aboutKernels returns an empty string: there are no kernels.
func aboutKernels() string { return "" }

// gpuWorld fails as gpus does.
func (j *job) gpuWorld(context.Context, perf.Config, []perf.Device) (*world, error) {
	return nil, driver.Init()
}

// tuneGPUs fails as gpus does.
func (j *job) tuneGPUs(context.Context, gpuTuning, []perf.Device, func(choose.Place, []choose.Row) error, io.Writer) error {
	return driver.Init()
}
