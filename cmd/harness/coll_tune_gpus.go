package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/internal/nearest"
)

// A gpuTuning is what "harness coll tune -g" measures.
type gpuTuning struct {
	sizes       []int // ascending, of whole floats
	collectives []gpuCollective
}

// A gpuCollective is one that can be tuned. Its size is the whole vector's, or
// one rank's part of it, and then buffers may have one for each rank.
type gpuCollective struct {
	name   string
	coll   schedule.Collective
	byPart bool
	run    func(c perf.Comm, send, recv []byte, count int) error
}

var gpuCollectives = []gpuCollective{
	{"all_reduce", schedule.AllReduce, false, func(c perf.Comm, s, r []byte, n int) error { return c.AllReduce(s, r, n, elem.Float32, elem.Sum) }},
	{"all_gather", schedule.AllGather, true, func(c perf.Comm, s, r []byte, n int) error { return c.AllGather(s, r, n, elem.Float32) }},
	{"reduce_scatter", schedule.ReduceScatter, true, func(c perf.Comm, s, r []byte, n int) error {
		return c.ReduceScatter(s, r, n, elem.Float32, elem.Sum)
	}},
	{"broadcast", schedule.Broadcast, false, func(c perf.Comm, s, r []byte, n int) error { return c.Broadcast(s, r, n, elem.Float32, 0) }},
	{"reduce", schedule.Reduce, false, func(c perf.Comm, s, r []byte, n int) error { return c.Reduce(s, r, n, elem.Float32, elem.Sum, 0) }},
	{"alltoall", schedule.AllToAll, true, func(c perf.Comm, s, r []byte, n int) error { return c.AllToAll(s, r, n, elem.Float32) }},
	{"sendrecv", schedule.SendRecv, false, func(c perf.Comm, s, r []byte, n int) error {
		return c.SendRecv(s, (c.Rank()+1)%c.Size(), r, (c.Rank()+c.Size()-1)%c.Size(), n, elem.Float32)
	}},
	{"gather", schedule.Gather, true, func(c perf.Comm, s, r []byte, n int) error { return c.Gather(s, r, n, elem.Float32, 0) }},
	{"scatter", schedule.Scatter, true, func(c perf.Comm, s, r []byte, n int) error { return c.Scatter(s, r, n, elem.Float32, 0) }},
}

// usual are those that are tuned unless --collectives names others: gather and
// scatter have rules that are good enough.
const usual = 7

// parseCollectives reads a list of names; empty: the usual ones.
func parseCollectives(list string) ([]gpuCollective, error) {
	if list == "" {
		return gpuCollectives[:usual], nil
	}
	var out []gpuCollective
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(gpuCollectives, func(o gpuCollective) bool { return o.name == name })
		switch {
		case i < 0:
			return nil, fmt.Errorf("there is no collective %q; did you mean %q?", name, nearest.To(name, perf.Collectives()))
		case slices.ContainsFunc(out, func(o gpuCollective) bool { return o.name == name }):
			return nil, fmt.Errorf("%s is there twice", name)
		}
		out = append(out, gpuCollectives[i])
	}
	return out, nil
}
