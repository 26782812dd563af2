package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/host/netenv"
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

// TestEnvKeepsConfiguration: what an administrator wrote into NCCL's files stays, line by line, and
// nothing is set in the place of a line that is odd; what NCCL does not do of a line is said, with its
// place. What only our engine does not do is not.
func TestEnvKeepsConfiguration(t *testing.T) {
	f := readFixture(t, "testdata/env/azure-nd-h100-v5.node")
	for _, tt := range []struct{ line, says string }{
		{"NCCL_GRAPH_FILE=/opt/graph.xml", ""},
		{"NCCL_GRAPH_FILE=\"/opt/graph.xml\"", "/etc/nccl.conf:2): the quotes are a part of the value"},
		{"NCCL_BUFFSIZE=8M", `NCCL_BUFFSIZE="8M" (/etc/nccl.conf:2): NCCL reads 8 of it`},
		{"export NCCL_IB_TC=106", "/etc/nccl.conf:2: NCCL_IB_TC is not set"},
		{"NCCL_P2P_LEVEL=5", ""},
		{"NCCL_P2P_DISABLE=true", "NCCL reads it as 0"},
		{"NCCL_CTA_POLICY=ZERO|EFFICIENCY", ""},
		{"NCCL_ALGO=NVLS", ""},
		{"NCCL_ALGO=Rings", "/etc/nccl.conf:2"},
		{"NCCL_MAX_NCHANNELS=128", ""},
		{"NCCL_DEBUG_FILE=/no/such/dir/log", ""},
		{"NCCL_IB_DATA_DIRECT=1", ""},
		{"NCCL_NEW_IN_2099=1", "NCCL_NEW_IN_2099 (/etc/nccl.conf:2) is unknown"},
		{"no equals sign", `/etc/nccl.conf:2: "no equals sign" is not KEY=VALUE`},
		{"NCCL_TOPO_FILE=/etc/nccl.conf", ""},
		{"\xff\xfe=\x00", "/etc/nccl.conf:2"},
		{"ASSAY_TIMEOUT=never", "ASSAY_TIMEOUT"},
	} {
		for _, hca := range []string{"NCCL_IB_HCA=mlx5_ib2", "export NCCL_IB_HCA=mlx5_ib2", "NCCL_IB_HCA = mlx5_ib2", "NCCL_IB_HCA: mlx5_ib2", `NCCL_IB_HCA="mlx5_ib2"`} {
			own := *f
			own.t = t
			root := own.layOut(f.runs[0])
			(&tree{t: t, root: root}).write("/etc/nccl.conf", "UCX_NET_DEVICES=mlx5_ib2:1\n"+tt.line+"\n"+hca+"\n")
			o := envOptions{stderr: io.Discard, root: root}
			_, plan, err := o.plan(context.Background(), nil)
			if err != nil {
				t.Errorf("%q: %v", tt.line, err)
				continue
			}
			for _, v := range plan.Set {
				if v.Name == "NCCL_IB_HCA" || v.Name == "UCX_NET_DEVICES" || strings.Contains(tt.line, v.Name+"=") {
					t.Errorf("%q, %q: %s=%s is set over the administrator's", tt.line, hca, v.Name, v.Value)
				}
			}
			var kept, said []string
			for _, k := range plan.Kept {
				kept = append(kept, k.Name+" "+k.From)
			}
			for _, want := range []string{"NCCL_IB_HCA /etc/nccl.conf:3", "UCX_NET_DEVICES /etc/nccl.conf:1"} {
				if !slices.Contains(kept, want) {
					t.Errorf("%q, %q: kept %v; want %s", tt.line, hca, kept, want)
				}
			}
			for _, w := range plan.Warnings {
				if w.Config && !strings.Contains(w.What, "NCCL_IB_HCA") {
					said = append(said, w.What)
				}
			}
			if len(said) != min(len(tt.says), 1) || tt.says != "" && !strings.Contains(said[0], tt.says) {
				t.Errorf("%q: said %q; want %q", tt.line, said, tt.says)
			}
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
		node, plan, _ := planOf(t, bare, fixtureRun{flags: []string{"--topo", "../../internal/host/topology/testdata/" + tt.file}})
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
	nameless := filepath.Join(t.TempDir(), "topo.xml")
	xml := `<system version="1"><cpu numaid="0" arch="x86_64"><pci busid="ffff:ff:01.0" class="0x060400"><pci busid="0001:00:00.0" class="0x030200"/><pci busid="0101:00:00.0" class="0x020700"/></pci></cpu></system>`
	if err := os.WriteFile(nameless, []byte(xml), 0o644); err != nil {
		t.Fatal(err)
	}
	_, plan, _ := planOf(t, bare, fixtureRun{flags: []string{"--topo", nameless}})
	for _, v := range plan.Set {
		if strings.HasPrefix(v.Name, "NCCL_IB") || v.Name == "NCCL_NET" {
			t.Errorf("a file without names: %s=%s", v.Name, v.Value)
		}
	}
	if !slices.ContainsFunc(plan.Warnings, func(w netenv.Warning) bool {
		return strings.Contains(w.What, "does not name its RDMA devices (1 port)")
	}) {
		t.Errorf("a file without names: %v", plan.Warnings)
	}
	one := &fixture{t: t, lines: append(bare.lines, "rdma mlx5_3 0000:99:00.0 device=1021 numa=0 at=0000:98/p layer=InfiniBand rate=400,NDR")}
	node, _, _ := planOf(t, one, fixtureRun{flags: []string{"--topo", "../../internal/host/topology/testdata/dgx-h100.xml"}})
	if len(node.Ports) != 1 || node.Ports[0].Paths[3] != "PXB" || node.Ports[0].Paths[7] != "SYS" {
		t.Errorf("the place of mlx5_3 by the file: %+v", node.Ports)
	}
}
