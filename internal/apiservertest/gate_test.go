package apiservertest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/assay-hpc/assay/internal/apiservertest"
)

var (
	podsOf  = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodesOf = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	tokens  = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
)

const verdictKey, certificateKey = "assay-hpc.github.io/verdict", "assay-hpc.github.io/certificate"

// waiting is how long what takes effect by and by may take.
const waiting = time.Minute

// object is an object from YAML.
func object(t *testing.T, text string, a ...any) *unstructured.Unstructured {
	t.Helper()
	o := new(unstructured.Unstructured)
	if err := yaml.Unmarshal(fmt.Appendf(nil, text, a...), &o.Object); err != nil {
		t.Fatalf("%v\n%s", err, fmt.Sprintf(text, a...))
	}
	return o
}

// A gated is a server with the chart's objects, and some nodes.
type gated struct {
	*server
	t *testing.T
}

func startGated(t *testing.T, users ...string) *gated {
	s := &gated{startServer(t, users...), t}
	text := helm(t, rendered(append(needed, "--set", "mode=enforce,writers={writer}")...)...)
	for _, o := range documents(t, []byte(text)) {
		s.install(t, o)
	}
	s.install(t, object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: tenant}}"))
	s.install(t, object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: gpu-operator}}"))
	for _, namespace := range []string{"tenant", "gpu-operator"} {
		s.install(t, object(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: %s}}", namespace))
	}
	s.install(t, object(t, "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}"))
	// The rights of a controller that goes wrong: it may write whatever nodes say.
	s.install(t, object(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: forger},
  rules: [{apiGroups: [""], resources: [nodes, nodes/status, pods], verbs: ["*"]}]}`))
	s.install(t, object(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: forger},
  subjects: [{kind: User, name: forger, apiGroup: rbac.authorization.k8s.io}, {kind: User, name: writer, apiGroup: rbac.authorization.k8s.io}],
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: forger}}`))
	s.await("the policies take effect", func() bool {
		pod, err := s.as(apiservertest.Admin).Resource(podsOf).Namespace("tenant").Create(t.Context(), gpuPod(t, "probe", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || selects(pod) != "pass" {
			return false
		}
		named := gpuPod(t, "probe", "nodeName: x")
		_, err = s.as(apiservertest.Admin).Resource(podsOf).Namespace("tenant").Create(t.Context(), named, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) {
			return false
		}
		node := object(t, `{apiVersion: v1, kind: Node, metadata: {name: probe, labels: {%s: pass}}}`, verdictKey)
		_, err = s.as("forger").Resource(nodesOf).Create(t.Context(), node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err)
	})
	return s
}

func (s *gated) await(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(waiting); !done(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited %v: %s", waiting, what)
		}
	}
}

