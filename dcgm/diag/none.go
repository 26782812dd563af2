//go:build !cuda || !cgo

package diag

import (
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// Open fails with driver.ErrNoDriver: this build has no CUDA.
func Open(sysfs.FS) (Machine, error) { return nil, driver.Init() }
