//go:build !nvml || !cgo

package diag

import "errors"

// OpenSensors fails: this build has no NVML.
func OpenSensors() (Sensors, error) {
	return nil, errors.New("this build has no binding for NVML (cgo and the build tag nvml)")
}
