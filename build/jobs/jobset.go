package jobs

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Set is a JobSet, jobset.x-k8s.io/v1alpha2, with the fields of its definition.
type Set struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SetSpec        `json:"spec"`
	Status            map[string]any `json:"status,omitempty"` // written by the controller
}

// SetSpec is the desired state of a Set.
type SetSpec struct {
	ReplicatedJobs          []ReplicatedJob     `json:"replicatedJobs,omitempty"`
	Network                 *SetNetwork         `json:"network,omitempty"`
	SuccessPolicy           *SuccessPolicy      `json:"successPolicy,omitempty"`
	FailurePolicy           *FailurePolicy      `json:"failurePolicy,omitempty"`
	StartupPolicy           *StartupPolicy      `json:"startupPolicy,omitempty"`
	Suspend                 *bool               `json:"suspend,omitempty"`
	Coordinator             *Coordinator        `json:"coordinator,omitempty"`
	ManagedBy               *string             `json:"managedBy,omitempty"`
	TTLSecondsAfterFinished *int32              `json:"ttlSecondsAfterFinished,omitempty"`
	VolumeClaimPolicies     []VolumeClaimPolicy `json:"volumeClaimPolicies,omitempty"`
}

// A ReplicatedJob is one or more Jobs of one template.
type ReplicatedJob struct {
	Name      string                  `json:"name"`
	GroupName string                  `json:"groupName,omitempty"`
	Template  batchv1.JobTemplateSpec `json:"template"`
	Replicas  *int32                  `json:"replicas,omitempty"`
	DependsOn []DependsOn             `json:"dependsOn,omitempty"`
}

// DependsOn names another ReplicatedJob and the status that it must have before this
// one's Jobs are created.
type DependsOn struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// SetNetwork configures how pods find one another.
type SetNetwork struct {
	EnableDNSHostnames       *bool  `json:"enableDNSHostnames,omitempty"`
	Subdomain                string `json:"subdomain,omitempty"`
	PublishNotReadyAddresses *bool  `json:"publishNotReadyAddresses,omitempty"`
}

// SuccessPolicy says which Jobs must succeed.
type SuccessPolicy struct {
	Operator             string   `json:"operator"`
	TargetReplicatedJobs []string `json:"targetReplicatedJobs,omitempty"`
}

// FailurePolicy says what happens when a Job fails.
type FailurePolicy struct {
	MaxRestarts     int32               `json:"maxRestarts"`
	RestartStrategy string              `json:"restartStrategy,omitempty"`
	Rules           []FailurePolicyRule `json:"rules,omitempty"`
}

// A FailurePolicyRule is the action for certain failures.
type FailurePolicyRule struct {
	Name                        string   `json:"name,omitempty"`
	Action                      string   `json:"action"`
	OnJobFailureReasons         []string `json:"onJobFailureReasons,omitempty"`
	OnJobFailureMessagePatterns []string `json:"onJobFailureMessagePatterns,omitempty"`
	TargetReplicatedJobs        []string `json:"targetReplicatedJobs,omitempty"`
}

// StartupPolicy is the order in which Jobs are created.
type StartupPolicy struct {
	StartupPolicyOrder string `json:"startupPolicyOrder"`
}

// Coordinator selects the pod that is announced to the others.
type Coordinator struct {
	ReplicatedJob string `json:"replicatedJob"`
	JobIndex      int    `json:"jobIndex,omitempty"`
	PodIndex      int    `json:"podIndex,omitempty"`
}

// VolumeClaimPolicy defines volume claims that belong to the set.
type VolumeClaimPolicy struct {
	Templates       []corev1.PersistentVolumeClaim `json:"templates,omitempty"`
	RetentionPolicy *RetentionPolicy               `json:"retentionPolicy,omitempty"`
}

// RetentionPolicy says when those claims are deleted.
type RetentionPolicy struct {
	WhenDeleted *string `json:"whenDeleted,omitempty"`
}

const (
	setNodes   = "node" // the name of the one ReplicatedJob
	readyFile  = "/tmp/assay-ready"
	masterPort = "29500" // torchrun's own default
)

