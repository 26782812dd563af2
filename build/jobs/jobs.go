// Package jobs writes the jobs that run the harness on a cluster: Slurm
// scripts, MPIJobs, JobSets, Kubernetes Jobs and DaemonSets, docker run, hostfiles. A
// profile says what a platform needs, options what somebody wants; the two make
// a plan, and one file for each scheduler renders it. It also checks such files,
// its own and others'.
//
// It is pure but for the programs that a check may ask (bash, shellcheck,
// sbatch), and submits nothing.
package jobs

import (
	"strings"
	"time"
)

// Schedulers that a job can be rendered for.
const (
	SlurmBare   = "slurm"        // programs of the host
	SlurmEnroot = "slurm-enroot" // an image, by enroot and pyxis
	MPIOperator = "mpi-operator" // Kubeflow's MPIJob
	JobSet      = "jobset"       // Kubernetes' JobSet: several nodes without MPI
	Kubernetes  = "kubernetes"   // each node by itself: Job or DaemonSet
	Docker      = "docker"       // one node
	Hostfile    = "hostfile"     // for mpirun and DeepSpeed
)

// Schedulers lists them all.
var Schedulers = []string{SlurmBare, SlurmEnroot, MPIOperator, JobSet, Kubernetes, Docker, Hostfile}

// VariantNames lists what profiles can be asked for besides; each profile has
// it or says why not.
var VariantNames = []string{"sharp", "gdrcopy", "no-ib", "multirack", "roce", "spectrum-x", "dra"}

// What a job runs.
const (
	RunCertify = "certify"    // a suite of the harness
	RunColl    = "coll"       // harness coll: one benchmark
	RunNCCL    = "nccl-tests" // NVIDIA's program for the same
)

// Runs lists them all.
var Runs = []string{RunCertify, RunColl, RunNCCL}

// Options are what somebody wants of a job. Zero values mean the profile's or
// the documented default.
type Options struct {
	Profile   string
	Variants  []string
	Scheduler string
	Nodes     int
	GPUs      int // of a node

	Run    string // "": certify
	Op     string // of a benchmark; "": all_reduce
	Suite  string // of certify; "": fabric, or node where a node runs by itself
	Min    string // smallest and largest size of a benchmark: "8", "16G"
	Max    string
	Factor int

	Image  string // reference of the image
	NoExec bool   // variables fixed from the profile, not by "harness exec" on each node
	Env    []Var  // besides, and over the profile's

	Name      string // "": made from the rest
	Time      time.Duration
	OutputDir string // where certificates go
	Site      string // whose labels and networks; "": the profile's, "none": nobody's

	Partition string // Slurm
	Account   string
	Segment   int    // nodes in one block of the topology; 0: the profile's, negative: not asked for
	ImageDir  string // where enroot's image is kept; "": the directory of submission
	Harness   string // the harness on the host; "": found by PATH

	Namespace string // Kubernetes
	Claim     string // PersistentVolumeClaim for OutputDir
	Selector  string // KEY=VALUE,VALUE: over the site's
	Networks  string // Multus's: over the site's
	DaemonSet bool

	Hosts []string // hostfile
}

// A Refusal says all that speaks against a combination of options.
type Refusal struct{ Problems []string }

func (r *Refusal) Error() string { return strings.Join(r.Problems, "\n") }

// Render returns the job's file. A *Refusal says that these options make no job.
func Render(o Options) ([]byte, error) {
	doc, err := Load()
	if err != nil {
		return nil, err
	}
	j, err := plan(doc, o)
	if err != nil {
		return nil, err
	}
	switch j.Scheduler {
	case SlurmBare, SlurmEnroot:
		return j.slurm(), nil
	case MPIOperator:
		return j.mpiJob()
	case JobSet:
		return j.jobSet()
	case Kubernetes:
		return j.nodeJob()
	case Docker:
		return j.docker(), nil
	}
	return j.hostfile(), nil
}
