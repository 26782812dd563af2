package diag

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/result"
)

// disturbing are variables that slow programs down or make them stop; the list is DCGM's.
var disturbing = []string{
	"NSIGHT_CUDA_DEBUGGER", "CUDA_INJECTION32_PATH", "CUDA_INJECTION64_PATH", "CUDA_AUTO_BOOST", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
	"CUDA_COREDUMP_FILE", "CUDA_DEVICE_WAITS_ON_EXCEPTION", "CUDA_PROFILE", "COMPUTE_PROFILE", "OPENCL_PROFILE",
}

// software is DCGM's deployment test, except the checks that belong to passive health. At this
// point libcuda is known to work, because the GPUs were listed.
func software(_ context.Context, j *job) error {
	if j.noSensor != nil {
		j.findf(noGPU, result.Warn, "install libnvidia-ml.so.1 of the driver's version; a container needs the driver capability utility", "clocks, power and temperature cannot be read: %v", j.noSensor)
	}
	j.persistence()
	j.nouveau()
	j.deviceFiles()
	for _, v := range j.env.Environ {
		if name, _, _ := strings.Cut(v, "="); slices.Contains(disturbing, name) {
			j.findf(noGPU, result.Warn, "unset "+name, "the variable %s is set, which slows CUDA programs down or stops them", name)
		}
	}
	if err := writable("."); err != nil {
		j.findf(noGPU, result.Warn, "run it in a directory that can be written to", "%v", err)
	}
	return nil
}

// persistence checks that persistence mode is on; otherwise each first use of an idle GPU takes
// seconds.
func (j *job) persistence() {
	for _, g := range j.gpus {
		if j.sensors == nil {
			return
		}
		r, err := j.sensors.Read(g.Bus)
		switch {
		case err != nil:
			j.findf(g.Index, result.Error, "", "its sensors cannot be read: %v", err)
		case r.Persistence != nil && !*r.Persistence:
			j.findf(g.Index, result.Warn, "start nvidia-persistenced", "persistence mode is off")
		}
	}
}

// nouveau checks for the driver nouveau, which takes GPUs away from NVIDIA's driver.
func (j *job) nouveau() {
	bound, _ := filepath.Glob(filepath.Join(j.env.Root, "sys/bus/pci/drivers/nouveau/*:*:*.*"))
	for _, b := range bound {
		j.findf(noGPU, result.Fail, "blacklist nouveau and restart the machine", "the driver nouveau holds %s", filepath.Base(b))
	}
}

// deviceFiles checks that the device files exist and are accessible, as many as there are GPUs. A
// container has those of the GPUs that it was given.
func (j *job) deviceFiles() {
	const remedy = "run nvidia-modprobe -u -c 0, and give the container the GPU's devices"
	dev := filepath.Join(j.env.Root, "dev")
	for _, name := range []string{"nvidiactl", "nvidia-uvm"} {
		if err := usable(filepath.Join(dev, name)); err != nil {
			j.findf(noGPU, result.Warn, remedy, "%v", err)
		}
	}
	entries, err := os.ReadDir(dev)
	if err != nil {
		j.findf(noGPU, result.Error, "", "%v", err)
		return
	}
	n := 0
	for _, e := range entries {
		if _, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "nvidia")); err != nil || !strings.HasPrefix(e.Name(), "nvidia") {
			continue
		}
		if err := usable(filepath.Join(dev, e.Name())); err != nil {
			j.findf(noGPU, result.Warn, remedy, "%v", err)
			continue
		}
		n++
	}
	if all := len(j.machine.GPUs()); n < all {
		j.findf(noGPU, result.Warn, remedy, "CUDA has %d GPUs, and only %d of the files /dev/nvidiaN can be used", all, n)
	}
}

// usable returns an error if a file cannot be read and written.
func usable(name string) error {
	if err := unix.Access(name, unix.R_OK|unix.W_OK); err != nil {
		return &fs.PathError{Op: "using", Path: name, Err: err}
	}
	return nil
}

// writable returns an error if no file can be created in the directory.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".harness-diag-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// contexts is the test context_create. Preparing a device creates its context.
func contexts(_ context.Context, j *job) error {
	j.each(func(GPU, Device) error { return nil })
	return nil
}
