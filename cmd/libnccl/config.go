//go:build cuda && cgo

package main

// #include <limits.h>
// #include "front/engine.h"
import "C"

import (
	"context"
	"math"
	"slices"
	"strconv"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
)

// of returns the function that creates a communicator from another one.
func of(c *comm, w *C.struct_assay_new, env []string) (func(context.Context) (*coll.Comm, error), error) {
	parent, err := using("making a communicator out of another one", w.parent)
	if err != nil {
		return nil, err
	}
	from := parent.made
	c.parent, c.device = parent, parent.device
	if w.config.given == 0 {
		c.nonblocking = parent.nonblocking
	}
	as := child(&w.config, env)
	switch w.how {
	case C.ASSAY_GROW:
		n := int(w.ranks)
		var id *coll.UniqueID
		parent.mu.Lock()
		if w.has_id != 0 {
			id = idOf(w)
		} else { // the rank that made it may leave it to its own call to know so
			id = parent.next
		}
		parent.next = nil
		parent.mu.Unlock()
		return func(ctx context.Context) (*coll.Comm, error) { return from.Grow(ctx, n, id, as) }, nil
	case C.ASSAY_SPLIT:
		color, key := int(w.color), int(w.key)
		return func(ctx context.Context) (*coll.Comm, error) { return from.Split(ctx, color, key, as) }, nil
	}
	var without []int
	for _, r := range unsafe.Slice(w.without, int(w.n_without)) {
		without = append(without, int(r))
	}
	revoke := w.abort != 0
	return func(ctx context.Context) (*coll.Comm, error) {
		if revoke {
			if err := from.Revoke(); err != nil {
				return nil, err
			}
		}
		return from.Shrink(ctx, without, as)
	}, nil
}

// child converts the configuration of a communicator that is created from another one.
// As in NCCL, it is the parent's if none is given, and otherwise what the environment and
// the configuration say.
func child(c *C.struct_assay_config, env []string) (as coll.Child) {
	if c.given == 0 {
		return as
	}
	as.Environ = slices.Concat(env, settings(c))
	if c.name != nil {
		as.Name = C.GoString(c.name)
	}
	return as
}

// settings returns a program's configuration as variables. Variables of the environment
// take precedence, under any of their names, as in NCCL.
func settings(c *C.struct_assay_config) (env []string) {
	mixing := c.graph_usage // 2: any graphs and other calls; 0, 1: no graph, or one at a time
	if mixing != C.INT_MIN {
		mixing /= 2
	}
	for _, s := range [...]struct {
		name  string
		value C.int32_t
	}{{"NCCL_MIN_NRINGS", c.min_ctas}, {"NCCL_MAX_NRINGS", c.max_ctas}, {"NCCL_IB_TC", c.traffic_class}, {"NCCL_COLLNET_ENABLE", c.coll_net}, {"NCCL_CTA_POLICY", c.cta_policy},
		{"NCCL_GRAPH_MIXING_SUPPORT", mixing}, {"NCCL_GRAPH_STREAM_ORDERING", c.graph_order}} {
		if s.name == "NCCL_IB_TC" && (s.value < 0 || s.value > math.MaxUint8) { // NCCL takes any number, and a packet has eight bits for it
			continue
		}
		if s.value != C.INT_MIN {
			env = append(env, s.name+"="+strconv.Itoa(int(s.value)))
		}
	}
	if c.net != nil {
		env = append(env, "NCCL_NET="+C.GoString(c.net))
	}
	return env
}
