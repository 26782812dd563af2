package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/assay-hpc/assay/internal/result"
)

// TestKept: what a keeper writes onto its node between certifications, and what is left after it.
func TestKept(t *testing.T) {
	s := startServer(t)
	s.newNode(t, "gpu-1")
	s.newNode(t, "gpu-2")
	c := open(t, s.as(admin), time.Now())
	o := Options{Node: "gpu-1", Taint: "NoSchedule"}
	act := func(v result.Verdict, due string) func() error {
		return func() error { _, err := c.ActDue(t.Context(), statement(v), o, due); return err }
	}
	long := strings.Repeat("long ", 100)
	for i, tt := range []struct {
		do      func() error
		label   string
		taint   corev1.TaintEffect
		status  string
		message string
	}{
		{act(result.Pass, "it was booted"), "pass", "", "True ChecksPassedAndDue", "assay: suite node, 1 checks passed; to be certified again: it was booted"},
		{func() error { return c.Withdraw(t.Context(), o, "it was booted") }, "pending", "", "Unknown CertificationPending", "assay: it was booted"},
		{func() error { return c.Void(t.Context(), o, "other GPUs") }, "", "", "Unknown NotCertified", "assay: other GPUs"},
		{act(result.Fail, ""), "fail", "NoSchedule", "False ChecksFailed", "assay: gpu/ecc: 2 errors"},
		{func() error { return c.Void(t.Context(), o, "a check had failed") }, "fail", "NoSchedule", "Unknown NotCertified", "assay: a check had failed"},
		{func() error { return c.Observe(t.Context(), statement(result.Pass).Statement(), o, "never certified") }, "", "", "Unknown ObservedOnly", "assay: suite node, 1 checks passed; observed only, else it would be certified: never certified"},
		{func() error { return c.Observe(t.Context(), statement(result.Fail).Statement(), o, "") }, "", "", "False ChecksFailed", "assay: gpu/ecc: 2 errors"},
		{act(result.Fail, long), "fail", "NoSchedule", "False ChecksFailed", "assay: gpu/ecc: 2 errors; to be certified again: long"},
	} {
		if err := tt.do(); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		got := s.read(t, "gpu-1")
		if got.Label != tt.label || got.Taint != tt.taint || got.Status+" "+got.Reason != tt.status || !strings.HasPrefix(got.Message, tt.message) || len(got.Message) > maxMessage {
			t.Errorf("%d: %+v; want %+v", i, got, tt)
		}
	}
	if names, err := c.Marked(t.Context()); err != nil || fmt.Sprint(names) != "[gpu-1]" {
		t.Errorf("marked: %v, %v", names, err)
	}
	for _, name := range []string{"gpu-1", "gpu-2", "gone"} {
		if err := c.Clear(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if got := s.read(t, "gpu-1"); got != (ours{}) {
		t.Errorf("left: %+v", got)
	}
	if names, err := c.Marked(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("marked: %v, %v", names, err)
	}
}

// A leaseServer stores Leases, and refuses to write one by an older version of it.
type leaseServer struct {
	mu     sync.Mutex
	leases map[string]map[string]any
	count  int
}

func (s *leaseServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	refuse := func(code int, reason metav1.StatusReason) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason, Message: string(reason)})
	}
	const path = "/apis/coordination.k8s.io/v1/namespaces/assay/leases"
	body, _ := io.ReadAll(r.Body)
	var lease map[string]any
	_ = json.Unmarshal(body, &lease)
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, path), "/")
	store := func(code int) {
		s.count++
		metadata := lease["metadata"].(map[string]any)
		metadata["resourceVersion"] = fmt.Sprint(s.count)
		s.leases[metadata["name"].(string)] = lease
		answer(code, lease)
	}
	switch {
	case r.Method == "GET" && r.URL.Path == "/apis/apps/v1/namespaces/assay/daemonsets/certify":
		answer(200, map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet", "status": map[string]any{"desiredNumberScheduled": 64}})
	case !strings.HasPrefix(r.URL.Path, path):
		refuse(404, metav1.StatusReasonNotFound)
	case r.Method == "GET":
		items := []any{}
		for _, l := range s.leases {
			items = append(items, l)
		}
		answer(200, map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": map[string]any{}, "items": items})
	case r.Method == "POST" && s.leases[lease["metadata"].(map[string]any)["name"].(string)] != nil:
		refuse(409, metav1.StatusReasonAlreadyExists)
	case r.Method == "POST":
		store(201)
	case s.leases[name] == nil:
		refuse(404, metav1.StatusReasonNotFound)
	case s.leases[name]["metadata"].(map[string]any)["resourceVersion"] != lease["metadata"].(map[string]any)["resourceVersion"]:
		refuse(409, metav1.StatusReasonConflict)
	default:
		store(200)
	}
}

// TestSlots: of those who write a slot by one version, one gets it.
func TestSlots(t *testing.T) {
	server := &leaseServer{leases: map[string]map[string]any{}}
	small := httptest.NewServer(server)
	t.Cleanup(small.Close)
	slots := Slots{open(t, &rest.Config{Host: small.URL}, time.Now()), "assay", "certify"}
	if n, err := slots.Nodes(t.Context()); err != nil || n != 64 {
		t.Errorf("%d nodes, %v", n, err)
	}
	write := func(s Slot, want error) Slot {
		t.Helper()
		got, err := slots.Write(t.Context(), s)
		if !errors.Is(err, want) || err == nil && (got.Holder != s.Holder || got.Index != s.Index || got.Version == s.Version) {
			t.Errorf("%+v: %+v, %v; want %v", s, got, err, want)
		}
		return got
	}
	a := write(Slot{Index: 1, Holder: "a"}, nil)
	write(Slot{Index: 1, Holder: "b"}, ErrTaken)
	again := write(a, nil)
	write(a, ErrTaken)
	again.Holder = ""
	free := write(again, nil)
	list, err := slots.List(t.Context())
	if err != nil || len(list) != 1 || list[0] != free {
		t.Errorf("%+v, %v; want %+v", list, err, free)
	}
	delete(server.leases, slotName(1))
	write(free, ErrTaken)
	var won sync.Map
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if _, err := slots.Write(t.Context(), Slot{Index: 2, Holder: fmt.Sprint("n", i)}); err == nil {
				won.Store(i, true)
			} else if !errors.Is(err, ErrTaken) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n := 0
	won.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d keepers have one slot", n)
	}
	server.leases["x"] = map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "x", "labels": map[string]any{slotKey: "7"}}}
	if _, err := slots.List(t.Context()); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("somebody else's Lease: %v", err)
	}
}

