package bootstrap

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// A World is the job that this process is part of, as the launcher that
// started it says.
type World struct {
	Rank, Size int
	// LocalRank and LocalSize count the processes on this host; LocalSize is 0
	// when the launcher does not say.
	LocalRank, LocalSize int
	// Launcher is "mpirun", "slurm", "hydra", "torchrun", "pmix" or "none".
	Launcher string

	hosts     []string // where rank 0 may be, best first
	byRank    []string // each rank's host; nil: not known
	job       string   // what all processes of the job know, and no other job has
	secret    []byte   // of the job; nil if there is none
	secretVar string   // where it comes from
	commID    string   // NCCL_COMM_ID
	pmi       *pmiSpec // how to talk PMI; nil if the launcher does not
	calls     *atomic.Uint32
}

// jobSecretVar holds a secret that all processes of a job have and no other ones.
const jobSecretVar = "ASSAY_JOB_SECRET"

// A launcher finds out whether it started this process, and if so fills w.
type launcher struct {
	name   string
	detect func(e *environment, w *World) (found bool)
}

// launchers in the order in which they are asked: one that can be started by
// another comes before it. torchrun started by srun or mpirun leaves their
// variables in place, as mpirun started within a Slurm job does.
var launchers = []launcher{
	{"torchrun", detectTorchElastic},
	{"mpirun", detectOpenMPI},
	{"slurm", detectSlurm},
	{"hydra", detectHydra},
	{"torchrun", detectTorch},
	{"pmix", detectPMIx},
}

// Detect finds rank and size in what launchers put into the environment:
// torchrun, OpenMPI's mpirun (in a Kubernetes MPIJob, too), Slurm's srun with
// or without PMI2 or PMIx, MPICH's hydra, and variables as torchrun sets them.
// Without any it is rank 0 of 1. The error names the variables that do not fit
// together. getenv is os.Getenv, but for tests.
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

// Host is the host that a rank is on, as the launcher says, or "" where it does not.
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

// An environment reads numbers, and keeps the first thing that is wrong.
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

// number reads one that must be there.
func (e *environment) number(name, because string) int {
	s := e.getenv(name)
	if s == "" {
		e.fail("%s is set but %s is not: the environment of the launcher is incomplete", because, name)
		return 0
	}
	return e.parse(name, s)
}

// optional reads one that need not be there.
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

// same checks that two variables agree, if both are there.
func (e *environment) same(nameA string, a int, nameB string) {
	if b := e.optional(nameB, a); a != b {
		e.fail("%s=%d but %s=%d: two launchers disagree; unset the variables of the one that did not start this process", nameA, a, nameB, b)
	}
}

// localPlace reads rank and size on the host, where both are there.
func (e *environment) localPlace(w *World, rankVar, sizeVar string) {
	w.LocalRank = e.optional(rankVar, 0)
	w.LocalSize = e.optional(sizeVar, 0)
	if w.LocalSize > 0 {
		e.fits(rankVar, w.LocalRank, sizeVar, w.LocalSize)
	}
}
