package apiservertest_test

import (
	"fmt"
	"os"
	"os/exec"
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

// everything turns on what the chart leaves out by default.
var everything = []string{"--set", "monitoring.enabled=true,secret=keys,imagePullSecrets[0].name=pull,writers={alice}"}

// helm runs helm, and returns what it prints.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	if !apiservertest.Available() {
		t.Skip("needs helm: make test-chart")
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
	out := helm(t, "template", "assay", chart, "--namespace", "assay", "--kube-version", "1.36.3", "--set", "namespace=true")
	const head = "# Written by \"make test-chart\" with -args -update from the chart beside it.\n"
	golden.File(t, manifests, head+strings.TrimPrefix(out, "---\n"))
	helm(t, "lint", "--strict", chart)
	helm(t, "template", chart, "--kube-version", "1.32.0", "--set", "gate.enabled=false")
	if _, err := tryHelm(t, "template", chart, "--kube-version", "1.35.0"); err == nil || !strings.Contains(err.Error(), "set gate.enabled=false") {
		t.Errorf("on Kubernetes 1.35 the gate: %v", err)
	}
}

// TestChartInstalls: a real API server takes the manifests, as a dry run and for good, by apply
// and by helm, and keeps each field.
func TestChartInstalls(t *testing.T) {
	s := startServer(t)
	s.define(t, fileOf(t, operator, operatorSum, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"))
	text := helm(t, append([]string{"template", "assay", chart, "--namespace", "assay", "--kube-version", "1.36.3", "--set", "namespace=true"}, everything...)...)
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
	helm(t, append([]string{"upgrade", "assay", chart, "--set", "gate.enabled=false"}, access...)...)
	gate := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy"}}
	to, err := clean.resource(gate)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := to.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("without the gate there are %d mutating policies, %v", len(list.Items), err)
	}
	helm(t, append([]string{"uninstall", "assay"}, access...)...)
}
