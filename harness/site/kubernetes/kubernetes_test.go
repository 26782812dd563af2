package kubernetes

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/assay-hpc/assay/internal/apiservertest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

func statement(v result.Verdict) *certificate.Admitted { return statementAt(v, time.Now()) }

// statementAt is a certificate whose checks began at a time, and took a second.
func statementAt(v result.Verdict, began time.Time) *certificate.Admitted {
	return statementOf(v, began, "GPU-1")
}

func statementOf(v result.Verdict, began time.Time, identity string) *certificate.Admitted {
	return certificateOf(began, identity, nil, result.Result{ID: map[bool]string{true: certificate.GPUsID, false: "gpu/ecc"}[v == result.Pass], Verdict: v, Reason: "2 errors\n\x1b"})
}

// repaired is a pass that answers a failure by checks.
func repaired(began time.Time, checks ...string) *certificate.Admitted {
	results := []result.Result{{ID: certificate.GPUsID, Verdict: result.Pass}}
	for _, id := range checks {
		results = append(results, result.Result{ID: id, Verdict: result.Pass})
	}
	return certificateOf(began, "GPU-1", &certificate.After{Checks: checks, Times: 3}, results...)
}

func certificateOf(began time.Time, identity string, after *certificate.After, results ...result.Result) *certificate.Admitted {
	st := certificate.New(certificate.Predicate{Suite: "node", Started: began, Finished: began.Add(time.Second), After: after, Results: results})
	if err := st.SetNode(&certificate.Node{Name: "gpu-1", Identity: []string{identity}}); err != nil {
		panic(err)
	}
	return certificatetest.Admit(st)
}

func open(t *testing.T, config *rest.Config, now time.Time) *Cluster {
	t.Helper()
	c, err := connect(config)
	if err != nil {
		t.Fatal(err)
	}
	c.now = func() time.Time { return now }
	return c
}

// ours is what assay wrote onto a node.
type ours struct {
	Status, Reason, Message string
	Heartbeat, Transition   string
	Label, Certificate      string
	Taint                   corev1.TaintEffect
}

// read returns what is ours on a node, and fails if what others wrote is not
// as it was.
func (s *apiServer) read(t *testing.T, name string) (o ours) {
	t.Helper()
	n := s.node(t, name)
	var ready, gpu bool
	for _, c := range n.Status.Conditions {
		ready = ready || c.Type == corev1.NodeReady && c.Reason == "KubeletReady"
		if c.Type == conditionType {
			o.Status, o.Reason, o.Message = string(c.Status), c.Reason, c.Message
			o.Heartbeat, o.Transition = c.LastHeartbeatTime.UTC().Format(time.TimeOnly), c.LastTransitionTime.UTC().Format(time.TimeOnly)
		}
	}
	for _, taint := range n.Spec.Taints {
		gpu = gpu || taint.Key == "gpu" && taint.Value == "yes"
		if taint.Key == verdictKey {
			o.Taint = taint.Effect
		}
	}
	if !ready || !gpu || n.Labels["zone"] != "a" || n.Annotations["owner"] != "x" {
		t.Errorf("something of others is lost: %+v", n)
	}
	o.Label, o.Certificate = n.Labels[verdictKey], n.Annotations[certificateKey]
	return o
}

