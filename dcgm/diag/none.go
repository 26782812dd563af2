//go:build !cuda || !cgo

package diag

import (
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// Open fails with driver.ErrNoDriver: this build has no CUDA.
func Open(sysfs.FS) (Machine, error) { return nil, driver.Init() }
