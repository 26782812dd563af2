// Package nvml implements topology.NVML on NVIDIA's management library, which
// is looked up when Open is called: a program that imports the package starts
// on machines without a driver. The binding is go-nvml's, which needs cgo, so
// that the package has code only in builds with cgo and the tag nvml; without
// them Open says so.
package nvml

import "errors"

// ErrUnavailable is why there is no library: the build has no binding, or the
// machine has no driver.
var ErrUnavailable = errors.New("NVML is not available")
