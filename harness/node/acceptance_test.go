package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// other is a kind of checks of another package.
func other(name string) suite.Kind {
	return suite.Kind{Name: name, Make: func(e *suite.Entry) ([]suite.Check, error) {
		return []suite.Check{{ID: e.ID, Run: func(context.Context, *suite.Env) result.Result { return result.Passed("") }}}, nil
	}}
}

// TestLists: each item of docs/acceptance.md names checks that the suite has, or says why none.
func TestLists(t *testing.T) {
	f, err := Load("acceptance")
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{}
	checks, err := f.Checks(append(c.Kinds(), other("image"), other("audit")))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../../docs/acceptance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "## Which list's item")
	named, items := regexp.MustCompile("`([^`]+)`"), 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.Contains(line, "---") || strings.Contains(line, "| list |") {
			continue
		}
		items++
		answer := strings.TrimSpace(cells[2])
		if reason, none := strings.CutPrefix(answer, "— "); none {
			if len(reason) < 20 {
				t.Errorf("%s: no reason", line)
			}
			continue
		}
		all := named.FindAllStringSubmatch(answer, -1)
		if len(all) == 0 {
			t.Errorf("%s: no check", line)
		}
		for _, m := range all {
			found := false
			for _, k := range checks {
				found = found || suite.Covers(m[1], k.ID)
			}
			if !found {
				t.Errorf("%s: the suite has no check %s", line, m[1])
			}
		}
	}
	if items < 40 {
		t.Errorf("%d items; the table was not read", items)
	}
}

func called(id string, r result.Result) result.Result {
	r.ID = id
	return r
}

// TestSame: what most machines have is right, and who differs is named.
func TestSame(t *testing.T) {
	raw := func(facts ...string) (names []string, out []json.RawMessage) {
		for i, f := range facts {
			names, out = append(names, fmt.Sprintf("node%d", i)), append(out, json.RawMessage(f))
		}
		return names, out
	}
	same := `{"driver":"580.1","kernel":"6.8","names":"node"}`
	for name, tt := range map[string]struct {
		facts []string
		want  result.Verdict
		text  string
	}{
		"same":         {[]string{same, same, `{"driver":"580.1","kernel":"6.8","names":"other"}`}, result.Pass, "2 versions and settings, equal on 3 machines"},
		"own adapters": {[]string{`{"$NCCL_IB_HCA":"mlx5_0","$NCCL_ALGO":"Ring"}`, `{"$NCCL_IB_HCA":"mlx5_1","$NCCL_ALGO":"Ring"}`}, result.Pass, "1 versions and settings"},
		"by mpirun":    {[]string{`{"$OMPI_MCA_ess_base_vpid":"0","$OMPI_MCA_orte_ess_node_rank":"0","$UCX_TLS":"tcp"}`, `{"$OMPI_MCA_ess_base_vpid":"1","$OMPI_MCA_orte_ess_node_rank":"1","$UCX_TLS":"tcp"}`}, result.Pass, "1 versions and settings"},
		"one older":    {[]string{same, `{"driver":"570.9","kernel":"6.8"}`, same}, result.Warn, "driver 570.9 on node1; 580.1 on 2 machines | give all machines"},
		"one without":  {[]string{same, same, `{"kernel":"6.8"}`}, result.Warn, "driver missing on node2; 580.1 on 2 machines"},
		"two differ":   {[]string{same, same, `{"driver":"570.9","kernel":"6.5"}`}, result.Warn, "driver 570.9 on node2; 580.1 on 2 machines; and 1 more"},
		"half of each": {[]string{same, `{"driver":"570.9","kernel":"6.8"}`}, result.Warn, "driver 580.1 on node0; 570.9 on 1 machine"},
		"nonsense":     {[]string{same, `[]`}, result.Error, "node1: "},
	} {
		names, stated := raw(tt.facts...)
		t.Run(name, func(t *testing.T) { want(t, called("same", differences(names, stated)), tt.want, tt.text) })
	}
	job := threeNodes{says: func(own word) []word { return []word{own, own} }}
	want(t, certify(t, &Config{Job: job, Facts: map[string]string{"driver": "1"}}, "{run: same}")["same"], result.Pass, "versions and settings, equal on 3 machines")
	want(t, certify(t, &Config{}, "{run: same}")["same"], result.Skip, "it takes several machines")
}

