package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/harness/netenv"
	"github.com/assay-hpc/assay/internal/golden"
)

// planOf plans a fixture's node as harness show environment with the run's flags would.
func planOf(t *testing.T, f *fixture, run fixtureRun) (*netenv.Node, *netenv.Plan, string) {
	t.Helper()
	var stderr bytes.Buffer
	o := envOptions{stderr: &stderr}
	var node *netenv.Node
	var plan *netenv.Plan
	app := &cli.App{
		// The flag for help is one variable of the library's, and tests run at once.
		Name: "env", HideHelp: true, Flags: o.flags(), Writer: io.Discard, ErrWriter: io.Discard,
		Action: func(c *cli.Context) (err error) {
			node, plan, err = o.plan(context.Background(), f.env)
			return err
		},
	}
	if err := app.Run(append([]string{"env", "--root", f.layOut(run)}, run.flags...)); err != nil {
		t.Fatal(err)
	}
	return node, plan, stderr.String()
}

// TestEnvPlatforms holds the plans of real platforms' nodes against what was
// reviewed.
func TestEnvPlatforms(t *testing.T) {
	files, err := filepath.Glob("testdata/env/*.node")
	if err != nil || len(files) < 10 {
		t.Fatalf("fixtures: %v, %v", files, err)
	}
	for _, file := range files {
		f := readFixture(t, file)
		name := strings.TrimSuffix(filepath.Base(file), ".node")
		for _, run := range f.runs {
			t.Run(name+"/"+run.name, func(t *testing.T) {
				t.Parallel()
				own := *f
				own.t = t
				node, plan, stderr := planOf(t, &own, run)
				if stderr != "" {
					t.Errorf("stderr: %s", stderr)
				}
				var b bytes.Buffer
				if err := plan.WriteText(&b, node); err != nil {
					t.Fatal(err)
				}
				golden.Check(t, "env/"+name+"."+run.name+".golden", b.String())
				ncclReads(t, plan)
			})
		}
	}
}

// ncclReads wants NCCL's reader to know each name and to take each value.
func ncclReads(t *testing.T, plan *netenv.Plan) {
	t.Helper()
	var environ []string
	for _, v := range plan.Set {
		environ = append(environ, v.Name+"="+v.Value)
	}
	_, warnings, err := knob.Load(environ, func(string) ([]byte, error) { return nil, os.ErrNotExist })
	if err != nil {
		t.Errorf("knob.Load: %v", err)
	}
	for _, w := range warnings {
		if w.Level == debug.Warn {
			t.Errorf("knob.Load: %s", w.Message)
		}
	}
}

// TestEnvTopologyFile: a file of NCCL's or ours says what cards there are where
// the tree has none, and where they sit where it has.
func TestEnvTopologyFile(t *testing.T) {
	bare := &fixture{t: t, lines: []string{"cpus GenuineIntel 2 56", "net eth0", "route 0.0.0.0/0 10.0.0.1 eth0"}}
	for _, tt := range []struct{ file, hca string }{
		{"dgx-h100.xml", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7"},
		{"gb200-4.xml", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"},
	} {
		node, plan, _ := planOf(t, bare, fixtureRun{flags: []string{"--topo", "../../coll/topology/testdata/" + tt.file}})
		got := ""
		for _, v := range plan.Set {
			if v.Name == "NCCL_IB_HCA" {
				got = v.Value
			}
		}
		if got != tt.hca || len(node.GPUs) == 0 || plan.Control.Interface != "eth0" {
			t.Errorf("%s: NCCL_IB_HCA=%s, %d GPUs, control %s; want %s", tt.file, got, len(node.GPUs), plan.Control.Interface, tt.hca)
		}
	}
	one := &fixture{t: t, lines: append(bare.lines, "rdma mlx5_3 0000:99:00.0 device=1021 numa=0 at=0000:98/p layer=InfiniBand rate=400,NDR")}
	node, _, _ := planOf(t, one, fixtureRun{flags: []string{"--topo", "../../coll/topology/testdata/dgx-h100.xml"}})
	if len(node.Ports) != 1 || node.Ports[0].Paths[3] != "PXB" || node.Ports[0].Paths[7] != "SYS" {
		t.Errorf("the place of mlx5_3 by the file: %+v", node.Ports)
	}
}
