package bootstrap

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/hostlist"
)

// What srun sets in each task of a step (srun(1), "OUTPUT ENVIRONMENT VARIABLES"). A
// batch script is in a job but not in a step: it is rank 0 of 1. --mpi=pmi2 also sets
// PMI_FD, --mpi=pmix PMIX_RANK.
const (
	slurmRank  = "SLURM_PROCID"
	slurmSize  = "SLURM_STEP_NUM_TASKS"
	slurmStep  = "SLURM_STEP_ID"
	slurmJob   = "SLURM_JOB_ID"
	slurmLocal = "SLURM_LOCALID"
	slurmNode  = "SLURM_NODEID"
	slurmTasks = "SLURM_STEP_TASKS_PER_NODE"
	slurmHosts = "SLURM_STEP_NODELIST"
)

func detectSlurm(e *environment, w *World) bool {
	if !e.has(slurmStep) || !e.has(slurmRank) {
		return false
	}
	size := slurmSize
	if !e.has(size) {
		size = "SLURM_NTASKS"
	}
	w.Rank, w.Size = e.place(slurmRank, size)
	w.LocalRank = e.number(slurmLocal, slurmRank)
	if s := e.getenv(slurmTasks); s != "" {
		w.LocalSize = e.tasksHere(s, e.optional(slurmNode, 0))
		e.fits(slurmLocal, w.LocalRank, slurmTasks, w.LocalSize)
	}
	e.same(slurmRank, w.Rank, "PMIX_RANK")
	e.same(slurmRank, w.Rank, "PMI_RANK")
	e.same(size, w.Size, "PMI_SIZE")
	w.job = fmt.Sprintf("slurm %s.%s", e.getenv(slurmJob), e.getenv(slurmStep))
	if e.has("PMI_FD") {
		w.pmi = &pmiSpec{fd: e.number("PMI_FD", slurmRank), version: 2}
	}
	hosts, err := hostlist.Expand(e.getenv(slurmHosts), false)
	if err != nil {
		e.fail("%s: %w", slurmHosts, err)
	}
	// Rank 0 is on the first node, with every distribution except arbitrary.
	w.hosts = hosts[:min(len(hosts), maxHosts)]
	if len(hosts) == w.Size {
		w.byRank = hosts // one task on each, in this order
	}
	return true
}

// tasksHere returns a node's number of tasks in "4(x3),2": 4, 4, 4, 2.
func (e *environment) tasksHere(s string, node int) int {
	first := 0
	for part := range strings.SplitSeq(s, ",") {
		count, times, found := strings.Cut(part, "(x")
		n, err := strconv.Atoi(count)
		repeat := 1
		if err == nil && found {
			repeat, err = strconv.Atoi(strings.TrimSuffix(times, ")"))
		}
		if err != nil || n < 0 || repeat < 1 {
			e.fail("%s=%q is not like 4(x3),2", slurmTasks, s)
			return 0
		}
		if node < first+repeat {
			return n
		}
		first += repeat
	}
	e.fail("%s=%q has no node %s=%d", slurmTasks, s, slurmNode, node)
	return 0
}
