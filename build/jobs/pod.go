package jobs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	gpuResource = "nvidia.com/gpu"
	nameLabel   = "app.kubernetes.io/name"
	jobLabel    = "app.kubernetes.io/instance"
	networksKey = "k8s.v1.cni.cncf.io/networks"
	claimName   = "compute-domain-channel"
	// shmPerGPU is our own estimate of NCCL's buffers for ranks of one node, with a
	// margin. It counts against the container's memory.
	shmPerGPU = 2 << 30
	keepFor   = 24 * 60 * 60 // seconds to keep a finished job, for its logs
)

func ptr[T any](v T) *T { return &v }

// labels mark all pods of the job.
func (j *job) labels() map[string]string {
	return map[string]string{nameLabel: "assay", jobLabel: j.Name}
}

func (j *job) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: j.Name, Namespace: j.Namespace, Labels: j.labels()}
}

// worker returns the pod that gets a node's GPUs.
func (j *job) worker() corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: j.labels()},
		Spec: corev1.PodSpec{
			Affinity:    j.affinity(),
			Tolerations: []corev1.Toleration{{Key: gpuResource, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
			Containers:  []corev1.Container{j.workerContainer()},
			Volumes: []corev1.Volume{{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
				Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(int64(j.GPUs)*shmPerGPU, resource.BinarySI),
			}}}},
		},
	}
	for i, d := range j.devices {
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: "device-" + strconv.Itoa(i), VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: d, Type: ptr(corev1.HostPathCharDev)},
		}})
	}
	if j.Claim != "" {
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: "output", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: j.Claim},
		}})
	}
	if j.networks != "" {
		t.Annotations = map[string]string{networksKey: strings.Join(strings.Fields(j.networks), ",")}
	}
	if j.computed {
		t.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: claimName, ResourceClaimTemplateName: ptr(j.channelTemplate())}}
	}
	if j.spread {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, MinDomains: ptr[int32](2), TopologyKey: j.domain, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: j.labels()},
		}}
	}
	return t
}

func (j *job) workerContainer() corev1.Container {
	c := corev1.Container{
		Name: "worker", Image: j.Image, Env: envVars(j.onMake), Resources: j.resources(),
		VolumeMounts: []corev1.VolumeMount{{Name: "shm", MountPath: "/dev/shm"}},
	}
	for i, d := range j.devices {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "device-" + strconv.Itoa(i), MountPath: d})
	}
	if j.Claim != "" {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "output", MountPath: j.output()})
	}
	if j.rdma { // memory for RDMA is pinned
		c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"IPC_LOCK"}}}
	}
	return c
}

// output is the mount path of the claim, "" without a claim.
func (j *job) output() string {
	if j.Claim == "" {
		return ""
	}
	return cmp.Or(j.OutputDir, "/var/lib/assay")
}

// resources requests a whole node's GPUs and adapters. Limits equal requests, except
// that CPUs have no limit: it would only throttle them.
func (j *job) resources() corev1.ResourceRequirements {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	both := func(name string, q resource.Quantity) {
		requests[corev1.ResourceName(name)], limits[corev1.ResourceName(name)] = q, q
	}
	both(gpuResource, *resource.NewQuantity(int64(j.GPUs), resource.DecimalSI))
	for _, r := range j.items {
		both(r.Name, resource.MustParse(r.Value))
	}
	if j.memory != "" {
		both(string(corev1.ResourceMemory), resource.MustParse(j.memory))
	}
	if j.cpus > 0 {
		requests[corev1.ResourceCPU] = *resource.NewQuantity(int64(j.cpus), resource.DecimalSI)
	}
	r := corev1.ResourceRequirements{Requests: requests, Limits: limits}
	if j.computed {
		r.Claims = []corev1.ResourceClaim{{Name: claimName}}
	}
	return r
}

