package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A pod has only the fields that say whether it holds GPUs.
type pod struct {
	Spec struct {
		Containers     []container `json:"containers"`
		InitContainers []container `json:"initContainers"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type container struct {
	Resources struct {
		Limits map[string]any `json:"limits"`
	} `json:"resources"`
}

// holdsGPUs reports whether the pod was given GPUs, or parts of GPUs, and has not ended.
func (p *pod) holdsGPUs() bool {
	if p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
		return false
	}
	return slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c container) bool {
		for name, n := range c.Resources.Limits {
			if fmt.Sprint(n) != "0" && (name == "nvidia.com/gpu" || strings.HasPrefix(name, "nvidia.com/gpu.") || strings.HasPrefix(name, "nvidia.com/mig-")) {
				return true
			}
		}
		return false
	})
}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// Busy returns the pods on a node that hold GPUs, as NAMESPACE/NAME. A pod which sees GPUs
// without having asked for them, and one that has them from a resource claim, is not among them.
func (c *Cluster) Busy(ctx context.Context, name string) ([]string, error) {
	list, err := c.client.Resource(pods).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return nil, fmt.Errorf("the pods of node %s: %w", name, err)
	}
	var busy []string
	for i := range list.Items {
		holds, err := holdsGPUs(&list.Items[i])
		if err != nil {
			return nil, fmt.Errorf("the pods of node %s: %w", name, err)
		}
		if holds {
			busy = append(busy, list.Items[i].GetNamespace()+"/"+list.Items[i].GetName())
		}
	}
	return busy, nil
}

func holdsGPUs(object *unstructured.Unstructured) (bool, error) {
	b, err := json.Marshal(object.Object)
	if err != nil {
		return false, err
	}
	p := new(pod)
	if err := json.Unmarshal(b, p); err != nil {
		return false, err
	}
	return p.holdsGPUs(), nil
}