// TestAct: one node, certificate after certificate.
func TestAct(t *testing.T) {
	s := startServer(t)
	s.newNode(t, "gpu-1")
	const (
		passed = "assay: suite node, 1 checks passed"
		after  = "assay: suite node, 2 checks passed; after repair: gpu/ecc, 3 times"
		failed = "assay: gpu/ecc: 2 errors"
	)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, tt := range []struct {
		verdict result.Verdict
		taint   string
		want    ours
	}{
		{result.Pass, "", ours{"True", "ChecksPassed", passed, "12:00:00", "12:00:00", "pass", "", ""}},
		{result.Pass, "", ours{"True", "ChecksPassed", passed, "12:01:00", "12:00:00", "pass", "", ""}},
		{result.Fail, "", ours{"False", "ChecksFailed", failed, "12:02:00", "12:02:00", "fail", "", ""}},
		{result.Fail, "NoSchedule", ours{"False", "ChecksFailed", failed, "12:03:00", "12:02:00", "fail", "", "NoSchedule"}},
		{result.Fail, "NoSchedule", ours{"False", "ChecksFailed", failed, "12:04:00", "12:02:00", "fail", "", "NoSchedule"}},
		{result.Fail, "PreferNoSchedule", ours{"False", "ChecksFailed", failed, "12:05:00", "12:02:00", "fail", "", "PreferNoSchedule"}},
		{result.Error, "NoSchedule", ours{"Unknown", "ChecksNotCarriedOut", "assay: not run: gpu/ecc: 2 errors", "12:06:00", "12:06:00", "", "", "PreferNoSchedule"}},
		{result.Pass, "", ours{"True", "ChecksPassed", after, "12:07:00", "12:07:00", "pass", "", "PreferNoSchedule"}},
		{result.Pass, "NoSchedule", ours{"True", "ChecksPassed", passed, "12:08:00", "12:07:00", "pass", "", ""}},
		{result.Skip, "NoSchedule", ours{"Unknown", "EveryCheckSkipped", "assay: every check was skipped: nothing was shown", "12:09:00", "12:09:00", "", "", ""}},
	} {
		now := at.Add(time.Duration(i) * time.Minute)
		c := open(t, s.as(harness), now)
		adm := statementAt(tt.verdict, now.Add(-30*time.Second))
		if tt.want.Message == after {
			adm = repaired(now.Add(-30*time.Second), "gpu/ecc")
		}
		note, err := c.Act(t.Context(), adm, Options{Node: "gpu-1", Taint: tt.taint})
		if err != nil {
			t.Fatalf("%d, %s: %v", i, tt.verdict, err)
		}
		if want := "node gpu-1: AssayCertified=" + tt.want.Status; !strings.HasPrefix(note, want) {
			t.Errorf("%d, %s: says %q; want %q", i, tt.verdict, note, want)
		}
		got := s.read(t, "gpu-1")
		if !strings.HasPrefix(got.Certificate, "sha256:") || len(got.Certificate) != len("sha256:")+64 {
			t.Errorf("%d: the certificate's digest is %q", i, got.Certificate)
		}
		got.Certificate = ""
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%d, %s (-want +got):\n%s", i, tt.verdict, diff)
		}
	}
}

