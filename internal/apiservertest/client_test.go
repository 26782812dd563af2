package apiservertest_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/assay-hpc/assay/internal/apiservertest"
)

// A server is a real API server with the definitions that our jobs need.
type server struct {
	config *rest.Config // without a user
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func startServer(t *testing.T, users ...string) *server {
	t.Helper()
	if !apiservertest.Available() {
		t.Skip("needs a real API server: make test ONLY=kubernetes")
	}
	all := apiservertest.Start(t, users...)
	all.QPS, all.Burst = -1, -1 // nobody else asks
	all.WarningHandler = rest.NoWarnings{}
	config := apiservertest.As(all, apiservertest.Admin)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &server{all, client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))}
}

// documents are the objects of a file.
func documents(t *testing.T, text []byte) (out []*unstructured.Unstructured) {
	t.Helper()
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		o := new(unstructured.Unstructured)
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err == nil {
			err = o.UnmarshalJSON(raw)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		out = append(out, o)
	}
	return out
}

// post makes an object, or with options that say so only goes through all that
// making it would take: admission, defaults, validation.
func (s *server) post(t *testing.T, o *unstructured.Unstructured, options metav1.CreateOptions) (*unstructured.Unstructured, error) {
	t.Helper()
	options.FieldValidation = metav1.FieldValidationStrict
	to, err := s.resource(o)
	if err != nil {
		return nil, err
	}
	return to.Create(t.Context(), o, options)
}

// resource is where objects of its kind and namespace are.
func (s *server) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	m, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() != "namespace" {
		return s.client.Resource(m.Resource), nil
	}
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return s.client.Resource(m.Resource).Namespace(namespace), nil
}

// dryRun says why the server refuses an object, or what of it the server would
// not keep as it is.
func (s *server) dryRun(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	kept, err := s.post(t, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	return errors.Join(lost("", o.Object, kept.Object)...)
}

// lost compares what was sent with what the server answers. The server fills in
// what was left open, and lengthens lists.
func lost(path string, sent, kept any) (out []error) {
	switch sent := sent.(type) {
	case map[string]any:
		m, _ := kept.(map[string]any)
		for k, v := range sent {
			out = append(out, lost(path+"."+k, v, m[k])...)
		}
	case []any:
		l, _ := kept.([]any)
		if len(l) < len(sent) {
			return []error{fmt.Errorf("%s: of %d entries the server keeps %d", path, len(sent), len(l))}
		}
		for i, v := range sent {
			out = append(out, lost(fmt.Sprintf("%s[%d]", path, i), v, l[i])...)
		}
	default:
		if !reflect.DeepEqual(sent, kept) {
			out = append(out, fmt.Errorf("%s: the server makes %v of %v", path, kept, sent))
		}
	}
	return out
}

// install makes an object for good.
func (s *server) install(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if _, err := s.post(t, o, metav1.CreateOptions{}); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// define installs a CustomResourceDefinition and waits until it is served.
func (s *server) define(t *testing.T, text []byte) {
	t.Helper()
	for _, o := range documents(t, text) {
		s.install(t, o)
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		for end := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			s.mapper.Reset()
			m, err := s.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
			if err == nil {
				_, err = s.client.Resource(m.Resource).List(t.Context(), metav1.ListOptions{})
			}
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s is defined but not served: %v", kind, err)
			}
		}
	}
}