// TestPartitionKeys summarizes the tables of a machine's InfiniBand ports.
func TestPartitionKeys(t *testing.T) {
	port := func(device, state, layer string, keys ...string) string {
		dir := "sys/class/infiniband/" + device + "/ports/1/"
		s := fmt.Sprintf("-- %sstate --\n%s\n-- %slink_layer --\n%s\n", dir, state, dir, layer)
		for i, k := range keys {
			s += fmt.Sprintf("-- %spkeys/%d --\n%s\n", dir, i, k)
		}
		return s
	}
	for name, tt := range map[string]struct{ archive, want string }{
		"no device":       {"-- sys/x --\n", ""},
		"default":         {port("mlx5_0", "4: ACTIVE", "InfiniBand", "0xffff", "0x0000") + port("mlx5_1", "4: ACTIVE", "InfiniBand", "0xffff", "0x0000"), "0xffff on 2 ports"},
		"one lacks a key": {port("mlx5_0", "4: ACTIVE", "InfiniBand", "0xffff", "0x8005") + port("mlx5_1", "4: ACTIVE", "InfiniBand", "0x7fff", "0x0000"), "0x7fff on 1 port, 0x8005 0xffff on 1 port"},
		"Ethernet, down":  {port("mlx5_0", "4: ACTIVE", "Ethernet", "0xffff") + port("mlx5_1", "1: DOWN", "InfiniBand", "0xffff"), ""},
		"empty table":     {port("mlx5_0", "4: ACTIVE", "InfiniBand", "0x0000"), "none on 1 port"},
		"no table":        {port("mlx5_0", "4: ACTIVE", "InfiniBand"), "unknown on 1 port"},
		"no number":       {port("mlx5_0", "4: ACTIVE", "InfiniBand", "0xffff", "key"), "unknown on 1 port"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := partitionKeys(sysfstest.Tree(t, []byte(tt.archive))); got != tt.want {
				t.Errorf("%q; want %q", got, tt.want)
			}
		})
	}
}

// TestTopology reads what Slurm sets for the steps of a job.
func TestTopology(t *testing.T) {
	job := threeNodes{says: func(own word) []word { return []word{own, own} }}
	for name, tt := range map[string]struct {
		environ [][2]string
		want    result.Verdict
		text    string
	}{
		"no job of Slurm": {nil, result.Skip, "no job of Slurm"},
		"flat":            {[][2]string{{"SLURM_JOB_ID", "1"}, {"SLURM_TOPOLOGY_ADDR", "n1"}}, result.Warn, "Slurm knows no topology"},
		"nothing":         {[][2]string{{"SLURM_JOB_ID", "1"}}, result.Warn, "Slurm knows no topology"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{"SLURM_JOB_ID", "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN"} {
				t.Setenv(v, "")
			}
			for _, v := range tt.environ {
				t.Setenv(v[0], v[1])
			}
			want(t, certify(t, &Config{Job: job}, "{run: topology}")["topology"], tt.want, tt.text)
		})
	}
	for name, tt := range map[string]struct {
		places []string
		want   result.Verdict
		text   string
	}{
		"two leaves": {[]string{`{"way":["s","l1"],"kind":"switch.switch.node"}`, `{"way":["s","l2"]}`, `{"way":["s","l1"]}`}, result.Pass, "3 machines below 2 leaves"},
		"one leaf":   {[]string{`{"way":["l1"]}`, `{"way":["l1"]}`}, result.Pass, "2 machines below 1 leaf"},
		"blocks":     {[]string{`{"way":["b1"],"kind":"block.node"}`, `{"way":["b2"],"kind":"block.node"}`}, result.Pass, "2 machines below 2 blocks"},
		"uneven":     {[]string{`{"way":["s","l1"]}`, `{"way":["s","l1"]}`, `{"way":["l2"]}`}, result.Warn, "c: below 1 levels"},
	} {
		var stated []json.RawMessage
		for _, p := range tt.places {
			stated = append(stated, json.RawMessage(p))
		}
		t.Run(name, func(t *testing.T) {
			want(t, called("topology", places([]string{"a", "b", "c"}[:len(stated)], stated)), tt.want, tt.text)
		})
	}
}

