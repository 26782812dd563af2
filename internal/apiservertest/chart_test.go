package apiservertest_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/assay-hpc/assay/internal/apiservertest"
	"github.com/assay-hpc/assay/internal/golden"
)

const (
	chart     = "../../examples/kubernetes/chart"
	manifests = "../../examples/kubernetes/assay.yaml"
)

// operator is the module that defines PrometheusRules, and its sum.
const operator, operatorSum = "github.com/prometheus-operator/prometheus-operator@v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="

// needed are the values that have no default.
var needed = []string{"--set", "image=ghcr.io/OWNER/assay:TAG,gpus=8"}

// everything turns on what the chart leaves out by default.
var everything = append(needed, "--set", "mode=enforce,rdma=rdma/ib,hardware=hgx-h200,ports=8,monitoring.enabled=true,secret=keys,imagePullSecrets[0].name=pull,writers={alice},priorityClassName=system-node-critical", "--set", "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key=gpu,affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator=Exists", "--set", "thresholds.node/shm.limit=64")

// rendered are the arguments by which helm prints the chart, without its hooks, which kubectl would
// run at once.
func rendered(more ...string) []string {
	return append([]string{"template", "assay", chart, "--namespace", "assay", "--kube-version", "1.36.3", "--no-hooks", "--set", "namespace=true"}, more...)
}

