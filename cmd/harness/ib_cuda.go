//go:build cuda && cgo

package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"

	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/harness/sysfs"
	"github.com/assay-hpc/assay/perftest/probe"
)

// gpuMemory allocates memory of a GPU for a test.
var gpuMemory probe.Allocator = func(c *probe.Config, n int) (*probe.Memory, error) {
	if err := driver.Init(); err != nil {
		return nil, &probe.NotAvailable{What: fmt.Sprintf("--use_cuda: %v", err)}
	}
	all, err := driver.Devices()
	if err != nil {
		return nil, err
	}
	info, err := findGPU(c, all)
	if err != nil {
		return nil, err
	}
	if c.DMABuf && !info.CanDMABuf {
		return nil, &probe.NotAvailable{What: fmt.Sprintf("--use_cuda_dmabuf: GPU %d (%s) cannot export DMA buffers: it takes the open kernel modules, and Linux 5.12 or later", info.Ordinal, info.Name)}
	}
	ctx, err := driver.Open(info.Ordinal)
	if err != nil {
		return nil, err
	}
	m, err := allocateOn(ctx, n, c.DMABuf)
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	return m, nil
}

// findGPU finds the GPU that the options name.
func findGPU(c *probe.Config, all []driver.DeviceInfo) (driver.DeviceInfo, error) {
	if c.GPUBusID == "" {
		if c.GPU < len(all) {
			return all[c.GPU], nil
		}
		return driver.DeviceInfo{}, &probe.FlagError{Flag: "--use_cuda", Text: fmt.Sprintf("there is no GPU %d; this process sees %d", c.GPU, len(all))}
	}
	id, err := sysfs.ParseBusID(c.GPUBusID)
	if err != nil {
		return driver.DeviceInfo{}, &probe.FlagError{Flag: "--use_cuda_bus_id", Text: err.Error()}
	}
	var seen []string
	for _, d := range all {
		if id.String() == d.PCI.String() {
			return d, nil
		}
		seen = append(seen, d.PCI.String())
	}
	return driver.DeviceInfo{}, &probe.FlagError{Flag: "--use_cuda_bus_id", Text: fmt.Sprintf("there is no GPU at %s; this process sees %s", c.GPUBusID, strings.Join(seen, ", "))}
}

// gpuPage is what GPUs map, and so what can be exported.
const gpuPage = 64 << 10

// allocateOn allocates n bytes, of whole pages.
func allocateOn(ctx *driver.Context, n int, dmabuf bool) (*probe.Memory, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := ctx.Bind(); err != nil {
		return nil, err
	}
	n = (n + gpuPage - 1) &^ (gpuPage - 1)
	p, err := driver.Malloc(n + gpuPage)
	if err != nil {
		return nil, err
	}
	free := func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return errors.Join(ctx.Bind(), driver.Free(p), ctx.Close())
	}
	start := (p + gpuPage - 1) &^ (gpuPage - 1)
	m := &probe.Memory{Address: uint64(start), DMABuf: -1, Close: free}
	if err := driver.Memset8(start, 0, n); err != nil {
		return nil, errors.Join(err, driver.Free(p))
	}
	if dmabuf {
		if m.DMABuf, err = driver.DMABuf(start, n); err != nil {
			return nil, errors.Join(err, driver.Free(p))
		}
		m.Close = func() error { return errors.Join(syscall.Close(m.DMABuf), free()) }
	}
	return m, nil
}