func (s *gated) as(user string) dynamic.Interface {
	s.t.Helper()
	client, err := dynamic.NewForConfig(apiservertest.As(s.config, user))
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

func gpuPod(t *testing.T, name, more string) *unstructured.Unstructured {
	if more != "" {
		more = ", " + more
	}
	return object(t, `{apiVersion: v1, kind: Pod, metadata: {name: %s},
  spec: {containers: [{name: x, image: x, resources: {limits: {nvidia.com/gpu: "1"}}}]%s}}`, name, more)
}

// selects is the verdict that a pod's node selector asks for.
func selects(pod *unstructured.Unstructured) string {
	if pod == nil {
		return ""
	}
	v, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeSelector", verdictKey)
	return v
}

// newNode makes a node with GPUs, with a kubelet that reported just now.
func (s *gated) newNode(name string, gpus int) {
	s.t.Helper()
	admin := s.as(apiservertest.Admin).Resource(nodesOf)
	_, err := admin.Create(s.t.Context(), object(s.t, "{apiVersion: v1, kind: Node, metadata: {name: %s}}", name), metav1.CreateOptions{})
	if err == nil { // an admission plugin adds the taint not-ready
		_, err = admin.Patch(s.t.Context(), name, types.MergePatchType, []byte(`{"spec":{"taints":[]}}`), metav1.PatchOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.report(apiservertest.Admin, name, time.Now(), fmt.Sprintf(`"capacity":{"cpu":"64","memory":"64Gi","pods":"1000","nvidia.com/gpu":"%d"},`, gpus)); err != nil {
		s.t.Fatal(err)
	}
}

// report is a kubelet's report of its node's status.
func (s *gated) report(user, name string, at time.Time, more string) error {
	body := fmt.Sprintf(`{"status":{%s"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%q}]}}`, more, at.UTC().Format(time.RFC3339))
	_, err := s.as(user).Resource(nodesOf).Patch(s.t.Context(), name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
	return err
}

// agent returns the token of an agent on a node.
func (s *gated) agent(node string) string {
	s.t.Helper()
	admin := s.as(apiservertest.Admin)
	pod := object(s.t, "{apiVersion: v1, kind: Pod, metadata: {name: on-%s}, spec: {nodeName: %s, serviceAccountName: certify, tolerations: [{operator: Exists}], containers: [{name: x, image: x}]}}", node, node)
	made, err := admin.Resource(podsOf).Namespace("assay").Create(s.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	request := object(s.t, "{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: certify}, spec: {boundObjectRef: {apiVersion: v1, kind: Pod, name: %s, uid: %s}}}", made.GetName(), made.GetUID())
	answer, err := admin.Resource(tokens).Namespace("assay").Create(s.t.Context(), request, metav1.CreateOptions{}, "token")
	if err != nil {
		s.t.Fatal(err)
	}
	token, _, _ := unstructured.NestedString(answer.Object, "status", "token")
	return token
}

// mark writes onto a node what the agent writes, as of some time.
func (s *gated) mark(user, name, verdict string, at time.Time) error {
	nodes := s.as(user).Resource(nodesOf)
	meta := fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":{%q:"sha256:0"}}}`, verdictKey, verdict, certificateKey)
	if _, err := nodes.Patch(s.t.Context(), name, types.MergePatchType, []byte(meta), metav1.PatchOptions{}); err != nil {
		return err
	}
	status := fmt.Sprintf(`{"status":{"conditions":[{"type":"AssayCertified","status":"True","lastHeartbeatTime":%q}]}}`, at.UTC().Format(time.RFC3339))
	_, err := nodes.Patch(s.t.Context(), name, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	return err
}

func (s *gated) verdict(name string) string {
	s.t.Helper()
	n, err := s.as(apiservertest.Admin).Resource(nodesOf).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return n.GetLabels()[verdictKey]
}

// TestChartForged: 1,000 attempts to give a node, or a pod, what it has not: each is refused, and
// nothing of the nodes is changed. The attempts that must succeed do. It reports how long the
// server took for each.
func TestChartForged(t *testing.T) {
	const good, bad = "good", "bad"
	s := startGated(t, "forger", "writer", "system:node:good", "system:node:bad", "system:node:new-0")
	s.newNode(good, 8)
	s.newNode(bad, 8)
	goodAgent, badAgent := s.agent(good), s.agent(bad)
	for _, err := range []error{s.mark(goodAgent, good, "pass", time.Now()), s.mark(badAgent, bad, "fail", time.Now())} {
		if err != nil {
			t.Fatalf("the agents on their own nodes: %v", err)
		}
	}
	taint := []byte(`{"spec":{"taints":[{"key":"` + verdictKey + `","value":"fail","effect":"NoSchedule"}]}}`)
	if _, err := s.as(badAgent).Resource(nodesOf).Patch(t.Context(), bad, types.MergePatchType, taint, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := s.as(apiservertest.Admin).Resource(nodesOf).Get(t.Context(), bad, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(user, name, body string, sub ...string) func(int) error {
		nodes := s.as(user).Resource(nodesOf)
		return func(int) error {
			_, err := nodes.Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
			return err
		}
	}
	strategic := func(user, name, body string) func(int) error {
		nodes := s.as(user).Resource(nodesOf)
		return func(int) error {
			_, err := nodes.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
			return err
		}
	}
	create := func(user, more string) func(int) error {
		nodes := s.as(user).Resource(nodesOf)
		return func(i int) error {
			_, err := nodes.Create(t.Context(), object(t, "{apiVersion: v1, kind: Node, metadata: {name: new-%d, %s}}", i, more), metav1.CreateOptions{})
			return err
		}
	}
	forgerPods := s.as("forger").Resource(podsOf).Namespace("tenant")
	makePod := func(more string) func(int) error {
		return func(i int) error {
			_, err := forgerPods.Create(t.Context(), gpuPod(t, fmt.Sprintf("pod-%d", i), more), metav1.CreateOptions{})
			return err
		}
	}
	pass := fmt.Sprintf(`{"metadata":{"labels":{%q:"pass"}}}`, verdictKey)
	const agents, own = "only assay's agent", "a certifying pod may change its own node alone"
	attempts := []struct {
		name  string
		times int
		do    func(i int) error
		want  string
	}{
		{"a controller sets the label", 100, patch("forger", bad, pass), agents},
		{"a controller sets the label by the node's status", 50, patch("forger", bad, pass, "status"), agents},
		{"the kubelet sets its own node's label", 100, patch("system:node:bad", bad, pass), agents},
		{"the kubelet sets it by the status", 50, patch("system:node:bad", bad, pass, "status"), agents},
		{"an administrator sets it", 50, patch(apiservertest.Admin, bad, pass), agents},
		{"another value", 50, patch("forger", bad, fmt.Sprintf(`{"metadata":{"labels":{%q:"PASS"}}}`, verdictKey)), agents},
		{"a new certificate", 20, patch("forger", bad, fmt.Sprintf(`{"metadata":{"annotations":{%q:"sha256:1"}}}`, certificateKey)), agents},
		{"a certificate of a time to come", 20, patch("forger", bad, `{"metadata":{"annotations":{"assay-hpc.github.io/finished":"2999-01-01T00:00:00Z"}}}`), agents},
		{"another machine", 5, patch("system:node:bad", bad, `{"metadata":{"annotations":{"assay-hpc.github.io/node-identity":"sha256:1"}}}`), agents},
		{"a node that never failed", 5, patch("forger", bad, `{"metadata":{"annotations":{"assay-hpc.github.io/failed":"x"}}}`), agents},
		{"the taint is taken away", 50, patch("forger", bad, `{"spec":{"taints":[]}}`), agents},
		{"a heartbeat", 50, strategic("system:node:bad", bad, fmt.Sprintf(`{"status":{"conditions":[{"type":"AssayCertified","lastHeartbeatTime":%q}]}}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))), agents},
		{"another node's agent", 100, patch(goodAgent, bad, pass), own},
		{"another node's agent, by the status", 50, strategic(goodAgent, bad, `{"status":{"conditions":[{"type":"AssayCertified","status":"True"}]}}`), own},
		{"a node that comes with the label", 50, create("forger", fmt.Sprintf("labels: {%s: pass}", verdictKey)), agents},
		{"a node that comes with a certificate", 50, create("forger", fmt.Sprintf("annotations: {%s: sha256:0}", certificateKey)), agents},
		{"a node with all that another one has", 50, func(int) error {
			nodes := s.as("forger").Resource(nodesOf)
			from, err := nodes.Get(t.Context(), good, metav1.GetOptions{})
			if err != nil {
				return err
			}
			to, err := nodes.Get(t.Context(), bad, metav1.GetOptions{})
			if err != nil {
				return err
			}
			to.SetLabels(from.GetLabels())
			to.SetAnnotations(from.GetAnnotations())
			_, err = nodes.Update(t.Context(), to, metav1.UpdateOptions{})
			return err
		}, agents},
		{"a pod that names its node", 100, makePod("nodeName: bad"), "must not name its node"},
		{"a pod that names a good node", 50, makePod("nodeName: good"), "must not name its node"},
	}
	total := 0
	var took []time.Duration
	for _, a := range attempts {
		for i := range a.times {
			began := time.Now()
			err := a.do(i)
			took = append(took, time.Since(began))
			if err == nil || !strings.Contains(err.Error(), a.want) {
				t.Fatalf("%s: %v; want %q", a.name, err, a.want)
			}
			total++
		}
	}
	if total != 1000 {
		t.Errorf("%d attempts; want 1000", total)
	}
	t.Logf("%d attempts refused; the whole request took %s", total, spread(took))
	after, err := s.as(apiservertest.Admin).Resource(nodesOf).Get(t.Context(), bad, metav1.GetOptions{})
	if err != nil || after.GetResourceVersion() != before.GetResourceVersion() {
		t.Errorf("the node was changed from version %s to %s, %v", before.GetResourceVersion(), after.GetResourceVersion(), err)
	}

	// What a cluster must be able to do.
	for _, a := range []struct {
		name string
		do   func(int) error
	}{
		{"a kubelet reports", func(int) error { return s.report("system:node:bad", bad, time.Now(), "") }},
		{"a kubelet registers", func(int) error { return create("system:node:new-0", "")(0) }},
		{"another label", patch("forger", bad, `{"metadata":{"labels":{"x":"y"}}}`)},
		{"another taint beside assay's", func(int) error {
			return patch("forger", bad, strings.Replace(string(taint), "[", `[{"key":"x","effect":"NoSchedule"},`, 1))(0)
		}},
		{"the label is removed", patch("forger", good, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, verdictKey))},
		{"the agent sets it again", patch(goodAgent, good, pass)},
		{"one of the writers", patch("writer", bad, pass)},
	} {
		if err := a.do(0); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}

	// Pods, whatever they ask for and by whichever container.
	took = nil
	all := []string{metav1.DryRunAll}
	const gpu, mig = `{limits: {nvidia.com/gpu: "1"}}`, `{limits: {nvidia.com/mig-1g.10gb: "1"}}`
	for i := range 500 {
		var spec string
		want := "pass"
		switch i % 5 {
		case 0:
			spec = `containers: [{name: x, image: x, resources: ` + gpu + `}]`
		case 1:
			spec = `containers: [{name: x, image: x}, {name: z, image: x, resources: ` + mig + `}]`
		case 2:
			spec = `initContainers: [{name: z, image: x, resources: ` + gpu + `}], containers: [{name: x, image: x}]`
		case 3:
			spec = `nodeSelector: {` + verdictKey + `: fail, a: b}, containers: [{name: x, image: x, resources: ` + gpu + `}]`
		case 4:
			spec, want = `containers: [{name: x, image: x, resources: {limits: {cpu: "1", nvidia.com/gpu: 0, nvidia.com/mig-1g.10gb: "0"}}}]`, ""
		}
		pod := object(t, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {%s}}", spec)
		began := time.Now()
		made, err := forgerPods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: all})
		took = append(took, time.Since(began))
		if err != nil || selects(made) != want {
			t.Fatalf("%s: %v, selects %q; want %q", spec, err, selects(made), want)
		}
	}
	t.Logf("500 pods as a dry run, accepted with the node selector: the whole request took %s", spread(took))
	if made, err := s.as("forger").Resource(podsOf).Namespace("gpu-operator").Create(t.Context(), gpuPod(t, "validator", ""), metav1.CreateOptions{DryRun: all}); err != nil || selects(made) != "" {
		t.Errorf("a pod of an exempt namespace: %v, selects %q", err, selects(made))
	}
	s.decisions()
}

// decisions reports what the server measured of its policies' decisions alone.
func (s *gated) decisions() {
	client, err := rest.HTTPClientFor(apiservertest.As(s.config, apiservertest.Admin))
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := client.Get(s.config.Host + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "admission_policy_check_duration_seconds_") && (!strings.Contains(line, "_bucket") || strings.Contains(line, `le="0.05"`)) {
			s.t.Log(strings.TrimSpace(line))
		}
	}
}

// spread is the median and the 99th percentile.
func spread(d []time.Duration) string {
	slices.Sort(d)
	return fmt.Sprintf("median %.1f ms, p99 %.1f ms", float64(d[len(d)/2])/1e6, float64(d[len(d)*99/100])/1e6)
}

// TestChartStale: a node whose agent is silent becomes stale by its kubelet's next report, and one
// whose agent is not remains.
func TestChartStale(t *testing.T) {
	const count = 40
	var users []string
	for i := range count {
		users = append(users, fmt.Sprintf("system:node:n%d", i))
	}
	s := startGated(t, append(users, "forger", "writer")...)
	now := time.Now()
	for i := range count {
		name := fmt.Sprintf("n%d", i)
		s.newNode(name, 8)
		since := 59 * time.Minute
		if i%2 == 1 {
			since = 61 * time.Minute
		}
		if err := s.mark("writer", name, "pass", now.Add(-since)); err != nil {
			t.Fatal(err)
		}
		if err := s.report(users[i], name, now, ""); err != nil {
			t.Fatal(err)
		}
		want := "pass"
		if i%2 == 1 {
			want = "stale"
		}
		if got := s.verdict(name); got != want {
			t.Errorf("its agent was silent for %v: %q; want %q", since, got, want)
		}
	}
	// The label alone, without the agent's condition or its time, is no pass for longer.
	pass := fmt.Sprintf(`{"metadata":{"labels":{%q:"pass"}}}`, verdictKey)
	for name, condition := range map[string]string{"alone": "", "timeless": `{"status":{"conditions":[{"type":"AssayCertified","status":"True"}]}}`} {
		s.newNode(name, 8)
		nodes := s.as("writer").Resource(nodesOf)
		_, err := nodes.Patch(t.Context(), name, types.MergePatchType, []byte(pass), metav1.PatchOptions{})
		if err == nil && condition != "" {
			_, err = nodes.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(condition), metav1.PatchOptions{}, "status")
		}
		if err == nil {
			err = s.report("forger", name, now, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := s.verdict(name); got != "stale" {
			t.Errorf("%s: %q; want stale", name, got)
		}
	}
	// A kubelet that does not say when it looked is not refused.
	if _, err := s.as(users[0]).Resource(nodesOf).Patch(t.Context(), "n0", types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":null}]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Errorf("a report without a time: %v", err)
	}
}

// TestChartSchedules: a real scheduler binds pods that ask for GPUs to certified nodes alone, though
// the others have more room; pods that the gate exempts go to these, too.
func TestChartSchedules(t *testing.T) {
	s := startGated(t, "forger", "writer")
	apiservertest.StartScheduler(t, s.config)
	states := map[string]string{"pass-1": "pass", "pass-2": "pass", "fail": "fail", "pending": "pending", "stale": "stale", "none": ""}
	for name, verdict := range states {
		gpus := 1000
		if verdict == "pass" {
			gpus = 100
		}
		s.newNode(name, gpus)
		if verdict != "" {
			if err := s.mark("writer", name, verdict, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	admin := s.as(apiservertest.Admin).Resource(podsOf)
	const exempt, gpus = 60, 240 // 200 have room on nodes that pass
	for i := range exempt {
		if _, err := admin.Namespace("gpu-operator").Create(t.Context(), gpuPod(t, fmt.Sprintf("e%d", i), ""), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range gpus {
		if _, err := admin.Namespace("tenant").Create(t.Context(), gpuPod(t, fmt.Sprintf("p%d", i), ""), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	bound := func(namespace string) map[string]int {
		list, err := admin.Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]int{}
		for i := range list.Items {
			node, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "nodeName")
			out[states[node]]++
			if node == "" {
				out["nowhere"]++
			}
		}
		return out
	}
	unschedulable := func() (n int) {
		list, err := admin.Namespace("tenant").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			conditions, _, _ := unstructured.NestedSlice(list.Items[i].Object, "status", "conditions")
			for _, c := range conditions {
				if c.(map[string]any)["reason"] == "Unschedulable" {
					n++
				}
			}
		}
		return n
	}
	s.await("the scheduler decides about all pods", func() bool {
		return bound("gpu-operator")["nowhere"] == 0 && bound("tenant")["nowhere"] == unschedulable()
	})
	e, p := bound("gpu-operator"), bound("tenant")
	t.Logf("bound by the node's verdict: exempt %v, others %v", e, p)
	if e["fail"]+e["stale"]+e["pending"] == 0 {
		t.Errorf("of the exempt pods none is on a node without a pass, so that this shows nothing: %v", e)
	}
	if p["pass"] == 0 || p["nowhere"] == 0 || p["fail"]+p["stale"]+p["pending"] > 0 || p["pass"]+p["nowhere"] != gpus {
		t.Errorf("of %d pods: %v", gpus, p)
	}
}

// TestChartKeeps: the agent, with its rights alone and under the policies, on this machine: it
// certifies a node that joins, waits for pods that have GPUs, and certifies after a boot.
func TestChartKeeps(t *testing.T) {
	s := startGated(t, "forger", "writer")
	s.newNode("here", 8)
	dir := t.TempDir()
	program := filepath.Join(dir, "harness")
	build := exec.Command("go", "build", "-o", program, "../../cmd/harness")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	token := s.agent("here")
	results := filepath.Join(dir, "results")
	ctx, stop := context.WithCancel(t.Context())
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	said := func() string {
		b, err := os.ReadFile(log.Name())
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	run := func() (end func()) {
		keep := exec.CommandContext(ctx, program, "keep", "--dir", results, "--gpus", "0", "--every", "500ms", "--settle", "100ms", "--kubernetes-taint", "NoSchedule", "--", "--suite", "health")
		keep.Env = append(os.Environ(), "NODE_NAME=here", "POD_NAMESPACE=assay", "KUBECONFIG="+apiservertest.Kubeconfig(t, s.config, token))
		keep.Stdout, keep.Stderr = log, log
		keep.Cancel = func() error { return keep.Process.Signal(os.Interrupt) }
		if err := keep.Start(); err != nil {
			t.Fatal(err)
		}
		return func() {
			stop()
			if err := keep.Wait(); err != nil && ctx.Err() == nil {
				t.Errorf("keep: %v", err)
			}
			ctx, stop = context.WithCancel(t.Context())
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("keep:\n%s", said())
		}
	})
	reaches := func(verdict string) {
		t.Helper()
		s.await("the node is "+verdict, func() bool { return s.verdict("here") == verdict })
	}
	end := run()
	reaches("pass")
	end()
	for _, file := range []string{"certificate.json", "report.html", "metrics.prom", "health/metrics.prom", "kept.json"} {
		if _, err := os.Stat(filepath.Join(results, file)); err != nil {
			t.Error(err)
		}
	}
	pods := s.as(apiservertest.Admin).Resource(podsOf).Namespace("gpu-operator")
	if _, err := pods.Create(t.Context(), gpuPod(t, "work", "nodeName: here"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(results, "kept.json")
	b, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	booted := regexp.MustCompile(`"boot":"[^"]*"`).ReplaceAll(b, []byte(`"boot":"before"`))
	if bytes.Equal(b, booted) {
		t.Fatalf("no boot ID in %s", b)
	}
	if err := os.WriteFile(record, booted, 0o644); err != nil {
		t.Fatal(err)
	}
	end = run()
	s.await("keep sees the pod", func() bool {
		return strings.Contains(said(), "because the node was booted; it waits for gpu-operator/work")
	})
	reaches("pass") // in service until it is free
	zero := int64(0)
	if err := pods.Delete(t.Context(), "work", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	s.await("it is certified after the boot", func() bool { return strings.Contains(said(), "certified now, because the node was booted") })
	reaches("pass")
	end()
	for _, want := range []string{"it was never certified", "certified now, because the node was booted"} {
		if !strings.Contains(said(), want) {
			t.Errorf("keep did not say %q:\n%s", want, said())
		}
	}
}