// affinity keeps pods on the right nodes, and the nodes of a job close to each other.
func (j *job) affinity() *corev1.Affinity {
	a := &corev1.Affinity{}
	if j.selector != "" {
		key, values, _ := parseSelector(j.selector) // no error: refusals has checked options, tests check profiles
		a.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values},
			}}},
		}}
	}
	same := func(key string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: j.labels()}, TopologyKey: key}
	}
	switch {
	case j.Scheduler == Kubernetes: // one pod per node, even if the node has more GPUs than the pod requests
		if !j.DaemonSet {
			a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{same(corev1.LabelHostname)}}
		}
	case j.domain == "" || j.spread:
	case j.computed: // a compute domain cannot extend beyond one clique
		a.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{same(j.profile.Domain.Value)}}
	default:
		a.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 100, PodAffinityTerm: same(j.domain)},
		}}
	}
	if *a == (corev1.Affinity{}) {
		return nil
	}
	return a
}

func envVars(vars []Var) []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, v := range vars {
		// Kubernetes expands $(NAME) in values.
		out = append(out, corev1.EnvVar{Name: v.Name, Value: strings.ReplaceAll(v.Value, "$(", "$$(")})
	}
	return out
}

// escape keeps Kubernetes from expanding $(NAME) in a command.
func escape(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strings.ReplaceAll(w, "$(", "$$(")
	}
	return out
}

// document writes objects as one YAML file, with the reasons for variables at the top.
func (j *job) document(objects ...any) ([]byte, error) {
	s := &script{}
	for _, r := range j.remarks() {
		s.comment(r)
	}
	if j.certifies() {
		s.comment(j.inPods())
	}
	if j.Scheduler == MPIOperator {
		s.comment(j.rights())
	}
	for _, v := range append(j.onMake[:len(j.onMake):len(j.onMake)], j.vars...) {
		s.comment(v.Name + ": " + v.reason())
	}
	for i, o := range objects {
		if i > 0 {
			s.line("---")
		}
		text, err := marshal(o)
		if err != nil {
			return nil, fmt.Errorf("%T: %w", o, err)
		}
		s.b.Write(text)
	}
	return s.bytes(), nil
}

// rights says which Pod Security Standard the pods of an MPIJob keep to.
func (j *job) rights() string {
	if j.restricted() {
		return "It runs in namespaces under the Pod Security Standard restricted."
	}
	return "It runs as root, with IPC_LOCK where there are RDMA adapters, because they pin memory: the namespace needs the Pod Security Standard privileged."
}

// inPods says where a certification's results are on Kubernetes.
func (j *job) inPods() string {
	logs := "each pod's log: kubectl logs --prefix --tail=-1 -l " + jobLabel + "=" + j.Name
	if j.Scheduler == MPIOperator {
		logs = "the launcher's log: kubectl logs -l training.kubeflow.org/job-name=" + j.Name + ",training.kubeflow.org/job-role=launcher --tail=-1"
	}
	if j.Scheduler == JobSet && !j.apart() {
		logs = "the first pod's log: kubectl logs -l " + jobLabel + "=" + j.Name + "," + batchv1.JobCompletionIndexAnnotation + "=0 --tail=-1"
	}
	if j.Claim == "" {
		return "The report is in " + logs + ". Certificates as files go with the pods; --claim names a volume that keeps them."
	}
	return j.results("the volume of "+j.Claim) + " The report is also in " + logs + "."
}

// marshal returns an object as YAML, without fields that its types print although they
// are empty. Status and creation times are for the cluster to write.
func marshal(o any) ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	delete(m, "status")
	prune(m)
	return yaml.Marshal(m)
}

func prune(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if m, ok := x.(map[string]any); x == nil || ok && len(m) == 0 && (k == "resources" || k == "updateStrategy" || k == "metadata") {
				delete(v, k)
				continue
			}
			prune(x)
		}
	case []any:
		for _, x := range v {
			prune(x)
		}
	}
}
