package kubernetes

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/assay-hpc/assay/internal/apiservertest"
)

// startReal starts a real API server, and gives the users their rights by the
// rules of examples/kubernetes.
func startReal(t *testing.T) *rest.Config {
	t.Helper()
	config := apiservertest.Start(t, harness, nobody, reader)
	grant(t, config)
	return config
}

// grant gives the users their roles: the harness the one that the examples
// have.
func grant(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := dynamic.NewForConfig(apiservertest.As(config, admin))
	if err != nil {
		t.Fatal(err)
	}
	var role *rbacv1.ClusterRole
	for _, object := range manifest(t, "assay.yaml") {
		if r, ok := object.(*rbacv1.ClusterRole); ok {
			role = r
		}
	}
	role.Name = harness
	get := &rbacv1.ClusterRole{
		TypeMeta: role.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: reader},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}},
	}
	for _, r := range []*rbacv1.ClusterRole{role, get} {
		binding := &rbacv1.ClusterRoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: role.APIVersion, Kind: "ClusterRoleBinding"}, ObjectMeta: metav1.ObjectMeta{Name: r.Name},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: r.Name}}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.Name},
		}
		create(t, client, "clusterroles", r)
		create(t, client, "clusterrolebindings", binding)
	}
}

func create(t *testing.T, client dynamic.Interface, resource string, v any) {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v)
	if err == nil {
		gvr := schema.GroupVersionResource{Group: rbacv1.GroupName, Version: "v1", Resource: resource}
		_, err = client.Resource(gvr).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
