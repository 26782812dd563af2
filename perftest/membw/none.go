//go:build !cuda || !cgo

package membw

import (
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// Open fails with driver.ErrNoDriver: this build has no CUDA.
func Open(sysfs.FS, bool) (Machine, error) { return nil, driver.Init() }
