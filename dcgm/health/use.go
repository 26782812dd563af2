package health

import (
	"fmt"
	"strings"
)

// useChecks are about how a GPU is set up, and who has it.
var useChecks = []check{
	{
		id: "gpu/recovery", title: "The driver asks for no recovery", want: "None", gpu: checkRecovery,
		remedy: "drain the node and do what the driver asks for",
	},
	{
		id: "gpu/persistence", title: "The driver stays loaded without a job", want: "on", gpu: checkPersistence,
		remedy: "systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1",
	},
	{
		id: "gpu/mig", title: "The GPU is not divided", want: "off, and no change pending", gpu: checkMIG,
		remedy: "nvidia-smi -mig 0, then reset the GPU, unless it is meant to be divided",
	},
	{
		id: "gpu/compute-mode", title: "Any number of processes may use the GPU", want: "Default", gpu: checkCompute,
		remedy: "nvidia-smi -c 0, unless the mode is meant",
	},
	{
		id: "gpu/processes", title: "Nothing is left on the GPU", want: "at most %s", gpu: checkProcesses,
		remedy: "end the processes that a job left behind, or wait for the job",
	},
}

func checkRecovery(_ *env, g *gpuState) outcome {
	switch {
	case g.Recovery.Err != nil:
		return without(g.Recovery.Err)
	case g.Recovery.Value != "None":
		return bad(g.Recovery.Value, "the driver asks for: %s", g.Recovery.Value)
	}
	return good("None")
}

func checkPersistence(_ *env, g *gpuState) outcome {
	switch {
	case g.Persistence.Err != nil:
		return without(g.Persistence.Err)
	case !g.Persistence.Value:
		return bad("off", "without a job the driver lets go of the GPU, and starts it anew for the next one")
	}
	return good("on")
}

func checkMIG(_ *env, g *gpuState) outcome {
	m := g.MIG.Value
	switch {
	case g.MIG.Err != nil:
		return without(g.MIG.Err)
	case m.Now:
		return bad("on", "the GPU is divided into instances (MIG)")
	case m.Pending:
		return bad("off", "MIG is on after the next reset")
	}
	return good("off")
}

func checkCompute(_ *env, g *gpuState) outcome {
	switch {
	case g.Compute.Err != nil:
		return without(g.Compute.Err)
	case g.Compute.Value != "Default":
		return bad(g.Compute.Value, "the compute mode is %s", g.Compute.Value)
	}
	return good("Default")
}

func checkProcesses(e *env, g *gpuState) outcome {
	if g.Processes.Err != nil {
		return without(g.Processes.Err)
	}
	var who []string
	for _, pid := range g.Processes.Value {
		who = append(who, e.processName(pid))
	}
	return e.atMost(float64(len(who)), "in use by "+list(who))
}

// processName is a process's number and, where it can be seen, its name.
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
