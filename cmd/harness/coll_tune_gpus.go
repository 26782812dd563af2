package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/nearest"
)

// A gpuTuning is what "harness coll tune -g" measures.
type gpuTuning struct {
	sizes       []int // ascending, of whole floats
	collectives []op.Collective
}

// gpuCollectives are the collectives that can be tuned. A size is that of the whole
// vector, or of one rank's part.
var gpuCollectives = []op.Collective{op.AllReduce, op.AllGather, op.ReduceScatter, op.Broadcast, op.Reduce, op.AllToAll, op.SendRecv, op.Gather, op.Scatter}

// usual is how many of gpuCollectives are tuned by default: the rules of gather and
// scatter are already good enough.
const usual = 7

// parseCollectives parses a list of names. An empty list means the usual ones.
func parseCollectives(list string) ([]op.Collective, error) {
	if list == "" {
		return gpuCollectives[:usual], nil
	}
	var out []op.Collective
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(gpuCollectives, func(o op.Collective) bool { return o.Test() == name })
		switch {
		case i < 0:
			return nil, fmt.Errorf("there is no collective %q; did you mean %q?", name, nearest.To(name, perf.Collectives()))
		case slices.ContainsFunc(out, func(o op.Collective) bool { return o.Test() == name }):
			return nil, fmt.Errorf("%s is there twice", name)
		}
		out = append(out, gpuCollectives[i])
	}
	return out, nil
}
