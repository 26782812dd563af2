//go:build cuda && cgo

package gpumem

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gpu/rig"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/perftest/probe"
)

// Allocate allocates memory of a GPU for a test.
var Allocate = func(c *probe.Config, n int) (*probe.Memory, error) {
	all, err := rig.Find(sysfs.FS{})
	if errors.Is(err, driver.ErrNoDriver) || errors.Is(err, driver.ErrNoDevice) {
		return nil, &probe.NotAvailable{What: fmt.Sprintf("--use_cuda: %v", err)}
	} else if err != nil {
		return nil, err
	}
	g, err := findGPU(c, all)
	if err != nil {
		return nil, err
	}
	if c.DMABuf && !g.Info.CanDMABuf {
		return nil, &probe.NotAvailable{What: fmt.Sprintf("--use_cuda_dmabuf: GPU %d (%s) cannot export DMA buffers: it takes the open kernel modules, and Linux 5.12 or later", g.Info.Ordinal, g.Info.Name)}
	}
	m, err := allocateOn(g, n, c.DMABuf)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return m, nil
}

// findGPU finds the GPU that the options name.
func findGPU(c *probe.Config, all []*rig.GPU) (*rig.GPU, error) {
	if c.GPUBusID == "" {
		if c.GPU < len(all) {
			return all[c.GPU], nil
		}
		return nil, &probe.FlagError{Flag: "--use_cuda", Text: fmt.Sprintf("there is no GPU %d; this process sees %d", c.GPU, len(all))}
	}
	id, err := sysfs.ParseBusID(c.GPUBusID)
	if err != nil {
		return nil, &probe.FlagError{Flag: "--use_cuda_bus_id", Text: err.Error()}
	}
	var seen []string
	for _, g := range all {
		if g.Bus == id {
			return g, nil
		}
		seen = append(seen, g.Bus.String())
	}
	return nil, &probe.FlagError{Flag: "--use_cuda_bus_id", Text: fmt.Sprintf("there is no GPU at %s; this process sees %s", c.GPUBusID, strings.Join(seen, ", "))}
}

// gpuPage is the page size of GPU mappings, and so the granularity of exports.
const gpuPage = 64 << 10

// allocateOn allocates n bytes, rounded up to whole pages. Closing the GPU frees them.
func allocateOn(g *rig.GPU, n int, dmabuf bool) (*probe.Memory, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := g.Open(); err != nil {
		return nil, err
	}
	n = (n + gpuPage - 1) &^ (gpuPage - 1)
	p, err := g.Malloc(n + gpuPage)
	if err != nil {
		return nil, err
	}
	start := (p + gpuPage - 1) &^ (gpuPage - 1)
	m := &probe.Memory{Address: uint64(start), DMABuf: -1, Close: g.Close}
	if err := driver.Memset8(start, 0, n); err != nil {
		return nil, err
	}
	if dmabuf {
		if m.DMABuf, err = driver.DMABuf(start, n); err != nil {
			return nil, err
		}
		g.Defer(func() error { return syscall.Close(m.DMABuf) })
	}
	return m, nil
}