// TestRights: what is missing is named, before anything is done and when it
// is tried.
func TestRights(t *testing.T) {
	s := startServer(t)
	s.newNode(t, "gpu-1")
	o := Options{Node: "gpu-1"}
	const (
		get    = `{apiGroups: [""], resources: [nodes], verbs: [get]}`
		patch  = `{apiGroups: [""], resources: [nodes], verbs: [patch]}`
		status = `{apiGroups: [""], resources: [nodes/status], verbs: [patch]}`
	)
	for user, want := range map[string]string{harness: "", nobody: get + ", " + patch + ", " + status, reader: patch + ", " + status} {
		c := open(t, s.as(user), time.Now())
		_, actErr := c.Act(t.Context(), statement(result.Pass), o)
		for what, err := range map[string]error{"Check": c.Check(t.Context(), o), "Act": actErr} {
			var denied *denied
			if errors.As(err, &denied) != (want != "") || want == "" && err != nil || want != "" && !strings.HasSuffix(err.Error(), "lacks "+want) {
				t.Errorf("%s by %s: %v; want %q", what, user, err, want)
			}
		}
	}
	if _, err := open(t, s.as("stranger"), time.Now()).Act(t.Context(), statement(result.Pass), o); err == nil || !strings.Contains(err.Error(), "gpu-1: ") {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := open(t, s.as(harness), time.Now()).Act(t.Context(), statement(result.Pass), Options{Node: "gpu-9"}); err == nil || !strings.Contains(err.Error(), `"gpu-9" not found`) {
		t.Errorf("a node that is not there: %v", err)
	}
}

// A disturbance comes before a request.
type disturbance struct {
	http.RoundTripper
	before func(*http.Request) (*http.Response, error)
}

func (d disturbance) RoundTrip(r *http.Request) (*http.Response, error) {
	if resp, err := d.before(r); resp != nil || err != nil {
		return resp, err
	}
	return d.RoundTripper.RoundTrip(r)
}

// TestDisturbed: others who write in between lose nothing, and neither do we.
func TestDisturbed(t *testing.T) {
	s := startServer(t)
	for name, tt := range map[string]struct {
		times  int32
		do     func(r *http.Request, node string) (*http.Response, error)
		failed bool
	}{
		"written in between": {3, func(r *http.Request, node string) (*http.Response, error) {
			if r.Method == "PATCH" {
				_, err := s.admin.Resource(nodes).Patch(t.Context(), node, mergePatch, []byte(`{"metadata":{"labels":{"other":"`+time.Now().Format("150405.000000000")+`"}}}`), metav1.PatchOptions{})
				if err != nil {
					t.Error(err)
				}
			}
			return nil, nil
		}, false},
		"unavailable": {2, func(*http.Request, string) (*http.Response, error) {
			return &http.Response{StatusCode: 503, Body: http.NoBody, Header: http.Header{}}, nil
		}, false},
		"another leader of the store": {2, func(*http.Request, string) (*http.Response, error) {
			return &http.Response{StatusCode: 500, Body: io.NopCloser(strings.NewReader("etcdserver: leader changed")), Header: http.Header{}}, nil
		}, false},
		"the connection ends": {3, func(*http.Request, string) (*http.Response, error) { return nil, syscall.ECONNRESET }, false},
		"unavailable for ever": {1 << 30, func(*http.Request, string) (*http.Response, error) {
			return &http.Response{StatusCode: 503, Body: http.NoBody, Header: http.Header{}}, nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			node := strings.ReplaceAll(name, " ", "-")
			s.newNode(t, node)
			var left atomic.Int32
			left.Store(tt.times)
			config := s.as(harness)
			config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return disturbance{rt, func(r *http.Request) (*http.Response, error) {
					if left.Add(-1) < 0 {
						return nil, nil
					}
					return tt.do(r, node)
				}}
			})
			_, err := open(t, config, time.Now()).Act(t.Context(), statement(result.Fail), Options{Node: node, Taint: "NoSchedule"})
			got := s.read(t, node)
			if (err != nil) != tt.failed || !tt.failed && (got.Status != "False" || got.Taint != "NoSchedule" || got.Label != "fail") {
				t.Errorf("%v, %+v", err, got)
			}
			if name == "written in between" && (s.node(t, node).Labels["other"] == "" || left.Load() > 0) {
				t.Errorf("nobody wrote in between: %d times left", left.Load())
			}
		})
	}
}

// TestConnect: KUBECONFIG says which cluster, and as whom.
func TestConnect(t *testing.T) {
	s := startServer(t)
	s.newNode(t, "gpu-1")
	file := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", file)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for user, may := range map[string]bool{harness: true, nobody: false} {
		text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x",
"clusters": [{"name": "x", "cluster": {"server": %q, "certificate-authority": %q}}],
"users": [{"name": "x", "user": {"token": %q}}],
"contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}`, s.config.Host, s.config.CAFile, user)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Connect()
		if err == nil {
			err = c.Check(t.Context(), Options{Node: "gpu-1"})
		}
		var denied *denied
		if may && err != nil || !may && !errors.As(err, &denied) {
			t.Errorf("as %s: %v; may write: %v", user, err, may)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, o := range map[string]Options{
		"NODE_NAME":                   {},
		`NoExecute, not "noschedule"`: {Node: "x", Taint: "noschedule"},
		"":                            {Node: "x", Taint: "NoExecute"},
	} {
		err := o.Validate()
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", o, err, want)
		}
	}
}

