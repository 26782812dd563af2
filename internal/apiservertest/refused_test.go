package apiservertest_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/assay-hpc/assay/build/jobs"
)

// TestRefused: what is wrong in a manifest the server does refuse, and what it
// does not keep is noticed, so that what it accepts means something.
func TestRefused(t *testing.T) {
	s := startCluster(t)
	good := map[string]*unstructured.Unstructured{}
	for _, o := range []jobs.Options{
		{Profile: "gb200-nvl72", Scheduler: jobs.MPIOperator, Variants: []string{"dra"}},
		{Profile: "h100-8x", Scheduler: jobs.JobSet},
		{Profile: "h100-8x", Scheduler: jobs.Kubernetes},
		{Profile: "h100-8x", Scheduler: jobs.Kubernetes, DaemonSet: true, Selector: "kind=gpu"},
	} {
		o.Image = image
		text, err := jobs.Render(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents(t, text) {
			for _, o := range withPods(t, d) {
				if err := s.dryRun(t, o); err != nil {
					t.Fatalf("%s as it is: %v", o.GetKind(), err)
				}
				good[o.GetKind()] = o // of the pods, the worker
			}
		}
	}
	const pod = "spec.template.spec"
	const worker = "spec.mpiReplicaSpecs.Worker.template.spec"
	count := 0
	for _, tt := range []struct {
		kind, field string
		value       any // nil: taken away
		want        string
	}{
		{"MPIJob", "metadata.name", nil, "name or generateName is required"},
		{"MPIJob", "metadata.name", "Capital", "RFC 1123"},
		{"MPIJob", "spec.colour", "red", `unknown field "spec.colour"`},
		{"MPIJob", "spec.slotsPerWorker", "eight", "spec.slotsPerWorker in body must be of type integer"},
		{"MPIJob", "spec.mpiImplementation", "LAM", `supported values: "OpenMPI", "Intel", "MPICH"`},
		{"MPIJob", "spec.mpiReplicaSpecs", nil, "spec.mpiReplicaSpecs: Required value"},
		{"MPIJob", worker + ".colour", "red", `unknown field "` + worker + `.colour"`},
		{"MPIJob", worker + ".containers", "one", worker + ".containers in body must be of type array"},
		{"ComputeDomain", "metadata.name", nil, "name or generateName is required"},
		{"ComputeDomain", "spec.numNodes", "two", "spec.numNodes in body must be of type integer"},
		{"ComputeDomain", "spec.channel", nil, "spec.channel: Required value"},
		{"JobSet", "metadata.name", nil, "name or generateName is required"},
		{"JobSet", "spec.colour", "red", `unknown field "spec.colour"`},
		{"JobSet", "spec.replicatedJobs", "one", "spec.replicatedJobs in body must be of type array"},
		{"Pod", "metadata.name", nil, "name or generateName is required"},
		{"Pod", "status", map[string]any{"phase": "Running"}, "status.phase: the server makes Pending of Running"},
		{"Pod", "spec.colour", "red", `unknown field "spec.colour"`},
		{"Pod", "spec.hostNetwork", "yes", "hostNetwork of type bool"},
		{"Pod", "spec.volumes", nil, "volumeMounts[0].name: Not found"},
		{"Pod", "spec.resourceClaims", nil, "resources.claims"},
		{"Job", "metadata.name", nil, "name or generateName is required"},
		{"Job", "spec.colour", "red", `unknown field "spec.colour"`},
		{"Job", "spec.completions", "8", "completions of type int32"},
		{"Job", pod + ".restartPolicy", "Always", `valid values: "OnFailure", "Never"`},
		{"Job", pod + ".volumes", nil, "volumeMounts[0].name: Not found"},
		{"Job", "spec.completionMode", nil, "backoffLimitPerIndex"},
		{"DaemonSet", "metadata.name", nil, "name or generateName is required"},
		{"DaemonSet", "spec.colour", "red", `unknown field "spec.colour"`},
		{"DaemonSet", "spec.template", "none", "template of type"},
		{"DaemonSet", "spec.selector", map[string]any{"matchLabels": map[string]any{"a": "b"}}, "does not match"},
	} {
		o := good[tt.kind].DeepCopy()
		path := strings.Split(tt.field, ".")
		if tt.value == nil {
			if _, there, err := unstructured.NestedFieldNoCopy(o.Object, path...); !there || err != nil {
				t.Fatalf("a %s has no %s: %v", tt.kind, tt.field, err)
			}
			unstructured.RemoveNestedField(o.Object, path...)
		} else if err := unstructured.SetNestedField(o.Object, tt.value, path...); err != nil {
			t.Fatal(err)
		}
		err := s.dryRun(t, o)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %s %v: %v; want %q", tt.kind, tt.field, tt.value, err, tt.want)
			continue
		}
		count++
	}
	t.Logf("%d broken objects were refused", count)
}
