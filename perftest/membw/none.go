//go:build !cuda || !cgo

package membw

import (
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// Open fails with driver.ErrNoDriver: this build has no CUDA.
func Open(sysfs.FS, bool) (Machine, error) { return nil, driver.Init() }
