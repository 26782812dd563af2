// Package jobs writes the jobs that run the harness on a cluster: Slurm
// scripts, MPIJobs, JobSets, Kubernetes Jobs and DaemonSets, docker run, hostfiles. A
// profile says what a platform needs, and options say what the user wants. Both are
// combined into a plan, which one Go file per scheduler renders. The package also
// checks files of these kinds, its own and others.
//
// It runs no other programs and submits nothing.
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
	Kubernetes  = "kubernetes"   // each node runs alone: Job or DaemonSet
	Docker      = "docker"       // one node
	Hostfile    = "hostfile"     // for mpirun and DeepSpeed
)

// Schedulers lists them all.
var Schedulers = []string{SlurmBare, SlurmEnroot, MPIOperator, JobSet, Kubernetes, Docker, Hostfile}

// VariantNames lists the variants of profiles. Each profile supports a variant or says
// why it does not.
var VariantNames = []string{"sharp", "gdrcopy", "no-ib", "multirack", "roce", "spectrum-x", "dra"}

// What a job runs.
const (
	RunCertify = "certify"    // a suite of the harness
	RunColl    = "coll"       // harness coll: one benchmark
	RunNCCL    = "nccl-tests" // NVIDIA's programs for the same benchmarks
)

// Runs lists them all.
var Runs = []string{RunCertify, RunColl, RunNCCL}

// Options are the user's choices for a job. Zero values mean the profile's or the
// documented default.
type Options struct {
	Profile   string
	Variants  []string
	Scheduler string
	Nodes     int
	GPUs      int // per node

	Run    string // "": certify
	Op     string // of a benchmark; "": all_reduce
	Suite  string // of certify; "": fabric, or node where a node runs by itself
	Min    string // smallest and largest size of a benchmark: "8", "16G"
	Max    string
	Factor int

	Image  string // reference of the image
	NoExec bool   // the profile fixes the variables, not "harness exec" on each node
	Env    []Var  // in addition to the profile's, which they override

	Name      string // "": derived from the other options
	Time      time.Duration
	OutputDir string // where certificates go
	Site      string // selects labels and networks; "": the profile's default, "none": no site

	Partition string // Slurm
	Account   string
	Segment   int    // nodes in one block of the topology; 0: the profile's, negative: not requested
	ImageDir  string // directory of enroot's image file; "": the directory of submission
	Harness   string // path of the harness on the host; "": found in PATH

	Namespace string // Kubernetes
	Claim     string // PersistentVolumeClaim for OutputDir
	Selector  string // KEY=VALUE,VALUE: overrides the site's
	Networks  string // Multus networks: overrides the site's
	DaemonSet bool

	Hosts []string // hostfile
}

// A Refusal lists all problems of a combination of options.
type Refusal struct{ Problems []string }

func (r *Refusal) Error() string { return strings.Join(r.Problems, "\n") }

// Render returns the job's file. If the options do not make a valid job, the error is
// a *Refusal.
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