// gather runs in each pod of an indexed Job and starts the processes of one run, which
// find each other by torchrun's variables. Pods start as soon as their image is pulled,
// so they wait for one another: the first pod waits for all others, and they wait for
// the first pod, which becomes ready, and thus gets a DNS name, when it has found them.
// The first pod waits at most ten minutes, the others at most twenty. The arguments are
// the number of pods, the number of processes per pod, the prefix and suffix of the
// pods' names, and the command.
const gather = `pods=$1 processes=$2 head=$3 tail=$4 pids=() status=0 end=$((SECONDS + 600))
trap '[ "${#pids[@]}" -gt 0 ] || exit 143; kill "${pids[@]}"' TERM
await() {
  until getent hosts "$head$1$tail" >/dev/null; do
    if [ "$SECONDS" -ge "$end" ]; then echo "assay: pod $1 has not come" >&2; return; fi
    sleep 1
  done
}
if [ "$JOB_COMPLETION_INDEX" = 0 ]; then
  for ((i = 1; i < pods; i++)); do await "$i"; done
  touch ` + readyFile + `
else
  touch ` + readyFile + `
  end=$((end + 600))
  await 0
fi
for ((i = 0; i < processes; i++)); do
  RANK=$((JOB_COMPLETION_INDEX * processes + i)) LOCAL_RANK=$i LOCAL_WORLD_SIZE=$processes "${@:5}" &
  pids+=($!)
done
for p in "${pids[@]}"; do
  s=0
  wait "$p" || s=$?
  if kill -0 "$p" 2>/dev/null; then s=0; wait "$p" || s=$?; fi
  [ "$s" -le "$status" ] || status=$s
done
exit "$status"
`

// jobSet returns a JobSet of one indexed Job with a pod on each node. The pods have DNS
// names, by which the processes find each other, without MPI, ssh or distributed keys.
func (j *job) jobSet() ([]byte, error) {
	t := j.worker()
	c := &t.Spec.Containers[0]
	if j.certifies() {
		c.Env = append(c.Env, nodeName())
	}
	head, tail := j.Name+"-"+setNodes+"-0-", "."+j.Name
	c.Env = append(c.Env,
		corev1.EnvVar{Name: "MASTER_ADDR", Value: head + "0" + tail},
		corev1.EnvVar{Name: "MASTER_PORT", Value: masterPort},
		corev1.EnvVar{Name: "WORLD_SIZE", Value: strconv.Itoa(j.ranks)},
		// The Job's UID: random, the same in all pods of the Job, and unknown to others
		// that can reach a pod.
		corev1.EnvVar{Name: "ASSAY_JOB_SECRET", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.ControllerUidLabel + "']"}}})
	c.Env = append(c.Env, envVars(j.vars)...)
	c.Command = escape(append([]string{"bash", "-c", gather, "-", strconv.Itoa(j.Nodes), strconv.Itoa(j.slots), head, tail}, j.command...))
	switch dir := escape([]string{j.output()})[0]; {
	case !j.certifies() || dir == "":
	case j.apart(): // one directory per node; Kubernetes expands NODE_NAME
		c.Command = append(c.Command, "--out", dir+"/$(NODE_NAME)/")
	default:
		c.Command = append(c.Command, "--out", dir+"/")
	}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-f", readyFile}}}, PeriodSeconds: 1}
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	n := int32(j.Nodes)
	set := &Set{
		TypeMeta:   metav1.TypeMeta{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet"},
		ObjectMeta: j.meta(),
		Spec: SetSpec{
			// A pod's name resolves only when the pod is ready: by then all of it has started.
			Network:                 &SetNetwork{EnableDNSHostnames: ptr(true), PublishNotReadyAddresses: ptr(false)},
			FailurePolicy:           &FailurePolicy{}, // no restart: a failed measurement is a result
			TTLSecondsAfterFinished: ptr[int32](keepFor),
			ReplicatedJobs: []ReplicatedJob{{
				Name: setNodes, Replicas: ptr[int32](1),
				Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
					Completions: &n, Parallelism: &n, CompletionMode: ptr(batchv1.IndexedCompletion),
					// A failed node must not end the runs of the others.
					BackoffLimitPerIndex: ptr[int32](0), MaxFailedIndexes: &n,
					ActiveDeadlineSeconds: ptr(int64(j.Time / time.Second)),
					Template:              t,
				}},
			}},
		},
	}
	if j.computed {
		return j.document(j.computeDomain(), set)
	}
	return j.document(set)
}

