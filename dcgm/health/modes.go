package health

import (
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// useChecks check how a GPU is set up, and which processes use it.
var useChecks = []check{
	{
		id: "gpu/recovery", title: "the driver asks for no recovery", want: "None", gpu: mustBe(func(g *gpuState) sysfs.Fact[string] { return g.Recovery }, "None", "the driver asks for: %s"),
		remedy: "drain the node and do what the driver asks for",
	},
	{
		id: "gpu/persistence", title: "the driver stays loaded without a job", want: "on",
		remedy: "systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1",
		gpu: flag(func(g *gpuState) sysfs.Fact[bool] { return fact(!g.Persistence.Value, g.Persistence.Err) }, "on",
			"without a job the driver lets go of the GPU, and starts it anew for the next one"),
	},
	{
		id: "gpu/mig", title: "the GPU is not divided", want: "off, and no change pending",
		gpu:    of(func(g *gpuState) sysfs.Fact[nvml.Modes] { return g.MIG }, checkMIG),
		remedy: "nvidia-smi -mig 0, then reset the GPU, unless it is meant to be divided",
	},
	{
		id: "gpu/compute-mode", title: "any number of processes may use the GPU", want: "Default", gpu: mustBe(func(g *gpuState) sysfs.Fact[string] { return g.Compute }, "Default", "the compute mode is %s"),
		remedy: "nvidia-smi -c 0, unless the mode is meant",
	},
	{
		id: "gpu/processes", title: "nothing is left on the GPU", want: "at most %s",
		gpu:    of(func(g *gpuState) sysfs.Fact[[]int] { return g.Processes }, checkProcesses),
		remedy: "end the processes that a job left behind, or wait for the job",
	},
}

// mustBe makes a check of a text; format is the reason if it has another value.
func mustBe(get func(*gpuState) sysfs.Fact[string], want, format string) func(*env, *gpuState) outcome {
	return of(get, func(_ *env, _ *gpuState, is string) outcome {
		if is != want {
			return bad(format, is)
		}
		return good(want)
	})
}

func checkMIG(_ *env, _ *gpuState, m nvml.Modes) outcome {
	switch {
	case m.Now:
		return bad("the GPU is divided into instances (MIG)")
	case m.Pending:
		return bad("MIG is on after the next reset")
	}
	return good("off")
}

func checkProcesses(e *env, _ *gpuState, pids []int) outcome {
	var who []string
	for _, pid := range pids {
		who = append(who, e.processName(pid))
	}
	return e.atMost(float64(len(who)), "in use by "+joinWords(who))
}

// processName is a process's PID and, if visible, its name.
func (e *env) processName(pid int) string {
	for _, p := range e.Node.System.Value.Processes.Value {
		if p.PID == pid {
			if p.State == 'Z' || p.State == 'D' {
				return fmt.Sprintf("%d (%s, state %c)", pid, strings.TrimSpace(p.Name), p.State)
			}
			return fmt.Sprintf("%d (%s)", pid, p.Name)
		}
	}
	return fmt.Sprint(pid)
}
