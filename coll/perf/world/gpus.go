package world

import (
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// onGPUs decides whether ranks run on GPUs: they do, unless the flags ask for the
// processor or there are no GPUs. missing is the reason why there are none, or nil.
func onGPUs(cfg perf.Config, missing error) (bool, error) {
	needed := ""
	switch {
	case len(cfg.Libraries) > 0:
		needed = "--library"
	case cfg.Engine == "nccl":
		needed = "--engine nccl"
	case cfg.Versus == "nccl", cfg.Versus == perf.Best:
		needed = "--versus " + cfg.Versus
	}
	if cfg.Device == "cpu" {
		if needed != "" {
			return false, exit.Usagef("%s needs GPUs: leave out --device cpu", needed)
		}
		return false, nil
	}
	if cfg.Device == "gpu" && needed == "" {
		needed = "--device gpu"
	}
	if missing != nil && needed != "" {
		return false, fmt.Errorf("%s: %w", needed, missing)
	}
	return missing == nil, nil
}

// skipped says that GPUs are missing in a build with GPU support. Other builds say nothing: users
// do not expect them to use GPUs.
func skipped(missing error) string {
	if missing == nil || !driver.Built {
		return ""
	}
	return fmt.Sprintf("skipped: %v", missing)
}

// AboutGPUs describes the GPUs, or says why there are none. Like AboutKernels, it returns an empty
// string in a build without GPU support.
func AboutGPUs() string {
	all, missing := GPUs()
	if missing != nil {
		return skipped(missing)
	}
	return describeGPUs(all)
}

// ownGPUs returns the numbers of the GPUs of this process's ranks, out of n that the
// process sees. Depending on the launcher, it sees all GPUs of the host or only its own.
func (j *job) ownGPUs(n int) ([]int, error) {
	local := j.where.LocalRank
	if j.where.LocalSize == 0 && n > j.perProcess { // the launcher does not say
		local = j.where.Rank % (n / j.perProcess)
	}
	first := local * j.perProcess
	if n == j.perProcess {
		first = 0
	}
	if first+j.perProcess > n {
		return nil, fmt.Errorf("%d GPUs are too few for %d ranks in this process, number %d of the host: use fewer ranks (-t, -g), or --device cpu", n, j.perProcess, local)
	}
	own := make([]int, j.perProcess)
	for i := range own {
		own[i] = first + i
	}
	return own, nil
}

// describeGPUs counts them by name: "4 x NVIDIA H200".
func describeGPUs(gpus []perf.Device) string {
	count := map[string]int{}
	var names []string
	for _, g := range gpus {
		if count[g.Name]++; count[g.Name] == 1 {
			names = append(names, g.Name)
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%d x %s", count[name], name)
	}
	return strings.Join(names, ", ")
}
