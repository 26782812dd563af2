package jobs

import (
	"strconv"
	"time"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// mpiJob returns an MPIJob of the MPI Operator: a pod with sshd for each node, and a
// launcher that waits for them and runs mpirun.
func (j *job) mpiJob() ([]byte, error) {
	worker := j.worker()
	c := &worker.Spec.Containers[0]
	// Without a command the operator starts sshd. With WaitForWorkersReady the launcher
	// starts when all workers answer.
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(22)}}, PeriodSeconds: 2}
	if j.certifies() {
		c.Env = append(c.Env, nodeName())
	}
	launcher, keys := j.launcher(), "/root/.ssh"
	if j.restricted() {
		c.Env = append(c.Env, corev1.EnvVar{Name: "ASSAY_SSHD_KEYS", Value: "/tmp/sshd"})
		restrict(&worker.Spec)
		restrict(&launcher.Spec)
		worker.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "22"}}
		if j.Claim != "" {
			worker.Spec.SecurityContext.FSGroup = ptr[int64](userID)
		}
		keys = userHome + "/.ssh"
	}
	o := &mpi.MPIJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: mpi.SchemeGroupVersion.String(), Kind: mpi.Kind},
		ObjectMeta: j.meta(),
		Spec: mpi.MPIJobSpec{
			SlotsPerWorker: ptr(int32(j.slots)),
			RunPolicy: mpi.RunPolicy{
				CleanPodPolicy:          ptr(mpi.CleanPodPolicyRunning), // deletes workers, but keeps the launcher's log
				ActiveDeadlineSeconds:   ptr(int64(j.Time / time.Second)),
				BackoffLimit:            ptr[int32](0), // a failed measurement is a result
				TTLSecondsAfterFinished: ptr[int32](keepFor),
			},
			MPIReplicaSpecs: map[mpi.MPIReplicaType]*mpi.ReplicaSpec{
				mpi.MPIReplicaTypeLauncher: {Replicas: ptr[int32](1), RestartPolicy: mpi.RestartPolicyNever, Template: launcher},
				mpi.MPIReplicaTypeWorker:   {Replicas: ptr(int32(j.Nodes)), RestartPolicy: mpi.RestartPolicyNever, Template: worker},
			},
			SSHAuthMountPath:       keys,
			LauncherCreationPolicy: mpi.LauncherCreationPolicyWaitForWorkersReady,
			MPIImplementation:      mpi.MPIImplementationOpenMPI,
		},
	}
	if j.computed {
		return j.document(j.computeDomain(), o)
	}
	return j.document(o)
}

// userID is in no base's /etc/passwd. There the images' libnss_assay.so.2 gives the user a name and
// the home userHome, so that OpenSSH runs.
const (
	userID   = 10001
	userHome = "/home/assay"
)

// restricted reports whether the job keeps to the Pod Security Standard "restricted". With RDMA it
// cannot: adapters pin memory, for which IPC_LOCK is needed, and Kubernetes gives added
// capabilities to root alone. Nor may such a pod mount devices of the host.
func (j *job) restricted() bool { return !j.rdma && len(j.devices) == 0 }

// restrict lets a pod run as a user other than root and without any right, as the Pod Security
// Standard "restricted" requires.
func restrict(p *corev1.PodSpec) {
	p.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: ptr[int64](userID), RunAsNonRoot: ptr(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for i := range p.Containers {
		p.Containers[i].SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
}

func (j *job) launcher() corev1.PodTemplateSpec {
	// Open MPI 5 does not read what the operator sets for version 4.
	env := append([]corev1.EnvVar{{Name: "PRTE_MCA_prte_keep_fqdn_hostnames", Value: "true"}}, envVars(j.vars)...)
	command, args := []string{"mpirun"}, j.mpirun()
	if j.certifies() {
		command, args = []string{"bash", "-c", follow, "-", strconv.Itoa(j.tellers())}, append(command, args...)
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{nameLabel: "assay-launcher"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "launcher", Image: j.Image, Env: env,
			Command: escape(command), Args: escape(args),
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
			}},
		}}},
	}
}

func (j *job) channelTemplate() string { return j.Name + "-channel" }

// computeDomain is of NVIDIA's DRA driver. Pods that claim its channel share NVLink memory.
func (j *job) computeDomain() any {
	return map[string]any{
		"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": j.meta(),
		"spec": map[string]any{
			"numNodes": 0, // pods do not wait for one another
			"channel":  map[string]any{"resourceClaimTemplate": map[string]string{"name": j.channelTemplate()}},
		},
	}
}
