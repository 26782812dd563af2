// Package kubernetes writes the outcome of a certificate to a Kubernetes node: a condition, a
// label, the certificate's digest, and on request a taint that keeps work away.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	"github.com/assay-hpc/assay/harness/site"
	"github.com/assay-hpc/assay/internal/certificate"
)

// What is written to a node.
const (
	conditionType = "AssayCertified"
	// verdictKey is the key of the label and the taint, with the value pass or fail. A node on
	// which the checks could not be run has no such label.
	verdictKey = "assay-hpc.github.io/verdict"
	// pending is the label's value while a node waits for its certification.
	pending = "pending"
	// certificateKey is the key of the annotation: the SHA-256 of the certificate's canonical
	// form.
	certificateKey = "assay-hpc.github.io/certificate"
	// finishedKey is the key of the annotation: the latest time at which a certificate that was
	// applied had been finished.
	finishedKey = "assay-hpc.github.io/finished"
	// identityKey is the key of the annotation: the digest of the machine's identity, as of the last
	// certificate that was applied.
	identityKey = "assay-hpc.github.io/node-identity"
	// failedKey is the key of the annotation: the checks by which the machine failed, until a pass
	// that measured them harder than usual.
	failedKey = "assay-hpc.github.io/failed"
)

// taintEffects are Kubernetes' effects.
var taintEffects = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}

// Options say what to write to which node.
type Options struct {
	Node  string
	Taint string // effect of the taint of a node that fails; "": do not change taints
	// Keep: Check also looks for the rights that Busy and Slots need, these in the namespace of the
	// DaemonSet; nil: it does not.
	Keep *Slots
	Boot string // this machine's boot id, by which the node is recognised as this machine; "" if not known
	// Vouched says that somebody said which machine the node is, so that this need not be the node.
	Vouched bool
	// Fresh says that this process made the certificate, after it had withdrawn the node. What the
	// node says of a time to come was then written by a clock that was wrong, and counts for nothing.
	Fresh bool
}

// Validate reports missing or wrong options.
func (o Options) Validate() error {
	if o.Node == "" {
		return errors.New("which node is this? set NODE_NAME in the pod from fieldRef spec.nodeName, or name it")
	}
	if o.Taint != "" && !slices.Contains(taintEffects, o.Taint) {
		return fmt.Errorf("the taint's effect is one of %s, not %q", strings.Join(taintEffects, ", "), o.Taint)
	}
	return nil
}

// A Cluster is a connection to an API server.
type Cluster struct {
	client dynamic.Interface
	now    func() time.Time
}

// limit is the timeout of one request.
const limit = 15 * time.Second

// Namespace returns the namespace of this pod, or of KUBECONFIG's context.
func Namespace() string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false
	name, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).Namespace()
	if err != nil {
		return metav1.NamespaceDefault
	}
	return name
}

// Connect returns the cluster that KUBECONFIG names, or else ~/.kube/config, or else the cluster
// of this pod. It does not send a request yet.
func Connect() (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to talk to: neither KUBECONFIG nor a pod's service account: %w", err)
	}
	return connect(config)
}

func connect(config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.Timeout, config.UserAgent = limit, "assay-harness"
	config.QPS = -1 // a process has one request at a time: no more of them are to wait here
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{client, time.Now}, nil
}

var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// Act writes the outcome of the certificate to the node and returns a message for the user. Its
// error says which rights are missing, if any are. It wraps [attest.ErrSubject] if the node is another
// machine, [attest.ErrTime] if the certificate is a pass that is older than what it would undo, and
// [attest.ErrUse] if it is one that does not answer the checks by which the node failed; then nothing
// is written.
func (c *Cluster) Act(ctx context.Context, adm *certificate.Admitted, o Options) (string, error) {
	return c.ActDue(ctx, adm, o, "")
}

// Failed returns the checks by which the machine failed that the node is.
func (c *Cluster) Failed(ctx context.Context, o Options) ([]string, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	object, err := c.client.Resource(nodes).Get(ctx, o.Node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", o.Node, err)
	}
	n, err := readNode(object.Object)
	if err != nil {
		return nil, err
	}
	return n.failed(), nil
}

