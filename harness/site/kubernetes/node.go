package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-hpc/assay/harness/site"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// node has only the fields that are read or written here: the types of Kubernetes' core API would
// more than double the size of the harness.
type node struct {
	Metadata struct {
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Taints []map[string]any `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions []nodeCondition `json:"conditions"`
		NodeInfo   struct {
			BootID     string `json:"bootID"`
			SystemUUID string `json:"systemUUID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

type nodeCondition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	LastHeartbeatTime  string `json:"lastHeartbeatTime"`
	LastTransitionTime string `json:"lastTransitionTime"`
}

func readNode(object map[string]any) (*node, error) {
	b, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	n := new(node)
	if err := json.Unmarshal(b, n); err != nil {
		return nil, fmt.Errorf("the node as the API server has it: %w", err)
	}
	return n, nil
}

const (
	mergePatch = types.MergePatchType
	// A strategic merge identifies conditions by their type, so that other conditions are
	// unchanged.
	strategicPatch = types.StrategicMergePatchType
)

// is reports whether the node is the machine that the certificate is about, which the policy found
// to be this machine, or the one that somebody named: the kubelet's boot id is this machine's, or
// nothing that is known of the node says otherwise.
func (n *node) is(adm *certificate.Admitted, o Options) error {
	info := n.Status.NodeInfo
	known := n.Metadata.Annotations[identityKey]
	id := adm.Statement().Predicate.Node.Identity
	switch {
	case !o.Vouched && o.Boot != "" && info.BootID != "":
		if !strings.EqualFold(o.Boot, info.BootID) {
			return fmt.Errorf("%w: this is another machine than the node: its kubelet has the boot id %s, and this machine %s; run this there, or say with --node-identity or --identity-of which machine the node is", attest.ErrSubject, info.BootID, o.Boot)
		}
	case info.SystemUUID != "" && len(id) == 1 && strings.HasPrefix(id[0], "dmi ") && !strings.EqualFold(id[0], "dmi "+info.SystemUUID):
		return fmt.Errorf("%w: the certificate is about the machine with the UUID %s, and the node's kubelet has %s", attest.ErrSubject, strings.TrimPrefix(id[0], "dmi "), info.SystemUUID)
	case !o.Vouched && known != "" && known != adm.Identity():
		return fmt.Errorf("%w: the certificate is about the machine %s, and the node was last the machine %s; --node-identity or --identity-of says which it is now", attest.ErrSubject, adm.Identity(), known)
	}
	return nil
}

// A Superseded says that a pass changes nothing: a later certificate was applied to the node, which
// is in service.
type Superseded struct{ Finished time.Time }

func (s *Superseded) Error() string {
	return fmt.Sprintf("a certificate that was finished later, at %s, was applied already", s.Finished.UTC().Format(time.RFC3339))
}

// Unwrap returns the kind of the error.
func (s *Superseded) Unwrap() error { return attest.ErrTime }

// clockSlack is how far clocks may differ.
const clockSlack = time.Hour

// mayFollow reports whether the certificate may follow what is written on the node. A pass must answer
// the checks by which the machine failed, and have begun after whatever it would undo: a failure, or that the node waits for its certification. Times
// after the limit do not count; zero: there is none.
func (n *node) mayFollow(adm *certificate.Admitted, limit time.Time) error {
	p := &adm.Statement().Predicate
	if p.Verdict != result.Pass {
		return nil
	}
	noted, label := n.noted(limit), n.Metadata.Labels[verdictKey]
	same := n.Metadata.Annotations[certificateKey] == adm.Digest()
	marked := label == string(result.Fail) || label == pending
	var since time.Time
	if !same {
		since = noted
	}
	later := func(text any) {
		s, _ := text.(string)
		if t := before(limit, s); t.After(since) {
			since = t
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == conditionType && c.Status != "True" {
			marked = true
			later(c.LastTransitionTime)
		}
	}
	for _, t := range n.Spec.Taints {
		if t["key"] == verdictKey {
			marked = true
			later(t["timeAdded"])
		}
	}
	switch {
	case marked && !since.IsZero():
		if err := adm.Supersedes("what marked the node", since); err != nil {
			return err
		}
	case !marked && !same && p.Finished.Before(noted):
		return &Superseded{noted}
	}
	if open := site.Unanswered(adm.Statement(), n.failedOf(adm)); len(open) > 0 {
		return fmt.Errorf("%w: the node failed by %s, which the certificate did not measure harder than usual; certify --after %q does", attest.ErrUse, strings.Join(open, ", "), site.Prefix+open[0])
	}
	return nil
}

// failed returns the checks by which the machine failed.
func (n *node) failed() []string {
	text := n.Metadata.Annotations[failedKey]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// failedOf is failed, if the node is still the machine that the certificate is about.
func (n *node) failedOf(adm *certificate.Admitted) []string {
	if known := n.Metadata.Annotations[identityKey]; known != "" && known != adm.Identity() {
		return nil
	}
	return n.failed()
}

// noted returns when the latest certificate that was applied had been finished; zero if none says it,
// or one after the limit.
func (n *node) noted(limit time.Time) time.Time {
	return before(limit, n.Metadata.Annotations[finishedKey])
}

// before reads a time; zero if it is none, or after the limit.
func before(limit time.Time, text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || !limit.IsZero() && t.After(limit) {
		return time.Time{}
	}
	return t
}

// metaPatch returns the patch of label, annotation and taint. It contains the version that it is
// based on, so that taints which others add in the meantime are not lost.
func (n *node) metaPatch(adm *certificate.Admitted, effect string, limit time.Time) ([]byte, error) {
	st := adm.Statement()
	finished := st.Predicate.Finished
	if noted := n.noted(limit); noted.After(finished) {
		finished = noted
	}
	var label any // nil removes it
	if v := st.Predicate.Verdict; v == result.Pass || v == result.Fail {
		label = string(v)
	}
	annotations := map[string]any{
		certificateKey: adm.Digest(), finishedKey: finished.UTC().Format(time.RFC3339Nano), identityKey: adm.Identity(),
	}
	switch failed := n.failedOf(adm); st.Predicate.Verdict {
	case result.Pass:
		annotations[failedKey] = nil
	case result.Fail:
		annotations[failedKey] = strings.Join(slices.Concat(site.Failed(st), site.Earlier(st, failed)), ",")
	}
	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": n.Metadata.ResourceVersion,
		"labels":          map[string]any{verdictKey: label},
		"annotations":     annotations,
	}}
	if taints, changed := n.taints(st.Predicate.Verdict, effect); changed {
		patch["spec"] = map[string]any{"taints": taints}
	}
	return json.Marshal(patch)
}

// pendingPatch returns the patch of the label of a node that waits for its certification.
func (n *node) pendingPatch() ([]byte, error) {
	metadata := map[string]any{"resourceVersion": n.Metadata.ResourceVersion}
	if n.Metadata.Labels[verdictKey] != string(result.Fail) {
		metadata["labels"] = map[string]any{verdictKey: pending}
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

// voidPatch returns the patch of the label of a node without a certificate that counts.
func (n *node) voidPatch() ([]byte, error) {
	metadata := map[string]any{"resourceVersion": n.Metadata.ResourceVersion}
	if n.Metadata.Labels[verdictKey] != string(result.Fail) {
		metadata["labels"] = map[string]any{verdictKey: nil}
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

// clearPatch returns the patch that takes label, annotation and taint away.
func (n *node) clearPatch() ([]byte, error) {
	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": n.Metadata.ResourceVersion,
		"labels":          map[string]any{verdictKey: nil},
		"annotations":     map[string]any{certificateKey: nil, finishedKey: nil, identityKey: nil, failedKey: nil},
	}}
	taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), isOurs)
	if len(taints) != len(n.Spec.Taints) {
		patch["spec"] = map[string]any{"taints": taints}
	}
	return json.Marshal(patch)
}

// isOurs reports whether a taint is assay's.
func isOurs(taint map[string]any) bool { return taint["key"] == verdictKey }

// marked reports whether the node has something of assay's.
func (n *node) marked() bool {
	_, label := n.Metadata.Labels[verdictKey]
	_, annotation := n.Metadata.Annotations[certificateKey]
	return label || annotation || slices.ContainsFunc(n.Spec.Taints, isOurs) ||
		slices.ContainsFunc(n.Status.Conditions, func(c nodeCondition) bool { return c.Type == conditionType })
}

// taints returns the node's new taints. A verdict other than pass or fail changes none.
func (n *node) taints(v result.Verdict, effect string) (taints []map[string]any, changed bool) {
	if effect == "" || v != result.Pass && v != result.Fail {
		return nil, false
	}
	i := slices.IndexFunc(n.Spec.Taints, isOurs)
	taints = slices.DeleteFunc(slices.Clone(n.Spec.Taints), isOurs)
	if v == result.Pass {
		return taints, i >= 0
	}
	if i >= 0 && n.Spec.Taints[i]["effect"] == effect && len(taints) == len(n.Spec.Taints)-1 {
		return nil, false // it keeps the time at which it was added
	}
	return append(taints, map[string]any{"key": verdictKey, "value": string(result.Fail), "effect": effect}), true
}

// maxMessage is the maximum length of a condition's message: kubectl describe shows it on one
// line.
const maxMessage = 256

// condition returns the condition for a certificate, without times.
func condition(st *certificate.Statement) nodeCondition {
	p := &st.Predicate
	c := nodeCondition{Type: conditionType, Status: "Unknown", Message: site.Reason(st, maxMessage)}
	if all := site.Mark(st, maxMessage, nil); len(all) <= maxMessage {
		c.Message = all
	}
	switch p.Verdict {
	case result.Pass:
		c.Status, c.Reason = "True", "ChecksPassed"
		c.Message = fmt.Sprintf("assay: suite %s, %d checks passed", p.Suite, result.Count(p.Results)[result.Pass])
		if n := result.Count(p.Results)[result.Warn]; n > 0 {
			c.Message += fmt.Sprintf(", %d warned", n)
		}
		if p.After != nil {
			c.Message = site.Shorten(c.Message+"; after repair: "+p.After.String(), maxMessage)
		}
	case result.Fail:
		c.Status, c.Reason = "False", "ChecksFailed"
	case result.Error:
		c.Reason = "ChecksNotCarriedOut"
	case result.Skip:
		c.Reason = "EveryCheckSkipped"
	}
	return c
}

// statusPatch returns the patch of our condition. The transition time is unchanged while the
// status is.
func (n *node) statusPatch(c nodeCondition, now time.Time) ([]byte, error) {
	c.LastHeartbeatTime = now.UTC().Format(time.RFC3339)
	c.LastTransitionTime = c.LastHeartbeatTime
	for _, old := range n.Status.Conditions {
		if old.Type == c.Type && old.Status == c.Status && old.LastTransitionTime != "" {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": n.Metadata.ResourceVersion},
		"status":   map[string]any{"conditions": []nodeCondition{c}},
	})
}

// may queries whether this account has a right.
func (c *Cluster) may(ctx context.Context, r right, namespace, name string) (bool, error) {
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{
			"verb": r.verb, "group": r.group, "resource": r.resource, "subresource": r.subresource, "namespace": namespace, "name": name,
		}},
	}}
	got, err := c.client.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	allowed, found, err := unstructured.NestedBool(got.Object, "status", "allowed")
	if err == nil && !found {
		err = fmt.Errorf("the API server's answer has no status")
	}
	return allowed, err
}