// TestScale: groups of 2, and then all three machines, each held against the figure of its number.
func TestScale(t *testing.T) {
	machine := twoGPUs
	floor := func(machines int, value float64) platform.Expected {
		return platform.Expected{Name: "all_reduce", Nodes: machines, GPUs: 2 * machines, Floor: &platform.Floor{Cited: platform.Cited{Value: value, Source: "of a number"}}}
	}
	machine.Expect.Figures = []platform.Expected{floor(2, 300), floor(3, 250)}
	var splits []string
	measured := func(two, three float64) threeNodes {
		splits = nil
		return threeNodes{says: func(own word) []word { return []word{own, own} }, run: func(ctx context.Context, args ...string) (Output, error) {
			splits = append(splits, args[0])
			d := document(two)
			d.Ranks = 4
			if args[0] == "NCCL_TESTS_SPLIT=DIV 3" {
				d = document(three)
				d.Ranks = 6
			}
			return says(t, 0, d)(ctx, args...)
		}}
	}
	const entry = "{run: coll, id: scale, with: {operations: [all_reduce], over: nodes, scale: true, max: 1G}}"
	check := func(job threeNodes) result.Result {
		return certify(t, &Config{Machine: machine, Job: job}, entry)["scale/all_reduce"]
	}
	want(t, check(measured(310, 260)), result.Pass, "GB/s over machines 2: 310, 3: 260; every result verified")
	if want := []string{"NCCL_TESTS_SPLIT=DIV 2", "NCCL_TESTS_SPLIT=DIV 3"}; !slices.Equal(splits, want) {
		t.Errorf("it ran %q; want %q", splits, want)
	}
	want(t, check(measured(310, 240)), result.Fail, "3 machines: 240 GB/s with 1073741824 bytes, less than 250 | see harness hunt")
	lost := measured(310, 260)
	lost.run = func(ctx context.Context, args ...string) (Output, error) {
		d := document(310)
		d.Ranks = 4 // two machines are left
		return says(t, 0, d)(ctx, args...)
	}
	want(t, check(lost), result.Pass, "GB/s over machines 2: 310; every result verified")
	want(t, certify(t, &Config{Machine: machine}, entry)["scale/all_reduce"], result.Skip, "it takes several machines")
}

// TestVariables are in the runs' environment, and the database does not judge them.
func TestVariables(t *testing.T) {
	machine := twoGPUs
	machine.Expect.Figures = []platform.Expected{{Name: "all_reduce", Nodes: 1, GPUs: 2, Floor: &platform.Floor{Cited: platform.Cited{Value: 400, Source: "over NVLink"}}}}
	cfg := &Config{Machine: machine, Run: func(ctx context.Context, args ...string) (Output, error) {
		if args[0] != "NCCL_P2P_DISABLE=1" || args[1] != "NCCL_SHM_DISABLE=1" || args[2] != "coll" {
			t.Errorf("it ran %q", args)
		}
		return says(t, 0, document(30))(ctx, args...)
	}}
	r := certify(t, cfg, `{run: coll, with: {operations: [all_reduce], variables: {NCCL_SHM_DISABLE: "1", NCCL_P2P_DISABLE: "1"}}}`)["coll/all_reduce"]
	want(t, r, result.Pass, "2 ranks")
	if r.Measured.Limit != nil {
		t.Errorf("it is held against %+v", r.Measured.Limit)
	}
}

// TestAbout: a job of 64 machines with eight GPUs and eight ports each is accepted within the suite's
// limit.
func TestAbout(t *testing.T) {
	f, err := Load("acceptance")
	if err != nil {
		t.Fatal(err)
	}
	about := func(machines, gpus, ports int) (sum time.Duration) {
		c := &Config{Machines: machines, Machine: facts{PCI: gpus, GPUs: gpus, CUDA: true, Ports: ports}}
		checks, err := f.Checks(append(c.Kinds(), other("image"), other("audit")))
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range checks {
			sum += k.About
		}
		return sum
	}
	none, four, cluster := about(1, 0, 0), about(1, 4, 0), about(64, 8, 8)
	if none > 30*time.Second || four < 4*time.Minute || four > 10*time.Minute || cluster <= four || cluster > f.Limit {
		t.Errorf("about %v without GPUs, %v with four, %v for 64 machines; the limit is %v", none, four, cluster, f.Limit)
	}
	t.Logf("%v, %v, %v", none, four, cluster)
}
