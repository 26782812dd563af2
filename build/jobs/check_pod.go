package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// pods checks the pods of an object.
func (s *places) pods(o any) {
	switch o := o.(type) {
	case *mpi.MPIJob:
		for _, t := range slices.Sorted(maps.Keys(o.Spec.MPIReplicaSpecs)) {
			if r := o.Spec.MPIReplicaSpecs[t]; r != nil {
				s.pod(r.Template.Spec, fmt.Sprintf("spec.mpiReplicaSpecs[%s].template.spec", t))
			}
		}
	case *batchv1.Job:
		s.job(o.Spec, "spec")
	case *Set:
		for i, r := range o.Spec.ReplicatedJobs {
			s.job(r.Template.Spec, fmt.Sprintf("spec.replicatedJobs[%d].template.spec", i))
		}
	case *appsv1.DaemonSet:
		s.pod(o.Spec.Template.Spec, "spec.template.spec")
		if o.Spec.Selector == nil {
			s.report(LevelError, "spec.selector", "it is missing", "name labels of the template")
			return
		}
		for k, v := range o.Spec.Selector.MatchLabels {
			if o.Spec.Template.Labels[k] != v {
				s.report(LevelError, "spec.selector.matchLabels["+k+"]", "the template's metadata has no such label", "write it there, too")
			}
		}
	case *corev1.Pod:
		s.pod(o.Spec, "spec")
	}
}

// job checks a Job, or the Job template of a JobSet.
func (s *places) job(j batchv1.JobSpec, path string) {
	s.pod(j.Template.Spec, path+".template.spec")
	if p := j.Template.Spec.RestartPolicy; p != corev1.RestartPolicyNever && p != corev1.RestartPolicyOnFailure {
		s.report(LevelError, path+".template.spec.restartPolicy", fmt.Sprintf("a Job's pods cannot have %q", p), "write Never")
	}
	if j.ActiveDeadlineSeconds == nil {
		s.report(LevelWarning, path, "there is no activeDeadlineSeconds", "a run that hangs would keep its GPUs for ever")
	}
}

func (s *places) pod(p corev1.PodSpec, path string) {
	if len(p.Containers) == 0 {
		s.report(LevelError, path+".containers", "there is no container", "name one")
	}
	volumes := map[string]corev1.Volume{}
	for i, v := range p.Volumes {
		volumes[v.Name] = v
		if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory && v.EmptyDir.SizeLimit == nil {
			s.report(LevelWarning, fmt.Sprintf("%s.volumes[%d].emptyDir", path, i), "memory without sizeLimit", "write one; it could take the node's memory")
		}
	}
	claims := map[string]bool{}
	for _, r := range p.ResourceClaims {
		claims[r.Name] = true
	}
	for i, c := range p.Containers {
		at := fmt.Sprintf("%s.containers[%d]", path, i)
		s.resources(c, at)
		for k, r := range c.Resources.Claims {
			if !claims[r.Name] {
				s.report(LevelError, fmt.Sprintf("%s.resources.claims[%d]", at, k), fmt.Sprintf("the pod has no resource claim %q", r.Name), "name it in the pod's resourceClaims")
			}
		}
		for k, m := range c.VolumeMounts {
			if _, ok := volumes[m.Name]; !ok {
				s.report(LevelError, fmt.Sprintf("%s.volumeMounts[%d].name", at, k), fmt.Sprintf("the pod has no volume %q", m.Name), "name one of the pod's volumes")
			}
		}
		if gpus := amount(c, gpuResource); gpus > 1 && !p.HostIPC && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/dev/shm" }) {
			s.report(LevelError, at+".volumeMounts", fmt.Sprintf("nothing is mounted at /dev/shm for %d GPUs", gpus), "mount an emptyDir in memory; NCCL's ranks of one node need more than the 64 MB that a container has")
		}
		if name := rdmaResource(c); name != "" && !mayPin(c) {
			s.report(LevelError, at+".securityContext", "it asks for "+name+", but has not the capability IPC_LOCK", "add it; memory for RDMA is pinned")
		}
	}
}

// native reports whether a resource is one of Kubernetes' own. Only their requests
// may be less than the limits.
func native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// resources checks requests and limits. For resources of device plugins both must be
// equal; a limit alone counts as the request, too.
func (s *places) resources(c corev1.Container, at string) {
	r := c.Resources
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		limit, ok := r.Limits[name]
		path := fmt.Sprintf("%s.resources.requests[%s]", at, name)
		switch {
		case ok && request.Cmp(limit) > 0:
			s.report(LevelError, path, fmt.Sprintf("the request %s is above the limit %s", &request, &limit), "write no more than the limit")
		case native(name):
		case !ok:
			s.report(LevelError, path, "it has no limit", fmt.Sprintf("write limits: {%s: %q}; both must be equal", name, &request))
		case request.Cmp(limit) != 0:
			s.report(LevelError, path, fmt.Sprintf("the request %s differs from the limit %s", &request, &limit), "write the same; a device cannot be overcommitted")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		if q := r.Limits[name]; !native(name) && strings.Contains(string(name), "/") && q.MilliValue()%1000 != 0 {
			s.report(LevelError, fmt.Sprintf("%s.resources.limits[%s]", at, name), fmt.Sprintf("%s is no whole number of devices", &q), "write a whole number")
		}
	}
}

func amount(c corev1.Container, name corev1.ResourceName) int64 {
	q, ok := c.Resources.Limits[name]
	if !ok {
		q = c.Resources.Requests[name]
	}
	return q.Value()
}

// rdmaResource returns the RDMA resource that the container requests, "" for none.
func rdmaResource(c corev1.Container) string {
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if strings.HasPrefix(string(name), "rdma/") || name == "vpc.amazonaws.com/efa" {
				return string(name)
			}
		}
	}
	return ""
}

func mayPin(c corev1.Container) bool {
	sc := c.SecurityContext
	return sc != nil && (sc.Privileged != nil && *sc.Privileged ||
		sc.Capabilities != nil && (slices.Contains(sc.Capabilities.Add, "IPC_LOCK") || slices.Contains(sc.Capabilities.Add, "ALL")))
}