// TestUnmarkGone: a node that goes away during an uninstallation does not end it.
func TestUnmarkGone(t *testing.T) {
	s := startServer(t)
	config := s.as(admin)
	gone := ""
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return disturbance{rt, func(r *http.Request) (*http.Response, error) {
			if r.Method == "PATCH" && gone != "" {
				err := s.admin.Resource(nodes).Delete(t.Context(), gone, metav1.DeleteOptions{})
				gone = ""
				return nil, err
			}
			return nil, nil
		}}
	})
	c := open(t, config, time.Now())
	for _, name := range []string{"gpu-0", "gpu-1"} {
		s.newNode(t, name)
	}
	gone = "gpu-0"
	for _, name := range []string{"gpu-0", "gpu-1"} {
		if err := c.Clear(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
}

// TestHoldsGPUs: a limit of none is no GPU.
func TestHoldsGPUs(t *testing.T) {
	for limits, want := range map[string]bool{
		`{"nvidia.com/gpu": "1"}`: true, `{"nvidia.com/gpu": 1}`: true, `{"nvidia.com/mig-1g.10gb": "2"}`: true, `{"nvidia.com/gpu.shared": "1", "nvidia.com/gpu": "0"}`: true,
		`{"nvidia.com/gpu": "0"}`: false, `{"nvidia.com/gpu": 0}`: false, `{"nvidia.com/gpumem": "1"}`: false, `{}`: false, `null`: false,
	} {
		p := new(pod)
		if err := json.Unmarshal([]byte(`{"spec": {"containers": [{"resources": {"limits": `+limits+`}}]}, "status": {"phase": "Running"}}`), p); err != nil {
			t.Fatal(err)
		}
		if got := p.holdsGPUs(); got != want {
			t.Errorf("%s: %v", limits, got)
		}
	}
}
