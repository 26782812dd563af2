package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// threeNodes are machines of which the others say what they are told to.
type threeNodes struct {
	says func(own word) []word
	run  runner
	err  error
}

func (threeNodes) Size() int            { return 3 }
func (threeNodes) Name(rank int) string { return fmt.Sprintf("node%d", rank) }

func (j threeNodes) Ask(b []byte, judge func([][]byte) ([]byte, error)) ([]byte, error) {
	if j.err != nil {
		return nil, j.err
	}
	var own word
	if err := json.Unmarshal(b, &own); err != nil {
		return nil, err
	}
	all := [][]byte{b}
	for _, w := range j.says(own) {
		other, err := json.Marshal(w)
		if err != nil {
			return nil, err
		}
		if w.Check == "" { // lost
			other = nil
		}
		all = append(all, other)
	}
	return judge(all)
}

func (j threeNodes) Run(ctx context.Context, args ...string) (Output, error) {
	return j.run(ctx, args...)
}

func (j threeNodes) RunOn(ctx context.Context, args ...string) (Output, error) {
	return j.run(ctx, args...)
}

// TestOverNodes: a check that all make together has one result for all, whatever
// keeps one of them from it.
func TestOverNodes(t *testing.T) {
	six := document(300)
	six.Ranks = 6
	machine := twoGPUs
	machine.Expect.Figures = []platform.Expected{
		{Name: "all_reduce", Nodes: 3, GPUs: 6, Floor: &platform.Floor{Cited: platform.Cited{Value: 250, Source: "of three machines"}}},
		{Name: "all_reduce", Nodes: 1, GPUs: 6, Floor: &platform.Floor{Cited: platform.Cited{Value: 999, Source: "of one"}}},
	}
	none := facts{}
	agree := func(own word) []word { return []word{own, own} }
	for name, tt := range map[string]struct {
		machine facts
		job     threeNodes
		want    result.Verdict
		text    string
	}{
		"all":        {machine, threeNodes{says: agree}, result.Pass, "3 machines, 6 ranks, every result verified"},
		"no GPUs":    {none, threeNodes{says: agree}, result.Skip, "there is no GPU on PCI"},
		"one has no": {none, threeNodes{says: func(own word) []word { return []word{{Check: own.Check, GPUs: 2}, {Check: own.Check, GPUs: 2}} }}, result.Error, "node0: there is no GPU on PCI"},
		"broken": {machine, threeNodes{says: func(own word) []word {
			return []word{own, {Check: own.Check, Verdict: result.Error, Reason: "no driver", Remedy: "load it"}}
		}}, result.Error, "node2: no driver | load it"},
		"fewer":     {machine, threeNodes{says: func(own word) []word { return []word{own, {Check: own.Check, GPUs: 1}} }}, result.Error, "node2 has 1 GPU, and node0 has 2 GPUs"},
		"elsewhere": {machine, threeNodes{says: func(own word) []word { return []word{own, {Check: "mesh"}} }}, result.Error, `node2 is at another check ("mesh")`},
		"lost":      {machine, threeNodes{says: func(own word) []word { return []word{own, {}} }}, result.Pass, "3 machines"},
		"alone":     {machine, threeNodes{says: func(word) []word { return []word{{}, {}} }}, result.Error, "fewer than two machines are left"},
		"broken up": {machine, threeNodes{err: errors.New("rank 0 is lost")}, result.Error, "rank 0 is lost"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.job.run = says(t, 0, six)
			r := certify(t, &Config{Machine: tt.machine, Job: tt.job}, "{run: coll, with: {operations: [all_reduce], over: nodes}}")["coll/all_reduce"]
			want(t, r, tt.want, tt.text)
			if r.Verdict == result.Pass && r.Measured.Limit.Value != 250 {
				t.Errorf("it is held against %+v; want the figure of three machines", r.Measured.Limit)
			}
		})
	}
	alone := certify(t, &Config{Machine: machine}, "{run: coll, with: {operations: [all_reduce], over: nodes}}")["coll/all_reduce"]
	want(t, alone, result.Skip, "it takes several machines")
	want(t, certify(t, &Config{Job: threeNodes{says: agree}}, "{run: mesh, with: {over: nodes}}")["mesh"], result.Skip, "no RDMA device has a port that is up")
	want(t, certify(t, &Config{}, "{run: mesh, with: {over: nodes}}")["mesh"], result.Skip, "it takes several machines")
	groups := threeNodes{says: agree, run: func(_ context.Context, args ...string) (Output, error) {
		if args[0] != "NCCL_TESTS_SPLIT=DIV 2" || args[1] != "coll" {
			t.Errorf("it ran %q", args)
		}
		b, err := json.Marshal(six)
		return Output{Stdout: b}, err
	}}
	want(t, certify(t, &Config{Machine: machine, Job: groups}, "{run: coll, with: {operations: [all_reduce], over: nodes, split: DIV 2}}")["coll/all_reduce"], result.Pass, "6 ranks")
}

// TestHunt: the result is the report's.
func TestHunt(t *testing.T) {
	slow := result.Failed("b is slow")
	slow.ID = fabric.ResultID
	job := threeNodes{says: func(own word) []word { return []word{own, own} }, run: says(t, 1, fabric.HuntReport{Report: result.Report{Kind: "hunt", Results: []result.Result{slow}}})}
	want(t, certify(t, &Config{Job: job}, "{run: hunt}")["hunt"], result.Fail, "b is slow")
	want(t, certify(t, &Config{}, "{run: hunt}")["hunt"], result.Skip, "it takes several machines")
	want(t, certify(t, &Config{Job: threeNodes{says: func(own word) []word { return []word{own, own} }}}, "{run: hunt, with: {tool: coll}}")["hunt"], result.Skip, "there is no GPU on PCI")
}
