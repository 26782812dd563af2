//go:build !cuda || !cgo

package main

import "github.com/assay-hpc/assay/perftest/probe"

// gpuMemory is nil: there is no code for GPUs.
var gpuMemory func(c *probe.Config, n int) (*probe.Memory, error)
