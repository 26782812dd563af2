//go:build !cuda || !cgo

package gpumem

import "github.com/assay-hpc/assay/perftest/probe"

// Allocate is nil: this build has no GPU support.
var Allocate func(c *probe.Config, n int) (*probe.Memory, error)