// helm runs helm, and returns what it prints.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	if !apiservertest.Available() {
		t.Skip("needs helm: make test ONLY=chart")
	}
	out, err := tryHelm(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryHelm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(apiservertest.Program("helm"), args...)
	dir := t.TempDir() // no settings of this machine's user
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+dir, "HELM_CACHE_HOME="+dir, "HELM_DATA_HOME="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

// TestChartCurrent: the plain manifests are what the chart renders.
func TestChartCurrent(t *testing.T) {
	out := helm(t, rendered(needed...)...)
	const head = "# Written by \"make test ONLY=chart\" with -args -update from the chart beside it.\n"
	golden.File(t, manifests, head+strings.TrimPrefix(out, "---\n"))
	for _, values := range [][]string{needed, everything} {
		helm(t, append([]string{"lint", "--strict", chart}, values...)...)
	}
	for _, mode := range []string{"observe", "certify"} {
		helm(t, append([]string{"template", chart, "--kube-version", "1.32.0", "--set", "mode=" + mode}, needed...)...)
	}
}

// TestChartValues: what is missing, misspelt or wrong in values is named before anything is
// installed.
func TestChartValues(t *testing.T) {
	for values, want := range map[string]string{
		"gpus=8":                                             "image must be set",
		"image=x":                                            "gpus must be set: how many GPUs each node has, 0 if none; on a node that is well, nvidia-smi -L | wc -l",
		"image=x,gpus=null":                                  "gpus must be set",
		"image=x,gpu=8":                                      "'gpu' not allowed",
		"image=x,gpus=8,gate.enable=false":                   "'enable' not allowed",
		"image=x,gpus=8,monitoring.on=1":                     "'on' not allowed",
		"image=x,gpus=-1":                                    "at '/gpus'",
		"image=x,gpus=all":                                   "at '/gpus'",
		"image=x,gpus=8,mode=enforced":                       "at '/mode'",
		"image=x,gpus=8,rdma=true":                           "at '/rdma'",
		"image=x,gpus=8,maxAge=7d":                           "at '/maxAge'",
		"image=x,gpus=8,maxWithdrawn=0":                      "at '/maxWithdrawn'",
		"image=x,gpus=8,thresholds.node/shm.limt=1":          "'limt' not allowed",
		"image=x,gpus=8,resources.limit.cpu=1":               "'limit' not allowed",
		"image=x,gpus=8,thresholds.node/smh.limit=1":         "invalid propertyName 'node/smh'",
		"image=x,gpus=8,mode=null":                           "missing property 'mode'", // else it is none of the three
		"image=x,gpus=8,every=null":                          "missing property 'every'",
		"image=x,gpus=8,writers=null":                        "missing property 'writers'",
		"image=x,gpus=8,gate.exemptNamespaces=null":          "missing property 'exemptNamespaces'",
		"image=x,gpus=8,monitoring=null":                     "missing property 'monitoring'",
		"image=https://x/y:z,gpus=8":                         "at '/image'",
		"image=x@sha256:12,gpus=8":                           "at '/image'",
		"image=x,gpus=10000000":                              "at '/gpus'",
		"image=x,gpus=8,suite=quik":                          "at '/suite'",
		"image=x,gpus=8,suite=image":                         "at '/suite'",
		"image=x,gpus=8,every=0s":                            "at '/every'",
		"image=x,gpus=8,limit=9999999999h":                   "at '/limit'",
		"image=x,gpus=8,maxWithdrawn=0%":                     "at '/maxWithdrawn'",
		"image=x,gpus=8,maxWithdrawn=101%":                   "at '/maxWithdrawn'",
		"image=x,gpus=8,maxWithdrawn=1.2.3%":                 "at '/maxWithdrawn'",
		"image=x,gpus=8,maxUnavailable=0":                    "at '/maxUnavailable'",
		"image=x,gpus=8,shm=16GB":                            "at '/shm'",
		"image=x,gpus=8,dir=/tmp/assay":                      "at '/dir'", // the pod has another
		"image=x,gpus=8,dir=/var/../etc":                     "at '/dir'",
		"image=x,gpus=8,secret=My_Keys":                      "at '/secret'",
		"image=x,gpus=8,rdma=nvidia.com/gpu":                 "at '/rdma'",
		"image=x,gpus=8,resources.limits.nvidia\\.com/gpu=8": "invalid propertyName 'nvidia.com/gpu'",
		"image=x,gpus=8,resources.limits.memory=32GB":        "at '/resources/limits/memory'",
		"image=x,gpus=8,mode=enforce,every=30m":              "gate.staleAfter is 1h, and every is 30m",
		"image=x,gpus=8,mode=enforce --kube-version 1.35.0":  "set mode=certify",
	} {
		if !apiservertest.Available() {
			t.Skip("needs helm: make test ONLY=chart")
		}
		args := append([]string{"template", chart, "--kube-version", "1.36.3", "--set"}, strings.Fields(values)...)
		if _, err := tryHelm(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", values, err, want)
		}
	}
	for _, values := range []string{
		"gpus=0", "gpus=8,maxWithdrawn=3", "gpus=8,maxWithdrawn=12.5%", "gpus=8,maxWithdrawn=0.5%", "gpus=8,maxUnavailable=1",
		"gpus=8,suite=/etc/assay/own.yaml", "gpus=8,shm=17179869184", "gpus=8,mode=enforce,every=30m,gate.staleAfter=1h30m",
		"gpus=8,image=registry.site.example:5000/a/b-c:v1@sha256:" + strings.Repeat("0", 64),
	} {
		helm(t, "template", chart, "--kube-version", "1.36.3", "--set", "image=x,"+values)
	}
	agent := helm(t, rendered(append(needed, "--show-only", "templates/daemonset.yaml")...)...)
	if !strings.Contains(agent, "- --observe\n") || !strings.Contains(agent, "- --gpus=8\n") {
		t.Errorf("by default the agent is to look only:\n%s", agent)
	}
	agent = helm(t, rendered(append(everything, "--show-only", "templates/daemonset.yaml")...)...)
	for _, want := range []string{"- --hardware=hgx-h200\n", "- --ports=8\n", "- --thresholds=/etc/assay-limits/thresholds.yaml\n", "- --suite=quick\n", "rdma/ib: \"1\"\n", "      node/shm:\n        limit: 64\n"} {
		if !strings.Contains(agent, want) {
			t.Errorf("there is no %q:\n%s", want, agent)
		}
	}
	if strings.Contains(agent, "--observe") {
		t.Error("with mode=enforce the agent looks only")
	}
}

// TestChartNotes: an installation says what is missing on nodes with RDMA, what comes next, and how
// the nodes get rid of what assay wrote.
func TestChartNotes(t *testing.T) {
	for _, tt := range []struct {
		values     string
		says, not  string
		uninstalls string
	}{
		{"image=x,gpus=8", "rdma is not set: the agents have no /dev/infiniband", "--set mode=enforce", "helm uninstall takes"},
		{"image=x,gpus=8", "--set mode=certify", "--set mode=enforce", "harness unmark --all"},
		{"image=x,gpus=8,rdma=rdma/ib,mode=certify", "--set mode=enforce", "rdma is not set", "delete leases"},
		{"image=x,gpus=8,unmark=false", "should have 8 GPUs", "helm uninstall takes", "stay on the nodes until somebody runs"},
	} {
		_, notes, _ := strings.Cut(helm(t, "install", "assay", chart, "--dry-run=client", "--set", tt.values), "NOTES:")
		if !strings.Contains(notes, tt.says) || strings.Contains(notes, tt.not) || !strings.Contains(notes, tt.uninstalls) {
			t.Errorf("%s: want %q and %q, and no %q:\n%s", tt.values, tt.says, tt.uninstalls, tt.not, notes)
		}
	}
}

// TestChartInstalls: a real API server takes the manifests, as a dry run and for good, by apply
// and by helm, and keeps each field.
func TestChartInstalls(t *testing.T) {
	s := startServer(t)
	s.define(t, fileOf(t, operator, operatorSum, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"))
	text := helm(t, rendered(everything...)...)
	kinds := map[string]int{}
	for _, o := range documents(t, []byte(text)) {
		to, err := s.resource(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, dry := range [][]string{{metav1.DryRunAll}, nil} {
			kept, err := to.Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", DryRun: dry})
			if err != nil {
				t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				break
			}
			for _, err := range lost("", o.Object, kept.Object) {
				t.Errorf("%s %s%v", o.GetKind(), o.GetName(), err)
			}
		}
		kinds[o.GetKind()]++
	}
	t.Logf("applied: %v", kinds)
	for _, kind := range []string{"DaemonSet", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "PrometheusRule", "ConfigMap"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s was applied", kind)
		}
	}

	clean := startServer(t)
	clean.define(t, fileOf(t, operator, operatorSum, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"))
	access := []string{"--namespace", "assay", "--kubeconfig", apiservertest.Kubeconfig(t, clean.config, apiservertest.Admin)}
	install := append([]string{"install", "assay", chart, "--create-namespace"}, append(access, everything...)...)
	helm(t, append(install, "--dry-run=server")...)
	helm(t, install...)
	helm(t, slices.Concat([]string{"upgrade", "assay", chart, "--set", "mode=certify"}, needed, access)...)
	gate := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy"}}
	to, err := clean.resource(gate)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := to.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("without the gate there are %d mutating policies, %v", len(list.Items), err)
	}
	helm(t, append([]string{"uninstall", "assay", "--no-hooks"}, access...)...) // no controller runs the Job
}