// jobSet checks that a JobSet's numbers and names agree with each other.
func (s *places) jobSet(o *Set) {
	if len(o.Spec.ReplicatedJobs) == 0 {
		s.report(LevelError, "spec", "there are no replicatedJobs", "name one")
	}
	pods := int64(0)
	seen := map[string]bool{}
	domain := o.Name
	dns := true
	if n := o.Spec.Network; n != nil {
		if n.Subdomain != "" {
			domain = n.Subdomain
		}
		dns = n.EnableDNSHostnames == nil || *n.EnableDNSHostnames
	}
	for i, r := range o.Spec.ReplicatedJobs {
		path := fmt.Sprintf("spec.replicatedJobs[%d]", i)
		if seen[r.Name] {
			s.report(LevelError, path+".name", fmt.Sprintf("%q is there twice", r.Name), "give them different names")
		}
		seen[r.Name] = true
		pods += int64(count(r.Replicas, 1)) * r.pods()
	}
	isPod := func(host string) bool {
		for _, r := range o.Spec.ReplicatedJobs {
			rest, ok := strings.CutPrefix(host, o.Name+"-"+r.Name+"-")
			var job, pod int64
			if n, err := fmt.Sscanf(rest, "%d-%d", &job, &pod); ok && n == 2 && err == nil &&
				rest == fmt.Sprintf("%d-%d.%s", job, pod, domain) && 0 <= job && job < int64(count(r.Replicas, 1)) && 0 <= pod && pod < r.pods() {
				return true
			}
		}
		return false
	}
	for i, r := range o.Spec.ReplicatedJobs {
		s.torchrun(r.Template.Spec.Template.Spec, fmt.Sprintf("spec.replicatedJobs[%d].template.spec.template.spec", i), isPod, pods, dns)
	}
}

// torchrun compares the torchrun variables of a pod's containers with the set.
func (s *places) torchrun(p corev1.PodSpec, at string, isPod func(string) bool, pods int64, dns bool) {
	for i, c := range p.Containers {
		for k, v := range c.Env {
			path := fmt.Sprintf("%s.containers[%d].env[%d].value", at, i, k)
			switch {
			case v.Name == "MASTER_ADDR" && v.Value != "" && !dns:
				s.report(LevelError, path, "the set has no names for its pods: enableDNSHostnames is false", "remove that")
			case v.Name == "MASTER_ADDR" && v.Value != "" && !isPod(v.Value):
				s.report(LevelError, path, fmt.Sprintf("no pod of the set is called %s", v.Value), "write SET-REPLICATEDJOB-JOB-POD.SET, as in a-node-0-0.a")
			case v.Name == "WORLD_SIZE" && v.Value != "":
				gpus := max(amount(c, gpuResource), 1)
				each := gpus // one rank per GPU
				if certifies(c.Command) || certifies(c.Args) {
					each = 1
				}
				if n, err := strconv.ParseInt(v.Value, 10, 64); err != nil || n != pods*each {
					s.report(LevelError, path, fmt.Sprintf("it is %s, but %d pods of %d processes are %d", v.Value, pods, each, pods*each), "write that number, or other completions")
				}
			}
		}
	}
}

// pods returns the number of pods of each of the Jobs.
func (r ReplicatedJob) pods() int64 {
	return int64(count(r.Template.Spec.Completions, count(r.Template.Spec.Parallelism, 1)))
}

// count returns *n, or otherwise if n is nil.
func count(n *int32, otherwise int32) int32 {
	if n == nil {
		return otherwise
	}
	return *n
}
