package bootstrap

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// A World is the job that this process is part of, as reported by the launcher that
// started it.
type World struct {
	Rank, Size int
	// LocalRank and LocalSize are this process's number on its host, and the number of
	// the job's processes there; LocalSize is 0 if the launcher does not report it.
	LocalRank, LocalSize int
	// Launcher is "mpirun", "slurm", "hydra", "torchrun", "pmix" or "none".
	Launcher string

	hosts     []string // where rank 0 may be, best first
	byRank    []string // each rank's host; nil: not known
	job       string   // a name that all processes of the job know, and no other job has
	secret    []byte   // of the job; nil if there is none
	secretVar string   // the variable that secret comes from
	commID    string   // NCCL_COMM_ID
	remedy    string   // for the error that rank 0 is not found, before another one
	pmi       *pmiSpec // how to reach PMI; nil if the launcher has none
	calls     *atomic.Uint32
}

// jobSecretVar is the variable for a secret that only the processes of a job have.
const jobSecretVar = "ASSAY_JOB_SECRET"

// A launcher determines whether it started this process, and if so fills w.
type launcher struct {
	name   string
	detect func(e *environment, w *World) (found bool)
}

// launchers, in the order in which they are tried: a launcher that can be started by
// another one comes before it. torchrun started by srun or mpirun leaves their variables
// in place, and so does mpirun started within a Slurm job.
var launchers = []launcher{
	{"torchrun", detectTorchElastic},
	{"mpirun", detectOpenMPI},
	{"slurm", detectSlurm},
	{"hydra", detectHydra},
	{"torchrun", detectTorch},
	{"pmix", detectPMIx},
}

// Detect determines rank and size from the variables that launchers set: torchrun,
// OpenMPI's mpirun (also in a Kubernetes MPIJob), Slurm's srun with or without PMI2 or
// PMIx, MPICH's hydra, and other launchers that set torchrun's variables. Without any of
// them it returns rank 0 of 1. The error names the variables that do not fit together.
// getenv is os.Getenv, except in tests.
func Detect(getenv func(string) string) (World, error) {
	e := &environment{getenv: getenv}
	w := World{Size: 1, Launcher: "none"}
	for _, l := range launchers {
		if l.detect(e, &w) {
			w.Launcher = l.name
			break
		}
	}
	if e.err != nil {
		return World{}, e.err
	}
	w.calls = new(atomic.Uint32)
	w.commID = getenv("NCCL_COMM_ID")
	if s := getenv(jobSecretVar); s != "" {
		w.secret, w.secretVar = []byte(s), jobSecretVar
	}
	return w, nil
}

// Host returns the host of a rank, as reported by the launcher, or "" if that is unknown.
func (w World) Host(rank int) string {
	if rank < 0 || rank >= len(w.byRank) {
		return ""
	}
	return w.byRank[rank]
}

// String is for logs.
func (w World) String() string {
	s := fmt.Sprintf("rank %d of %d (%s", w.Rank, w.Size, w.Launcher)
	if w.LocalSize > 0 {
		s += fmt.Sprintf(", %d of %d on this host", w.LocalRank, w.LocalSize)
	}
	return s + ")"
}

// An environment reads variables, and records the first error.
type environment struct {
	getenv func(string) string
	err    error
}

func (e *environment) has(name string) bool { return e.getenv(name) != "" }

func (e *environment) fail(format string, a ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, a...)
	}
}

// number reads a required number.
func (e *environment) number(name, because string) int {
	s := e.getenv(name)
	if s == "" {
		e.fail("%s is set but %s is not: the environment of the launcher is incomplete", because, name)
		return 0
	}
	return e.parse(name, s)
}

// optional reads a number that may be unset.
func (e *environment) optional(name string, or int) int {
	if s := e.getenv(name); s != "" {
		return e.parse(name, s)
	}
	return or
}

func (e *environment) parse(name, s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 0 {
		e.fail("%s=%q is not a number from 0 on", name, s)
		return 0
	}
	return n
}

// place reads rank and size, of the job or of the host, and checks them.
func (e *environment) place(rankVar, sizeVar string) (rank, size int) {
	rank, size = e.number(rankVar, sizeVar), e.number(sizeVar, rankVar)
	e.fits(rankVar, rank, sizeVar, size)
	return rank, size
}

func (e *environment) fits(rankVar string, rank int, sizeVar string, size int) {
	if rank >= size {
		e.fail("%s=%d does not fit %s=%d: ranks go from 0 to size-1", rankVar, rank, sizeVar, size)
	}
}

// same checks that two variables agree, if both are set.
func (e *environment) same(nameA string, a int, nameB string) {
	if b := e.optional(nameB, a); a != b {
		e.fail("%s=%d but %s=%d: two launchers disagree; unset the variables of the one that did not start this process", nameA, a, nameB, b)
	}
}

// localPlace reads rank and size on the host, if they are set.
func (e *environment) localPlace(w *World, rankVar, sizeVar string) {
	w.LocalRank = e.optional(rankVar, 0)
	w.LocalSize = e.optional(sizeVar, 0)
	if w.LocalSize > 0 {
		e.fits(rankVar, w.LocalRank, sizeVar, w.LocalSize)
	}
}