// ActDue is Act for a node that is to be certified again, although the certificate counts until
// then. due says why, and stands in the condition.
func (c *Cluster) ActDue(ctx context.Context, adm *certificate.Admitted, o Options, due string) (string, error) {
	if err := o.Validate(); err != nil {
		return "", err
	}
	cond := condition(adm.Statement())
	if due != "" {
		cond.Message = site.Shorten(cond.Message+"; to be certified again: "+due, maxMessage)
		if cond.Status == "True" {
			cond.Reason = "ChecksPassedAndDue"
		}
	}
	err := c.write(ctx, o, cond, func(n *node) ([]byte, error) {
		var limit time.Time
		if o.Fresh {
			limit = c.now().Add(clockSlack)
		}
		if err := errors.Join(n.is(adm, o), n.mayFollow(adm, limit)); err != nil {
			return nil, err
		}
		return n.metaPatch(adm, o.Taint, limit)
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("node %s: %s=%s, %s: %s", o.Node, conditionType, cond.Status, cond.Reason, cond.Message), nil
}

// Withdraw labels a node as pending, and says why in its condition, so that no pod which selects
// certified nodes is sent there. A node that failed keeps its label.
func (c *Cluster) Withdraw(ctx context.Context, o Options, why string) error {
	if err := o.Validate(); err != nil {
		return err
	}
	cond := nodeCondition{Type: conditionType, Status: "Unknown", Reason: "CertificationPending", Message: site.Prefix + why}
	return c.write(ctx, o, cond, (*node).pendingPatch)
}

// Void takes the label of a pass, or of a certification that waits, from a node, and says why in its
// condition. A node that failed keeps its label.
func (c *Cluster) Void(ctx context.Context, o Options, why string) error {
	if err := o.Validate(); err != nil {
		return err
	}
	cond := nodeCondition{Type: conditionType, Status: "Unknown", Reason: "NotCertified", Message: site.Shorten(site.Prefix+why, maxMessage)}
	return c.write(ctx, o, cond, (*node).voidPatch)
}

// Observe says in a node's condition what checks without load found, and why the node would be
// certified. It takes label, annotation and taint away, so that nothing else depends on it.
func (c *Cluster) Observe(ctx context.Context, st *certificate.Statement, o Options, due string) error {
	if err := o.Validate(); err != nil {
		return err
	}
	cond := condition(st)
	if cond.Status == "True" {
		cond.Status, cond.Reason = "Unknown", "ObservedOnly"
	}
	if due != "" {
		cond.Message += "; observed only, else it would be certified: " + due
	}
	cond.Message = site.Shorten(cond.Message, maxMessage)
	return c.write(ctx, o, cond, (*node).clearPatch)
}

// Clear takes all that assay wrote from a node: label, annotation, taint and condition.
func (c *Cluster) Clear(ctx context.Context, name string) error {
	err := retry.OnError(backoff, func(err error) bool { return ctx.Err() == nil && passing(err) }, func() error { return c.clearOnce(ctx, name) })
	if err != nil && !apierrors.IsNotFound(err) { // a node that is gone has nothing
		return fmt.Errorf("node %s: %w", name, err)
	}
	return nil
}

func (c *Cluster) clearOnce(ctx context.Context, name string) error {
	object, err := c.client.Resource(nodes).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	n, err := readNode(object.Object)
	if err != nil {
		return err
	}
	patch, err := n.clearPatch()
	if err != nil {
		return err
	}
	if _, err = c.client.Resource(nodes).Patch(ctx, name, mergePatch, patch, metav1.PatchOptions{FieldManager: manager}); err != nil {
		return err
	}
	patch = []byte(`{"status":{"conditions":[{"$patch":"delete","type":"` + conditionType + `"}]}}`)
	_, err = c.client.Resource(nodes).Patch(ctx, name, strategicPatch, patch, metav1.PatchOptions{FieldManager: manager}, "status")
	return err
}

// Marked returns the names of the nodes that have something of assay's.
func (c *Cluster) Marked(ctx context.Context) (names []string, err error) {
	for next := ""; ; {
		list, err := c.client.Resource(nodes).List(ctx, metav1.ListOptions{Limit: 200, Continue: next})
		if err != nil {
			return nil, fmt.Errorf("the nodes: %w", err)
		}
		for i := range list.Items {
			n, err := readNode(list.Items[i].Object)
			if err != nil {
				return nil, err
			}
			if n.marked() {
				names = append(names, list.Items[i].GetName())
			}
		}
		if next = list.GetContinue(); next == "" {
			return names, nil
		}
	}
}

// A right is an RBAC rule.
type right struct{ verb, group, resource, subresource string }

// rights are the rights that Act needs.
var rights = []right{{"get", "", "nodes", ""}, {"patch", "", "nodes", ""}, {"patch", "", "nodes", "status"}}

// podRights are the rights that Busy needs.
var podRights = []right{{"list", "", "pods", ""}}

// slotRights are the rights in its namespace that Slots needs.
var slotRights = []right{
	{"list", leases.Group, "leases", ""}, {"create", leases.Group, "leases", ""}, {"update", leases.Group, "leases", ""}, {"get", daemonSets.Group, "daemonsets", ""},
}

// denied is the error of a process that lacks rights, which it lists.
type denied struct {
	Node    string
	missing []right
}

func (d *denied) Error() string {
	var rules []string
	for _, r := range d.missing {
		resource := r.resource
		if r.subresource != "" {
			resource += "/" + r.subresource
		}
		rules = append(rules, fmt.Sprintf(`{apiGroups: [%q], resources: [%s], verbs: [%s]}`, r.group, resource, r.verb))
	}
	return "this account may not mark nodes; its role lacks " + strings.Join(rules, ", ")
}

var reviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}

// Check reports missing rights in advance.
func (c *Cluster) Check(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	var missing []right
	ask := func(needed []right, namespace string, name func(right) string) error {
		for _, r := range needed {
			allowed, err := c.may(ctx, r, namespace, name(r))
			if err != nil {
				return fmt.Errorf("asking for rights: %w", err)
			}
			if !allowed {
				missing = append(missing, r)
			}
		}
		return nil
	}
	onNode := func(right) string { return o.Node }
	err := ask(rights, "", onNode)
	if o.Keep != nil && err == nil {
		err = errors.Join(ask(podRights, "", onNode), ask(slotRights, o.Keep.Namespace, func(r right) string {
			if r.verb == "get" {
				return o.Keep.DaemonSet
			}
			return ""
		}))
	}
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return &denied{o.Node, missing}
	}
	return nil
}
