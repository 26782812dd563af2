//go:build !cuda || !cgo

package main

import "github.com/assay-hpc/assay/perftest/probe"

// gpuMemory is nil: this build has no GPU support.
var gpuMemory func(c *probe.Config, n int) (*probe.Memory, error)
