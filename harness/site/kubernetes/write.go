package kubernetes

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// write does writeOnce until no other client writes in between. Its error names the node, and
// missing rights.
func (c *Cluster) write(ctx context.Context, o Options, cond nodeCondition, meta func(*node) ([]byte, error)) error {
	again := func(err error) bool { return ctx.Err() == nil && passing(err) }
	err := retry.OnError(backoff, again, func() error { return c.writeOnce(ctx, o.Node, cond, meta) })
	if apierrors.IsForbidden(err) {
		if missing := c.Check(ctx, o); missing != nil {
			err = missing
		}
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", o.Node, err)
	}
	return nil
}

// writeOnce reads the node and writes what differs: first taint, label and annotation, which keep
// work away, then the condition, which informs people.
func (c *Cluster) writeOnce(ctx context.Context, name string, cond nodeCondition, meta func(*node) ([]byte, error)) error {
	object, err := c.client.Resource(nodes).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	n, err := readNode(object.Object)
	if err != nil {
		return err
	}
	patch, err := meta(n)
	if err != nil {
		return err
	}
	changed, err := c.client.Resource(nodes).Patch(ctx, name, mergePatch, patch, metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return err
	}
	if n, err = readNode(changed.Object); err != nil {
		return err
	}
	if patch, err = n.statusPatch(cond, c.now()); err != nil {
		return err
	}
	_, err = c.client.Resource(nodes).Patch(ctx, name, strategicPatch, patch, metav1.PatchOptions{FieldManager: manager}, "status")
	return err
}

// manager is the owner of these fields in a node's managedFields.
const manager = "assay"

// backoff allows six attempts within some seconds.
var backoff = wait.Backoff{Steps: 6, Duration: 50 * time.Millisecond, Factor: 3, Jitter: 0.2}

// passing reports whether a retry may succeed: another client wrote in between, so that
// everything must be read again, or the API server does not answer, has another leader of its
// store, or was started again. A write whose answer was lost may be repeated: it names the version.
func passing(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsTimeout(err)
}
