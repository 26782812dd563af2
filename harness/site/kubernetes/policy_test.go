package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/assay-hpc/assay/internal/apiservertest"
	"github.com/assay-hpc/assay/internal/result"
)

// install makes the objects of an example that are wanted on the API server, which refuses
// fields that it does not know.
func (s *apiServer) install(t *testing.T, file string, wanted func(name string) bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, file))
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		object := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil {
			t.Fatal(err)
		}
		if !wanted(object.GetName()) {
			continue
		}
		gvk := object.GroupVersionKind()
		plural := strings.ToLower(gvk.Kind) + "s"
		if strings.HasSuffix(gvk.Kind, "Policy") {
			plural = strings.TrimSuffix(strings.ToLower(gvk.Kind), "y") + "ies"
		}
		to := dynamic.ResourceInterface(s.admin.Resource(gvk.GroupVersion().WithResource(plural)))
		if object.GetNamespace() != "" {
			to = s.admin.Resource(gvk.GroupVersion().WithResource(plural)).Namespace(object.GetNamespace())
		}
		if _, err := to.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: "Strict"}); err != nil {
			t.Errorf("%s: %s: %v", file, gvk.Kind, err)
		}
	}
}

// podToken returns what a certifying pod on a node has to show who it is.
func (s *apiServer) podToken(t *testing.T, node string) string {
	t.Helper()
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "on-" + node},
		"spec": map[string]any{"nodeName": node, "serviceAccountName": "certify", "containers": []any{map[string]any{"name": "x", "image": "x"}}},
	}}
	core := schema.GroupVersion{Version: "v1"}
	made, err := s.admin.Resource(core.WithResource("pods")).Namespace("assay").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": "certify"},
		"spec": map[string]any{"boundObjectRef": map[string]any{"apiVersion": "v1", "kind": "Pod", "name": made.GetName(), "uid": string(made.GetUID())}},
	}}
	answer, err := s.admin.Resource(core.WithResource("serviceaccounts")).Namespace("assay").Create(t.Context(), request, metav1.CreateOptions{}, "token")
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := unstructured.NestedString(answer.Object, "status", "token")
	if err != nil || token == "" {
		t.Fatalf("no token: %v", err)
	}
	return token
}

// TestExamples: a real API server takes the examples, and with them a pod may
// write onto its own node and no other.
func TestExamples(t *testing.T) {
	if !apiservertest.Available() {
		t.Skip("needs a real API server: make test ONLY=kubernetes")
	}
	s := startServer(t)
	const policy = "assay-nodes"
	s.install(t, "assay.yaml", func(name string) bool { return name != policy })
	s.install(t, "job.yaml", func(string) bool { return true })
	s.newNode(t, "gpu-1")
	s.newNode(t, "gpu-2")
	c := open(t, s.as(s.podToken(t, "gpu-1")), time.Now())
	act := func(node string) error {
		_, err := c.Act(t.Context(), statement(result.Fail), Options{Node: node, Taint: "NoSchedule"})
		return err
	}
	if err := act("gpu-2"); err != nil {
		t.Fatalf("without the policy a pod may mark other nodes: %v", err)
	}
	s.install(t, "assay.yaml", func(name string) bool { return name == policy })
	const want = "a certifying pod may change its own node alone"
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(300 * time.Millisecond) { // it takes effect by and by
		err := act("gpu-2")
		if err != nil && strings.Contains(err.Error(), want) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("with the policy: %v; want %q", err, want)
		}
	}
	if err := act("gpu-1"); err != nil {
		t.Errorf("its own node: %v", err)
	}
}
