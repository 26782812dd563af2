package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	leases     = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	daemonSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
)

// slotKey is the key of the label of Leases that are slots; its value is the slot's index.
const slotKey = "assay-hpc.github.io/slot"

// A Slot is a Lease by which a keeper has its node out of service.
type Slot struct {
	Index   int
	Holder  string // "": nobody
	Version string // "": it was never written
}

// ErrTaken says that a slot was written since it was read.
var ErrTaken = errors.New("the Lease was written in between")

// Slots are Leases of a namespace, in which one DaemonSet has all keepers. A write of a Lease that
// was written in between is refused by the API server.
type Slots struct {
	*Cluster
	Namespace, DaemonSet string
}

// Nodes returns the number of nodes on which the DaemonSet should have a pod.
func (s Slots) Nodes(ctx context.Context) (int, error) {
	d, err := s.client.Resource(daemonSets).Namespace(s.Namespace).Get(ctx, s.DaemonSet, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("how many nodes have a keeper: %w", err)
	}
	n, _, err := unstructured.NestedInt64(d.Object, "status", "desiredNumberScheduled")
	if err != nil {
		return 0, fmt.Errorf("how many nodes have a keeper: %w", err)
	}
	return int(n), nil
}

// List returns the slots that were ever written.
func (s Slots) List(ctx context.Context) ([]Slot, error) {
	list, err := s.client.Resource(leases).Namespace(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: slotKey})
	if err != nil {
		return nil, fmt.Errorf("the slots of nodes that are withdrawn: %w", err)
	}
	var out []Slot
	for i := range list.Items {
		slot, err := readSlot(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, slot)
	}
	return out, nil
}

func readSlot(object *unstructured.Unstructured) (Slot, error) {
	i, err := strconv.Atoi(object.GetLabels()[slotKey])
	if err != nil || i < 0 || object.GetName() != slotName(i) {
		return Slot{}, fmt.Errorf("the Lease %s/%s has the label %s=%q, which no keeper writes: delete it", object.GetNamespace(), object.GetName(), slotKey, object.GetLabels()[slotKey])
	}
	holder, _, err := unstructured.NestedString(object.Object, "spec", "holderIdentity")
	return Slot{Index: i, Holder: holder, Version: object.GetResourceVersion()}, err
}

func slotName(i int) string { return fmt.Sprint("assay-withdrawn-", i) }

// Write writes a slot if it still has the given version.
func (s Slots) Write(ctx context.Context, slot Slot) (Slot, error) {
	spec := map[string]any{"renewTime": s.now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")} // a new one, so that the version is a new one
	if slot.Holder != "" {
		spec["holderIdentity"] = slot.Holder
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": slotName(slot.Index), "namespace": s.Namespace, "labels": map[string]any{slotKey: strconv.Itoa(slot.Index)}},
		"spec":     spec,
	}}
	to := s.client.Resource(leases).Namespace(s.Namespace)
	var got *unstructured.Unstructured
	var err error
	if slot.Version == "" {
		got, err = to.Create(ctx, object, metav1.CreateOptions{FieldManager: manager})
	} else {
		object.SetResourceVersion(slot.Version)
		got, err = to.Update(ctx, object, metav1.UpdateOptions{FieldManager: manager})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && slot.Version != "":
		return Slot{}, ErrTaken
	case err != nil:
		return Slot{}, fmt.Errorf("the slot %s/%s: %w", s.Namespace, slotName(slot.Index), err)
	}
	return readSlot(got)
}
