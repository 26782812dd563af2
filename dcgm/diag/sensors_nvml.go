//go:build nvml && cgo

package diag

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// library is NVML, opened.
type library struct{ api nvml.Interface }

// OpenSensors opens NVML.
func OpenSensors() (Sensors, error) {
	api := nvml.New()
	if ret := api.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("NVML: %v", ret)
	}
	return library{api}, nil
}

// Close implements Sensors.
func (l library) Close() error {
	if ret := l.api.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("NVML: shutting down: %v", ret)
	}
	return nil
}

// Read implements Sensors.
func (l library) Read(bus string) (r Reading, err error) {
	d, ret := l.api.DeviceGetHandleByPciBusId(bus)
	if ret != nvml.SUCCESS {
		return r, fmt.Errorf("NVML: GPU %s: %v", bus, ret)
	}
	if v, ret := d.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
		r.Celsius = int(v)
	} else if ret == nvml.ERROR_GPU_IS_LOST {
		return r, fmt.Errorf("NVML: GPU %s: %v", bus, ret)
	}
	if v, ret := d.GetPowerUsage(); ret == nvml.SUCCESS {
		r.Watts = float64(v) / 1e3
	}
	if v, ret := d.GetEnforcedPowerLimit(); ret == nvml.SUCCESS {
		r.LimitWatts = float64(v) / 1e3
	}
	if v, ret := d.GetClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		r.MHz = int(v)
	}
	if v, ret := d.GetMaxClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		r.MaxMHz = int(v)
	}
	if v, ret := d.GetCurrentClocksThrottleReasons(); ret == nvml.SUCCESS {
		r.Reasons = v
	}
	if v, ret := d.GetPersistenceMode(); ret == nvml.SUCCESS {
		on := v == nvml.FEATURE_ENABLED
		r.Persistence = &on
	}
	return r, nil
}
