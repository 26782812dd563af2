package kubernetes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const examples = "../../../examples/kubernetes"

// kinds are what the examples are made of.
var kinds = map[string]func() any{
	"v1 Namespace":      func() any { return new(corev1.Namespace) },
	"v1 ServiceAccount": func() any { return new(corev1.ServiceAccount) },
	"rbac.authorization.k8s.io/v1 ClusterRole":        func() any { return new(rbacv1.ClusterRole) },
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding": func() any { return new(rbacv1.ClusterRoleBinding) },
	"rbac.authorization.k8s.io/v1 Role":               func() any { return new(rbacv1.Role) },
	"rbac.authorization.k8s.io/v1 RoleBinding":        func() any { return new(rbacv1.RoleBinding) },
	"batch/v1 Job":      func() any { return new(batchv1.Job) },
	"apps/v1 DaemonSet": func() any { return new(appsv1.DaemonSet) },
	"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy":        func() any { return new(admissionv1.ValidatingAdmissionPolicy) },
	"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding": func() any { return new(admissionv1.ValidatingAdmissionPolicyBinding) },
	"admissionregistration.k8s.io/v1 MutatingAdmissionPolicy":          func() any { return new(admissionv1.MutatingAdmissionPolicy) },
	"admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding":   func() any { return new(admissionv1.MutatingAdmissionPolicyBinding) },
}

// manifest reads an example strictly: a field that its type lacks is an error.
func manifest(t *testing.T, name string) (objects []any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, name))
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		empty := kinds[kind.APIVersion+" "+kind.Kind]
		if empty == nil {
			t.Fatalf("%s: %q %q is none of the kinds that are looked at", name, kind.APIVersion, kind.Kind)
		}
		object := empty()
		if err := yaml.UnmarshalStrict([]byte(doc), object); err != nil {
			t.Fatalf("%s: %s: %v", name, kind.Kind, err)
		}
		objects = append(objects, object)
	}
	return objects
}

// TestManifests: the examples are of their types, and what they say fits
// together and what the harness needs.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	pods := map[string]corev1.PodTemplateSpec{}
	var account, namespace string
	var rules []right
	for _, f := range files {
		for _, object := range manifest(t, filepath.Base(f)) {
			switch o := object.(type) {
			case *corev1.ServiceAccount:
				account, namespace = o.Name, o.Namespace
			case *rbacv1.ClusterRole:
				rules = append(rules, grants(o.Rules)...)
			case *rbacv1.Role:
				rules = append(rules, grants(o.Rules)...)
			case *batchv1.Job:
				pods["job"] = o.Spec.Template
			case *appsv1.DaemonSet:
				pods["daemonset"] = o.Spec.Template
				if o.Spec.Template.Labels["app"] != o.Spec.Selector.MatchLabels["app"] {
					t.Error("the DaemonSet does not select its own pods")
				}
			case *rbacv1.ClusterRoleBinding:
				if s := o.Subjects[0]; s.Name != "certify" || s.Namespace != "assay" || o.RoleRef.Name != "assay-certify" {
					t.Errorf("the binding is of %+v to %+v", s, o.RoleRef)
				}
			}
		}
	}
	// No more and no less than what the harness asks for.
	slices.SortFunc(rules, compare)
	if want := slices.SortedFunc(slices.Values(slices.Concat(rights, podRights, slotRights)), compare); !slices.Equal(rules, want) {
		t.Errorf("the role grants %v; want %v", rules, want)
	}
	if account != "certify" || namespace != "assay" || len(pods) != 2 {
		t.Fatalf("account %s/%s, %d kinds of pods", namespace, account, len(pods))
	}
	for name, p := range pods {
		c := p.Spec.Containers[0]
		tolerates := slices.ContainsFunc(p.Spec.Tolerations, func(x corev1.Toleration) bool { return x.Key == verdictKey && x.Operator == corev1.TolerationOpExists })
		named := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == "NODE_NAME" && e.ValueFrom != nil && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
		})
		if p.Spec.ServiceAccountName != account || !tolerates || !named {
			t.Errorf("%s: account %q, tolerates %v, names its node %v", name, p.Spec.ServiceAccountName, tolerates, named)
		}
		if s := c.SecurityContext; s.Privileged != nil || *s.AllowPrivilegeEscalation || p.Spec.HostPID || !slices.Equal(s.Capabilities.Add, []corev1.Capability{"IPC_LOCK"}) {
			t.Errorf("%s has more rights than it needs: %+v", name, s)
		}
	}
}

func compare(a, b right) int {
	return strings.Compare(a.resource+a.subresource+a.verb, b.resource+b.subresource+b.verb)
}

func grants(rules []rbacv1.PolicyRule) (out []right) {
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				name, sub, _ := strings.Cut(resource, "/")
				out = append(out, right{verb, rule.APIGroups[0], name, sub})
			}
		}
	}
	return out
}
