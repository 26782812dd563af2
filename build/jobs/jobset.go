package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Set is a JobSet, jobset.x-k8s.io/v1alpha2, with the fields that are rendered or checked.
type Set struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              setSpec `json:"spec"`
}

// setSpec is the desired state of a Set.
type setSpec struct {
	ReplicatedJobs          []replicatedJob `json:"replicatedJobs,omitempty"`
	Network                 *setNetwork     `json:"network,omitempty"`
	FailurePolicy           *failurePolicy  `json:"failurePolicy,omitempty"`
	TTLSecondsAfterFinished *int32          `json:"ttlSecondsAfterFinished,omitempty"`
}

// A replicatedJob is one or more Jobs of one template.
type replicatedJob struct {
	Name     string                  `json:"name"`
	Template batchv1.JobTemplateSpec `json:"template"`
	Replicas *int32                  `json:"replicas,omitempty"`
}

// setNetwork configures how pods find one another.
type setNetwork struct {
	EnableDNSHostnames       *bool  `json:"enableDNSHostnames,omitempty"`
	Subdomain                string `json:"subdomain,omitempty"`
	PublishNotReadyAddresses *bool  `json:"publishNotReadyAddresses,omitempty"`
}

// failurePolicy says what happens when a Job fails.
type failurePolicy struct {
	MaxRestarts int32 `json:"maxRestarts"`
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
		Spec: setSpec{
			// A pod's name resolves only when the pod is ready: by then all of it has started.
			Network:                 &setNetwork{EnableDNSHostnames: ptr(true), PublishNotReadyAddresses: ptr(false)},
			FailurePolicy:           &failurePolicy{}, // no restart: a failed measurement is a result
			TTLSecondsAfterFinished: ptr[int32](keepFor),
			ReplicatedJobs: []replicatedJob{{
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

// jobSet checks that a JobSet's numbers and names agree with each other, and returns the
// layouts of its pods.
func (s *places) jobSet(o *Set) func(path string) layout {
	all, dns, domain := int64(0), true, o.Name
	if n := o.Spec.Network; n != nil {
		dns = n.EnableDNSHostnames == nil || *n.EnableDNSHostnames
		domain = cmp.Or(n.Subdomain, domain)
	}
	for _, r := range o.Spec.ReplicatedJobs {
		all += r.all()
	}
	nodes := map[string]int{}
	for i, r := range o.Spec.ReplicatedJobs {
		at := fmt.Sprintf("spec.replicatedJobs[%d].template.spec.template.spec", i)
		if len(o.Spec.ReplicatedJobs) == 1 { // of several, the launcher may count some or all
			nodes[at] = int(all)
		}
		for k, c := range r.Template.Spec.Template.Spec.Containers {
			for m, v := range c.Env {
				path := fmt.Sprintf("%s.containers[%d].env[%d].value", at, k, m)
				switch {
				case v.Value == "" || strings.Contains(v.Value, "$("):
				case v.Name == "MASTER_ADDR":
					s.master(o, v.Value, domain, dns, path)
				case v.Name == "WORLD_SIZE":
					s.worldSize(v.Value, c, []int64{r.pods(), r.all(), all}, path)
				}
			}
		}
	}
	return func(path string) layout { return layout{nodes: nodes[path]} }
}

// master checks that an address is of one of the set's pods, if it looks like one.
func (s *places) master(o *Set, host, domain string, dns bool, path string) {
	pod, rest, _ := strings.Cut(host, ".")
	within, _, _ := strings.Cut(rest, ".")
	ours := within == domain
	for _, r := range o.Spec.ReplicatedJobs {
		index, ok := strings.CutPrefix(pod, o.Name+"-"+r.Name+"-")
		ours = ours || ok
		var job, n int64
		if _, err := fmt.Sscanf(index, "%d-%d", &job, &n); err == nil && ok && within == domain && index == fmt.Sprintf("%d-%d", job, n) &&
			0 <= job && job < int64(count(r.Replicas, 1)) && 0 <= n && n < r.pods() {
			if !dns {
				s.report(LevelError, path, "the set has no names for its pods: enableDNSHostnames is false", "remove that")
			}
			return
		}
	}
	if ours && o.Name != "" {
		s.report(LevelError, path, fmt.Sprintf("no pod of the set is called %s", host), "write SET-REPLICATEDJOB-JOB-POD.SET, as in a-node-0-0.a")
	}
}

// worldSize checks a number of processes against the pods that may be meant.
func (s *places) worldSize(value string, c corev1.Container, pods []int64, path string) {
	each := int64(max(gpus(c), 1))
	n, err := strconv.ParseInt(value, 10, 64)
	level, known := LevelWarning, false
	for _, l := range containerShell(slices.Concat(c.Command, c.Args), nil).launches() {
		if l.inner == certify {
			each, known = 1, true
		}
		known = known || l.inner == benchmark && l.outer == ""
	}
	if known {
		level = LevelError
	}
	for _, p := range pods {
		if err == nil && (n == p*each || n == p && !known) {
			return
		}
	}
	last := pods[len(pods)-1]
	s.report(level, path, fmt.Sprintf("it is %s, but %d pods of %d processes are %d", value, last, each, last*each), "write that number, or other completions")
}

// all returns the number of pods of all of its Jobs.
func (r replicatedJob) all() int64 { return int64(count(r.Replicas, 1)) * r.pods() }

// pods returns the number of pods of each of the Jobs.
func (r replicatedJob) pods() int64 {
	return int64(count(r.Template.Spec.Completions, count(r.Template.Spec.Parallelism, 1)))
}

// count returns *n, or otherwise if n is nil.
func count(n *int32, otherwise int32) int32 {
	if n == nil {
		return otherwise
	}
	return *n
}
