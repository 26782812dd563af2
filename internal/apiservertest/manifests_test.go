package apiservertest_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/assay-hpc/assay/build/jobs"
)

const image = "registry.example/assay:13.0"

// computeDomains defines what NVIDIA's DRA driver calls a ComputeDomain, with
// what its version v1beta1 asks of a spec. The driver's own definition is in no
// module that go.mod could pin.
const computeDomains = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: computedomains.resource.nvidia.com}
spec:
  group: resource.nvidia.com
  scope: Namespaced
  names: {kind: ComputeDomain, listKind: ComputeDomainList, plural: computedomains, singular: computedomain}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [channel, numNodes]
            properties:
              numNodes: {type: integer}
              channel:
                type: object
                required: [resourceClaimTemplate]
                properties:
                  allocationMode: {type: string, enum: [All, Single], default: Single}
                  resourceClaimTemplate: {type: object, required: [name], properties: {name: {type: string}}}
`

// jobSets is the module that defines JobSets, and its sum: go.mod does not pin it,
// since nothing is compiled from it.
const jobSets, jobSetsSum = "sigs.k8s.io/jobset@v0.11.1", "h1:WgLEBnXTeX+4MxfVkIbfm4jIVgjvIY6Jfaei2okxKNk="

// jobSetCRD is the definition in that module.
func jobSetCRD(t *testing.T) []byte {
	t.Helper()
	return fileOf(t, jobSets, jobSetsSum, "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml")
}

// fileOf is a file of a module.
func fileOf(t *testing.T, name, sum, file string) []byte {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", name)
	cmd.Dir = t.TempDir() // no module's own go.mod is changed
	out, err := cmd.Output()
	var module struct{ Dir, Sum, Error string }
	if err := errors.Join(err, json.Unmarshal(out, &module)); err != nil {
		t.Fatalf("go mod download %s: %v %s", name, err, module.Error)
	}
	if module.Sum != sum {
		t.Fatalf("%s has the sum %s; want %s", name, module.Sum, sum)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// startCluster is a server that knows MPIJobs, as the operator's pinned module
// defines them, JobSets and ComputeDomains.
func startCluster(t *testing.T) *server {
	t.Helper()
	s := startServer(t)
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/mpi-operator").Output()
	if err != nil {
		t.Fatal(err)
	}
	crd, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "manifests", "base", "kubeflow.org_mpijobs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.define(t, crd)
	s.define(t, jobSetCRD(t))
	s.define(t, []byte(computeDomains))
	// No controller gives the namespace what pods run as.
	s.install(t, documents(t, []byte("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: default}\n"))[0])
	return s
}

// withPods adds to an object the pods, or Jobs, that its controller makes of it, if
// the server knows the object by a schema alone: it looks at those more closely.
func withPods(t *testing.T, o *unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	out := []*unstructured.Unstructured{o}
	switch o.GetKind() {
	case "JobSet":
		list, _, err := unstructured.NestedSlice(o.Object, "spec", "replicatedJobs")
		if err != nil || len(list) == 0 {
			t.Fatalf("%s has no replicatedJobs: %v", o.GetName(), err)
		}
		for _, r := range list {
			job := &unstructured.Unstructured{Object: r.(map[string]any)["template"].(map[string]any)}
			job.SetAPIVersion("batch/v1")
			job.SetKind("Job")
			job.SetName(o.GetName() + "-job")
			out = append(out, job)
		}
		return out
	case "MPIJob":
	default:
		return out
	}
	for _, role := range []string{"Launcher", "Worker"} {
		template, found, err := unstructured.NestedMap(o.Object, "spec", "mpiReplicaSpecs", role, "template")
		if err != nil || !found {
			t.Fatalf("%s has no %s: %v", o.GetName(), role, err)
		}
		pod := &unstructured.Unstructured{Object: template}
		pod.SetAPIVersion("v1")
		pod.SetKind("Pod")
		pod.SetName(o.GetName() + "-" + strings.ToLower(role))
		if err := unstructured.SetNestedField(pod.Object, "Never", "spec", "restartPolicy"); err != nil { // as the operator does
			t.Fatal(err)
		}
		out = append(out, pod)
	}
	return out
}

// subsets are all sets of variants.
func subsets() (out [][]string) {
	for bits := range 1 << len(jobs.VariantNames) {
		var set []string
		for i, v := range jobs.VariantNames {
			if bits>>i&1 == 1 {
				set = append(set, v)
			}
		}
		out = append(out, set)
	}
	return out
}

// ways are what a manifest can differ in besides its profile and variants.
var ways = []struct {
	name, only string // only for this scheduler
	options    jobs.Options
}{
	{name: "--run certify"},
	{name: "--run nccl-tests --no-exec", options: jobs.Options{Run: jobs.RunNCCL, NoExec: true}},
	{name: "--run coll", options: jobs.Options{Run: jobs.RunColl}},
	{name: "--claim results", options: jobs.Options{Claim: "results", OutputDir: "/results"}},
	{name: "--namespace default --env A=1 --selector kind=gpu", options: jobs.Options{Namespace: "default", Env: []jobs.Var{{Name: "A", Value: "1"}}, Selector: "kind=gpu"}},
	{name: "--daemonset --selector kind=gpu", only: jobs.Kubernetes, options: jobs.Options{DaemonSet: true, Selector: "kind=gpu"}},
}

// combinations are all of profiles, sites, schedulers, variants and ways, under
// the names by which a test tells of them. Most of them are refused.
func combinations(t *testing.T) map[string]jobs.Options {
	t.Helper()
	doc, err := jobs.Load()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]jobs.Options{}
	for _, p := range doc.Profiles {
		for _, site := range append(slices.Collect(maps.Keys(p.Sites)), "none") {
			for _, variants := range subsets() {
				for _, scheduler := range []string{jobs.MPIOperator, jobs.JobSet, jobs.Kubernetes} {
					for _, way := range ways {
						if way.only != "" && way.only != scheduler {
							continue
						}
						o := way.options
						o.Profile, o.Site, o.Variants, o.Scheduler, o.Image = p.ID, site, variants, scheduler, image
						words := []string{p.ID, "--site", site, "--scheduler", scheduler, way.name}
						for _, v := range variants {
							words = append(words, "--"+v)
						}
						out[strings.Join(words, " ")] = o
					}
				}
			}
		}
	}
	return out
}

// TestRendered: a real API server takes every manifest that "assay jobs render"
// makes, and the pods of its jobs, and keeps all that is in them.
func TestRendered(t *testing.T) {
	s := startCluster(t)
	rendered, refused := map[string]int{}, 0
	accepted := map[string]int{}
	all := combinations(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text, err := jobs.Render(all[name])
		var no *jobs.Refusal
		if errors.As(err, &no) {
			refused++
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rendered[all[name].Scheduler]++
		for _, d := range documents(t, text) {
			for _, o := range withPods(t, d) {
				if err := s.dryRun(t, o); err != nil {
					t.Errorf("%s: %s %s: %v", name, o.GetKind(), o.GetName(), err)
					continue
				}
				accepted[o.GetKind()]++
			}
		}
	}
	t.Logf("manifests: %v; combinations that assay refuses: %d; objects that the server accepts: %v", rendered, refused, accepted)
	for _, kind := range []string{"MPIJob", "JobSet", "Pod", "Job", "DaemonSet", "ComputeDomain"} {
		if accepted[kind] == 0 {
			t.Errorf("no %s was accepted", kind)
		}
	}
}

// manifestFiles are the manifests under examples, that of the namespace first.
func manifestFiles(t *testing.T) []string {
	t.Helper()
	files := []string{manifests}
	for _, pattern := range []string{"kubernetes/*.yaml", "jobs/*.yaml"} {
		list, err := filepath.Glob(filepath.Join("../../examples", pattern))
		if err != nil || len(list) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(list), err)
		}
		for _, file := range list {
			if file != manifests {
				files = append(files, file)
			}
		}
	}
	return files
}

// TestFiles: the same for the files under examples.
func TestFiles(t *testing.T) {
	s := startCluster(t)
	files := manifestFiles(t)
	accepted := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents(t, text) {
			for _, o := range withPods(t, d) {
				if err := s.dryRun(t, o); err != nil {
					t.Errorf("%s: %s %s: %v", file, o.GetKind(), o.GetName(), err)
					continue
				}
				accepted[o.GetKind()]++
				if o.GetKind() == "Namespace" || o.GetKind() == "ServiceAccount" {
					s.install(t, o)
				}
			}
		}
	}
	t.Logf("%d files; objects that the server accepted: %v", len(files), accepted)
}
