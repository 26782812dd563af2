package jobs

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeJob returns a job that certifies (or benchmarks) each node by itself: a Job with
// one pod per node, or a DaemonSet.
func (j *job) nodeJob() ([]byte, error) {
	t := j.worker()
	c := &t.Spec.Containers[0]
	c.Env = append(c.Env, envVars(j.vars)...)
	c.Command = escape(j.command)
	if j.certifies() {
		c.Env = append(c.Env, nodeName())
	}
	if j.Claim != "" && j.certifies() { // one directory per node; Kubernetes expands NODE_NAME
		c.Command = append(c.Command, "--out", escape([]string{j.output()})[0]+"/$(NODE_NAME)/")
	}
	if j.DaemonSet {
		return j.document(j.daemonSet(t))
	}
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	n := int32(j.Nodes)
	return j.document(&batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: j.meta(),
		Spec: batchv1.JobSpec{
			Completions: &n, Parallelism: &n, CompletionMode: ptr(batchv1.IndexedCompletion),
			// A failed node must not end the runs of the others.
			BackoffLimitPerIndex: ptr[int32](0), MaxFailedIndexes: &n,
			ActiveDeadlineSeconds: ptr(int64(j.Time / time.Second)), TTLSecondsAfterFinished: ptr[int32](keepFor),
			Template: t,
		},
	})
}

// nodeName sets NODE_NAME, so that certificates name the node: a pod does not know it
// by itself.
func nodeName() corev1.EnvVar {
	return corev1.EnvVar{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}
}

// daemonSet runs the command once on each node and then occupies the node until the
// DaemonSet is deleted. A pod is ready when its node has passed.
func (j *job) daemonSet(t corev1.PodTemplateSpec) *appsv1.DaemonSet {
	const passed = "/tmp/assay-passed"
	c := &t.Spec.Containers[0]
	var words []string
	for _, w := range c.Command {
		words = append(words, quote(w))
	}
	c.Command = []string{"/bin/sh", "-c", strings.Join(words, " ") + " && touch " + passed + "; exec sleep infinity"}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-f", passed}}}, PeriodSeconds: 10}
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: j.meta(),
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: j.labels()}, Template: t},
	}
}
