package kubernetes

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/assay-hpc/assay/internal/apiservertest"
)

// Users of the test's API servers: their tokens are their names.
const (
	admin   = apiservertest.Admin
	harness = "harness"
	nobody  = "nobody"
	reader  = "reader" // may get nodes
)

// An apiServer is what the tests talk to: a real one where
// ASSAY_KUBERNETES_BIN has kube-apiserver and etcd, else a small one that
// refuses what a real one refuses.
type apiServer struct {
	config *rest.Config // without a user
	admin  dynamic.Interface
}

// as is a client's configuration for a user.
func (s *apiServer) as(user string) *rest.Config {
	return apiservertest.As(s.config, user)
}

func startServer(t *testing.T) *apiServer {
	t.Helper()
	s := new(apiServer)
	if apiservertest.Available() {
		s.config = startReal(t)
	} else {
		small := httptest.NewTLSServer(&smallServer{t: t, nodes: map[string]*corev1.Node{}})
		t.Cleanup(small.Close)
		ca := filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: small.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		s.config = &rest.Config{Host: small.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: ca}}
	}
	var err error
	quick := s.as(admin)
	quick.QPS = -1
	if s.admin, err = dynamic.NewForConfig(quick); err != nil {
		t.Fatal(err)
	}
	return s
}

// newNode makes a node with what others wrote onto it.
func (s *apiServer) newNode(t *testing.T, name string) {
	t.Helper()
	n := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"owner": "x"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	if err == nil {
		_, err = s.admin.Resource(nodes).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	}
	if err == nil { // the condition of Ready is the status' own resource
		_, err = s.admin.Resource(nodes).Patch(t.Context(), name, strategicPatch, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`), metav1.PatchOptions{}, "status")
	}
	if err == nil { // an admission plugin of real servers gives new nodes a taint
		_, err = s.admin.Resource(nodes).Patch(t.Context(), name, mergePatch, []byte(`{"spec":{"taints":[{"key":"gpu","value":"yes","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *apiServer) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	object, err := s.admin.Resource(nodes).Get(t.Context(), name, metav1.GetOptions{})
	n := new(corev1.Node)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, n, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A smallServer has the four requests that the package makes, and those by
// which the tests make nodes.
type smallServer struct {
	t     *testing.T
	mu    sync.Mutex
	nodes map[string]*corev1.Node
	count int
}

var granted = map[string]func(verb, resource string) bool{
	admin:   func(string, string) bool { return true },
	harness: func(verb, resource string) bool { return verb == "get" && resource == "nodes" || verb == "patch" },
	reader:  func(verb, resource string) bool { return verb == "get" },
	nobody:  func(string, string) bool { return false },
}

func (s *smallServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	may := granted[user]
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if (r.Method != "GET" && err != nil) || may == nil {
		s.fail(w, 401, metav1.StatusReasonUnauthorized, "who is this?")
		return
	}
	const path = "/api/v1/nodes"
	name, sub, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, path), "/"), "/")
	resource := strings.TrimSuffix("nodes/"+sub, "/")
	switch {
	case r.Method == "POST" && r.URL.Path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" && media == "application/json":
		s.review(w, body, may)
	case !strings.HasPrefix(r.URL.Path, path):
		s.fail(w, 404, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case r.Method == "POST" && name == "" && may("create", resource):
		n := new(corev1.Node)
		if s.strict(w, body, n) {
			s.store(w, n)
		}
	case !may(strings.ToLower(r.Method), resource):
		s.fail(w, 403, metav1.StatusReasonForbidden, fmt.Sprintf("User %q cannot %s resource %q", user, r.Method, resource))
	case r.Method == "GET" && name == "":
		list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
		for _, n := range s.nodes {
			list.Items = append(list.Items, *n)
		}
		s.answer(w, 200, list)
	case s.nodes[name] == nil:
		s.fail(w, 404, metav1.StatusReasonNotFound, fmt.Sprintf("nodes %q not found", name))
	case r.Method == "GET" && sub == "":
		s.answer(w, 200, s.nodes[name])
	case r.Method == "DELETE" && sub == "":
		s.answer(w, 200, s.nodes[name])
		delete(s.nodes, name)
	case r.Method == "PATCH" && (sub == "" || sub == "status"):
		s.patch(w, s.nodes[name], media, sub, body)
	default:
		s.fail(w, 405, metav1.StatusReasonMethodNotAllowed, r.Method+" "+r.URL.Path)
	}
}

func (s *smallServer) review(w http.ResponseWriter, body []byte, may func(string, string) bool) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   any    `json:"metadata,omitempty"`
		Spec       struct {
			ResourceAttributes struct {
				Verb        string `json:"verb"`
				Group       string `json:"group"`
				Namespace   string `json:"namespace"`
				Resource    string `json:"resource"`
				Subresource string `json:"subresource"`
				Name        string `json:"name"`
			} `json:"resourceAttributes"`
		} `json:"spec"`
		Status map[string]any `json:"status"`
	}
	if s.strict(w, body, &review) {
		a := review.Spec.ResourceAttributes
		review.Status = map[string]any{"allowed": may(a.Verb, strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/"))}
		s.answer(w, 201, review)
	}
}

// strict decodes what has no field that the type lacks.
func (s *smallServer) strict(w http.ResponseWriter, b []byte, v any) bool {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		s.fail(w, 422, metav1.StatusReasonInvalid, err.Error())
		return false
	}
	return true
}

func (s *smallServer) patch(w http.ResponseWriter, old *corev1.Node, media, sub string, body []byte) {
	var version struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	before, err := json.Marshal(old)
	var after []byte
	if err == nil {
		err = json.Unmarshal(body, &version)
	}
	if err == nil {
		switch media {
		case "application/strategic-merge-patch+json":
			after, err = strategicpatch.StrategicMergePatch(before, body, corev1.Node{})
		case "application/merge-patch+json":
			after, err = merged(before, body)
		default:
			s.fail(w, 415, metav1.StatusReasonUnsupportedMediaType, media)
			return
		}
	}
	if err != nil {
		s.fail(w, 400, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	if v := version.Metadata.ResourceVersion; v != "" && v != old.ResourceVersion {
		s.fail(w, 409, metav1.StatusReasonConflict, "the object has been modified")
		return
	}
	n := new(corev1.Node)
	if !s.strict(w, after, n) {
		return
	}
	// Each of the two resources changes its own half.
	result := old.DeepCopy()
	if sub == "status" {
		result.Status = n.Status
	} else {
		result.ObjectMeta, result.Spec = n.ObjectMeta, n.Spec
	}
	s.store(w, result)
}

// merged is RFC 7386's merge of a patch into a document.
func merged(doc, patch []byte) ([]byte, error) {
	var d, p map[string]any
	if err := json.Unmarshal(doc, &d); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		return nil, err
	}
	return json.Marshal(merge(d, p))
}

func merge(d, p map[string]any) map[string]any {
	if d == nil {
		d = map[string]any{}
	}
	for k, v := range p {
		switch v := v.(type) {
		case nil:
			delete(d, k)
		case map[string]any:
			old, _ := d[k].(map[string]any)
			d[k] = merge(old, v)
		default:
			d[k] = v
		}
	}
	return d
}

func (s *smallServer) store(w http.ResponseWriter, n *corev1.Node) {
	s.count++
	n.ResourceVersion = strconv.Itoa(s.count)
	s.nodes[n.Name] = n
	s.answer(w, 200, n)
}

func (s *smallServer) fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	s.answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func (s *smallServer) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Error(err)
	}
}
