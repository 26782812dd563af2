package jobs

import (
	"fmt"
	"path"
	"slices"
	"strings"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	mpivalidation "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/validation"
)

// mpiJob validates an MPIJob with the operator's own code, and returns the layouts of its pods.
func (s *places) mpiJob(job *mpi.MPIJob) func(path string) layout {
	if job.Name == "" && job.GenerateName != "" {
		job.Name = job.GenerateName + "00000"
	}
	for _, e := range mpivalidation.ValidateMPIJob(job) {
		s.report(LevelError, e.Field, e.ErrorBody(), "the operator refuses it")
	}
	worker := job.Spec.MPIReplicaSpecs[mpi.MPIReplicaTypeWorker]
	if worker != nil && len(worker.Template.Spec.Containers) > 0 {
		c := worker.Template.Spec.Containers[0]
		s.sshd(slices.Concat(c.Command, c.Args), c.Lifecycle != nil)
	}
	return s.mpiLayout(job)
}

// mpiLayout returns the layouts of an MPIJob's pods.
func (s *places) mpiLayout(job *mpi.MPIJob) func(path string) layout {
	a := layout{hosts: true, other: job.Spec.MPIImplementation != mpi.MPIImplementationOpenMPI}
	worker, launcher := job.Spec.MPIReplicaSpecs[mpi.MPIReplicaTypeWorker], job.Spec.MPIReplicaSpecs[mpi.MPIReplicaTypeLauncher]
	if worker == nil || launcher == nil || job.Spec.SlotsPerWorker == nil {
		return func(string) layout { return a }
	}
	nodes := int(count(worker.Replicas, 0))
	a.nodes, a.slots = nodes, int(*job.Spec.SlotsPerWorker)
	if job.Spec.RunLauncherAsWorker != nil && *job.Spec.RunLauncherAsWorker {
		a.nodes++
	}
	for i, c := range worker.Template.Spec.Containers {
		a.gpus += gpus(c)
		at := fmt.Sprintf("spec.mpiReplicaSpecs[Worker].template.spec.containers[%d]", i)
		a.env = append(a.env, s.environment(c, at)...)
	}
	return func(path string) layout {
		if strings.Contains(path, ".Launcher.") {
			return a
		}
		return layout{nodes: nodes}
	}
}

// sshd warns about workers that mpirun cannot reach: the operator starts their sshd only if
// they have neither command nor arguments.
func (s *places) sshd(argv []string, hook bool) {
	const at = "spec.mpiReplicaSpecs[Worker].template.spec.containers[0]"
	if len(argv) == 0 || hook || strings.Contains(strings.Join(argv, " "), "sshd") {
		return
	}
	level := LevelError
	for _, cmd := range containerShell(argv, nil).commands {
		if w := path.Base(cmd.words[0]); w != "sleep" && w != "tail" {
			level = LevelWarning // it may start sshd
		}
	}
	s.report(level, at+".command", "it starts no sshd, by which the launcher reaches the workers", "remove it: the operator then starts sshd; or write /usr/sbin/sshd -De")
}