// TestWithdraw: a node waits, says why, and one that failed keeps its label.
func TestWithdraw(t *testing.T) {
	s := startServer(t)
	s.newNode(t, "gpu-1")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c, o := open(t, s.as(harness), at), Options{Node: "gpu-1", Taint: "NoSchedule"}
	for _, tt := range []struct {
		before result.Verdict
		want   ours
	}{
		{"", ours{"Unknown", "CertificationPending", "assay: it was booted", "12:00:00", "12:00:00", pending, "", ""}},
		{result.Pass, ours{"Unknown", "CertificationPending", "assay: it was booted", "12:00:00", "12:00:00", pending, "", ""}},
		{result.Fail, ours{"Unknown", "CertificationPending", "assay: it was booted", "12:00:00", "12:00:00", "fail", "", "NoSchedule"}},
	} {
		if tt.before != "" {
			if _, err := c.Act(t.Context(), statement(tt.before), o); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Withdraw(t.Context(), o, "it was booted"); err != nil {
			t.Fatal(err)
		}
		got := s.read(t, "gpu-1")
		got.Certificate = ""
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", tt.before, diff)
		}
	}
	if err := c.Withdraw(t.Context(), Options{Node: "gpu-2"}, "x"); err == nil || !strings.Contains(err.Error(), `node gpu-2: nodes "gpu-2" not found`) {
		t.Errorf("another node: %v", err)
	}
}

// TestBusy: the pods that hold GPUs of a node, and no others.
func TestBusy(t *testing.T) {
	if !apiservertest.Available() {
		t.Skip("needs a real API server: make test ONLY=kubernetes")
	}
	s := startServer(t)
	s.newNode(t, "gpu-1")
	for _, tt := range []struct{ name, node, resource, init, phase string }{
		{"gpu", "gpu-1", "nvidia.com/gpu", "", "Running"},
		{"mig", "gpu-1", "nvidia.com/mig-1g.10gb", "", "Pending"},
		{"init", "gpu-1", "cpu", "nvidia.com/gpu.shared", "Pending"},
		{"done", "gpu-1", "nvidia.com/gpu", "", "Succeeded"},
		{"failed", "gpu-1", "nvidia.com/gpu", "", "Failed"},
		{"cpu", "gpu-1", "cpu", "", "Running"},
		{"none", "gpu-1", "nvidia.com/gpu", "", "Running"},
		{"elsewhere", "gpu-2", "nvidia.com/gpu", "", "Running"},
	} {
		of := func(name string) map[string]any {
			return map[string]any{"name": "x" + name[:1], "image": "x", "resources": map[string]any{"limits": map[string]any{name: map[bool]string{true: "0", false: "1"}[tt.name == "none"]}}}
		}
		spec := map[string]any{"nodeName": tt.node, "containers": []any{of(tt.resource)}}
		if tt.init != "" {
			spec["initContainers"] = []any{of(tt.init)}
		}
		in := s.admin.Resource(pods).Namespace("default")
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": tt.name}, "spec": spec}}
		if tt.name == "gpu" { // no controller gives the namespace what pods run as
			account := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default"}}}
			if _, err := s.admin.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := in.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Patch(t.Context(), tt.name, mergePatch, []byte(`{"status":{"phase":"`+tt.phase+`"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	c := open(t, s.as(harness), time.Now())
	busy, err := c.Busy(t.Context(), "gpu-1")
	if want := []string{"default/gpu", "default/init", "default/mig"}; err != nil || !slices.Equal(busy, want) {
		t.Errorf("%v, %v; want %v", busy, err, want)
	}
	if _, err := open(t, s.as(reader), time.Now()).Busy(t.Context(), "gpu-1"); err == nil || !strings.Contains(err.Error(), "the pods of node gpu-1") {
		t.Errorf("without the right: %v", err)
	}
	err = open(t, s.as(reader), time.Now()).Check(t.Context(), Options{Node: "gpu-1", Keep: &Slots{Namespace: "assay", DaemonSet: "certify"}})
	if err == nil || !strings.Contains(err.Error(), "resources: [pods], verbs: [list]") {
		t.Errorf("the missing right: %v", err)
	}
}
