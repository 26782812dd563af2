//go:build cuda && cgo

package gpumem

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gputest"
	"github.com/assay-hpc/assay/perftest/probe"
)

// TestGPUsProbeMemory: memory for a probe is a GPU's, with a DMA buffer if that
// is asked for.
func TestGPUsProbeMemory(t *testing.T) {
	var all []driver.DeviceInfo
	err := driver.Init()
	if err == nil {
		all, err = driver.Devices()
	}
	n := len(all)
	gputest.Need(t, 1, n, err, driver.ErrNoDriver, driver.ErrNoDevice)
	for i, d := range all {
		for _, dmabuf := range []bool{false, true} {
			for _, byBus := range []bool{false, true} {
				c := probe.Default(probe.Write, probe.Bandwidth)
				c.GPU, c.DMABuf = i, dmabuf
				if byBus {
					c.GPU, c.GPUBusID = -1, strings.ToUpper(d.PCI.String())
				}
				m, err := Allocate(&c, 100_000)
				if dmabuf && !d.CanDMABuf {
					var none *probe.NotAvailable
					if !errors.As(err, &none) {
						t.Errorf("GPU %d cannot export DMA buffers: %v", i, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				info, err := driver.PointerInfo(driver.Ptr(m.Address + 99_999))
				if err != nil || info.Ordinal != i || m.Address%gpuPage != 0 {
					t.Errorf("GPU %d: %+v is memory of %+v (%v)", i, m, info, err)
				}
				link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", m.DMABuf))
				if strings.Contains(link, "dmabuf") != dmabuf {
					t.Errorf("GPU %d, DMA buffer %v: descriptor %d is %q", i, dmabuf, m.DMABuf, link)
				}
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for _, c := range []probe.Config{{GPU: n}, {GPU: -1, GPUBusID: "ffff:00:00.0"}, {GPU: -1, GPUBusID: "first"}} {
		var flag *probe.FlagError
		if _, err := Allocate(&c, 1); !errors.As(err, &flag) {
			t.Errorf("GPU %d %s: %v", c.GPU, c.GPUBusID, err)
		}
	}
}

// TestGPUsProbeMemoryNone: without a driver the machine cannot.
func TestGPUsProbeMemoryNone(t *testing.T) {
	if driver.Init() == nil {
		t.Skip("there is a driver")
	}
	var none *probe.NotAvailable
	if _, err := Allocate(&probe.Config{}, 1); !errors.As(err, &none) {
		t.Error(err)
	}
}
