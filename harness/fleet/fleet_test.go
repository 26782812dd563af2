package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/fleet"
	"github.com/assay-hpc/assay/harness/fleet/fleettest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// maker makes certificates like a real one of docs/examples.
func maker(t testing.TB, example string, seed uint64) *fleettest.Maker {
	t.Helper()
	st, err := fleettest.Real("../..", example)
	if err != nil {
		t.Fatal(err)
	}
	return &fleettest.Maker{Base: st, Rand: rand.New(rand.NewPCG(seed, 46)), Machine: 0.005, Object: 0.005, Start: start}
}

// fleetOf compares n machines; each is changed by plant before it is added.
func fleetOf(m *fleettest.Maker, n int, plant func(i int, st *certificate.Statement)) *fleet.Fleet {
	c := fleet.NewCollector()
	for i := range n {
		st := m.Make(i, 0)
		if plant != nil {
			plant(i, st)
		}
		c.Add(st)
	}
	return c.Fleet(fleet.Options{Now: start.Add(time.Hour)})
}

// outliers are the names of a fleet's outliers, with their first figure and object.
func outliers(f *fleet.Fleet) (out []string) {
	for _, o := range f.Outliers {
		d := o.Deviations[0]
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", o.Node, f.Figures[d.Figure].Name(), strings.TrimSpace(d.Object+" "+d.Peer))))
	}
	return out
}

// A fleet whose machines differ by noise alone has no outlier and no group; small fleets neither.
func TestHealthy(t *testing.T) {
	fleets, with := 0, 0
	for _, n := range []int{5, 8, 16, 64, 150} {
		for seed := range uint64(6) {
			m := maker(t, "h200-2x", seed)
			m.Heavy = seed%2 == 1
			f := fleetOf(m, n, nil)
			fleets++
			if len(f.Outliers)+len(f.Groups) > 0 {
				with++
				t.Logf("%d machines, seed %d: %q, groups %+v", n, seed, outliers(f), f.Groups)
			}
			if len(f.Figures) < 40 {
				t.Fatalf("only %d figures are compared", len(f.Figures))
			}
		}
	}
	if with > 1 { // chance alone: one in a hundred
		t.Errorf("%d of %d healthy fleets have an outlier or a group", with, fleets)
	}
}

// A fault of one machine is found, is the first of the list, and is named with its object.
func TestOutlier(t *testing.T) {
	for _, tt := range []struct {
		name          string
		check, object string
		by            float64
		want          string
	}{
		{"a machine with 12 % less NVLink", "bandwidth/peer_", "", 0.88, "node0040 bandwidth/peer_"},
		{"a machine 5 % slow in a collective", "coll/all_reduce", "", 0.95, "node0040 coll/all_reduce"},
		{"a GPU with slow memory", "memory_bandwidth", "GPU 1", 0.94, "GPU 1"},
		{"a link", "peer_write_ce", "GPU 0 GPU 1", 0.9, "node0040 bandwidth/peer_write_ce GPU 0 GPU 1"},
		{"latency", "host_latency", "", 1.3, "node0040 bandwidth/host_latency"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := fleetOf(maker(t, "h200-2x", 1), 100, func(i int, st *certificate.Statement) {
				if i == 40 {
					fleettest.Slow(st, tt.check, tt.object, tt.by)
				}
			})
			got := outliers(f)
			if len(got) != 1 || !strings.HasPrefix(got[0], "node0040") || !strings.Contains(got[0], tt.want) {
				t.Errorf("outliers: %q; want %q", got, tt.want)
			}
			if len(f.Outliers) > 0 && f.Outliers[0].Remedy == "" {
				t.Error("it has no remedy")
			}
			if len(f.Groups) > 0 {
				t.Errorf("groups: %+v", f.Groups)
			}
		})
	}
}

// Machines that a version sets apart are a group and no outliers; a slow one among them is an
// outlier.
func TestGroup(t *testing.T) {
	for _, size := range []int{3, 44} {
		f := fleetOf(maker(t, "h200-2x", 2), 100, func(i int, st *certificate.Statement) {
			if i < size {
				st.Predicate.Node.Driver = "570.1"
				st.Predicate.Node.CUDA = "12.8"
				fleettest.Slow(st, "coll/all_reduce", "", 0.94)
			}
			if i == 1 {
				fleettest.Slow(st, "coll/all_reduce", "", 0.9)
			}
		})
		if len(f.Groups) != 1 {
			t.Fatalf("%d machines: groups: %+v", size, f.Groups)
		}
		g := f.Groups[0]
		if c := g.Figures[0]; g.What != "driver" || g.Value != "570.1" || len(g.Nodes) != size || !slices.Contains(g.Also, "CUDA 12.8") || !c.Worse || c.Change > -0.05 || c.Change < -0.075 {
			t.Errorf("%d machines: group: %+v", size, g)
		}
		if got := outliers(f); len(got) != 1 || !strings.HasPrefix(got[0], "node0001 coll/all_reduce") {
			t.Errorf("%d machines: outliers: %q", size, got)
		}
	}
}

// Two clusters that no version explains are said to be that, also where the slow one is the larger.
func TestClusters(t *testing.T) {
	for _, size := range []int{25, 70} {
		f := fleetOf(maker(t, "h200-2x", 3), 100, func(i int, st *certificate.Statement) {
			if i*37%100 < size {
				fleettest.Slow(st, "bandwidth/local_ce", "", 0.94)
			}
		})
		if len(f.Outliers) > 0 || len(f.Groups) != 1 || f.Groups[0].What != "" || len(f.Groups[0].Nodes) != min(size, 100-size) || f.Groups[0].Figures[0].Worse != (size == 25) {
			t.Errorf("%d slow: outliers %q, groups %+v", size, outliers(f), f.Groups)
		}
	}
}

// Two kinds of machines in one fleet are not compared with one another.
func TestKinds(t *testing.T) {
	two, four := maker(t, "h200-2x", 4), maker(t, "h200-4x", 4)
	c := fleet.NewCollector()
	for i := range 40 {
		m := two
		if i >= 30 {
			m = four
		}
		if i == 39 {
			m = maker(t, "no-gpu", 4)
		}
		c.Add(m.Make(i, 0))
	}
	f := c.Fleet(fleet.Options{Now: start})
	if len(f.Outliers)+len(f.Groups) > 0 {
		t.Errorf("outliers %q, groups %+v", outliers(f), f.Groups)
	}
	var kinds []string
	for _, k := range f.Kinds {
		kinds = append(kinds, fmt.Sprint(k.Name, " ", k.Nodes, " ", k.Compared))
	}
	if want := []string{"2 × NVIDIA H200 30 true", "4 × NVIDIA H200 9 true", "no GPU 1 false"}; !slices.Equal(kinds, want) {
		t.Errorf("kinds: %q", kinds)
	}
}

// The latest certificate counts; earlier ones are its past.
func TestOverTime(t *testing.T) {
	m := maker(t, "h200-2x", 5)
	c := fleet.NewCollector()
	for _, day := range []float64{3, 1, 2, 0} { // in no order
		for i := range 20 {
			st := m.Make(i, day)
			if i == 7 && day == 3 {
				fleettest.Slow(st, "coll/all_gather", "", 0.8)
			}
			if i == 8 && day < 3 {
				fleettest.Slow(st, "coll/all_gather", "", 0.8)
			}
			c.Add(st)
			c.Add(st)
		}
	}
	f := c.Fleet(fleet.Options{Now: start.Add(10 * 24 * time.Hour), MaxAge: 5 * 24 * time.Hour})
	if got := outliers(f); len(got) != 1 || got[0] != "node0007 coll/all_gather" {
		t.Fatalf("outliers: %q", got)
	}
	over := f.Outliers[0].Deviations[0].Over
	if len(over) != 4 || over[3].Value > 0.9*over[0].Value || !over[0].At.Before(over[1].At) {
		t.Errorf("over time: %+v", over)
	}
	if f.Certificates != 80 || f.Repeated != 80 || f.Nodes[0].Suites[0].Earlier != 3 {
		t.Errorf("%d certificates, %d repeated, %+v", f.Certificates, f.Repeated, f.Nodes[0])
	}
	if len(f.Coverage.Old) != 20 {
		t.Errorf("old: %q", f.Coverage.Old)
	}
}

// A machine that differs in a version and is slow has that as its cause.
func TestCauses(t *testing.T) {
	f := fleetOf(maker(t, "h200-4x", 6), 60, func(i int, st *certificate.Statement) {
		if i == 5 {
			st.Predicate.Node.Driver = "570.1"
			fleettest.Slow(st, "bandwidth/peer_", "GPU 2", 0.8)
			r := &st.Predicate.Results[3]
			r.Verdict, r.Reason, r.Remedy = result.Fail, "17 of 18 links", "reseat it"
		}
	})
	if len(f.Outliers) != 1 {
		t.Fatalf("outliers: %q", outliers(f))
	}
	o := f.Outliers[0]
	for _, want := range []string{"has to do with GPU 2", "failed: 17 of 18 links", "driver is 570.1, which no peer has; 59 have 580.159.04"} {
		if !strings.Contains(strings.Join(o.Causes, "\n"), want) {
			t.Errorf("causes: %q; want %q", o.Causes, want)
		}
	}
	if o.Remedy != "reseat it" {
		t.Errorf("remedy: %q", o.Remedy)
	}
}

func TestExpected(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"list", "node[08-11],login1", "login1 node08 node09 node10 node11"},
		{"hostfile", "# mpirun's\nn2 slots=8\nn10:8\n\nn1 slots=8 # first\n", "n1 n2 n10:8"},
		{"topology.conf", "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 LinkSpeed=1 \\\n  Nodes=n[3-4]\r\nSwitchName=spine Switches=leaf[1-2]\n", "n1 n2 n3 n4"},
		{"bad range", "n1\nn[2-1]\n", "x:2: "},
		{"empty", "# nothing\n", "x: it names no host"},
		{"no host", "n1\nn1,x=y\n", "x:2: "},
	} {
		e, err := fleet.ParseExpected("x", tt.text)
		got := fmt.Sprint(err)
		if err == nil {
			got = strings.Join(e.Nodes, " ")
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzParseExpected(f *testing.F) {
	for _, s := range []string{"n[1-3]", "SwitchName=a Nodes=b[1-2]\\\n", "# x\na slots=2", "=", "[\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := fleet.ParseExpected("x", s)
		if err == nil && len(e.Nodes) == 0 {
			t.Error("no error, and no nodes")
		}
	})
}

// Coverage: who is missing, whom nobody expects, and names with one identity.
func TestCoverage(t *testing.T) {
	m := maker(t, "no-gpu", 7)
	c := fleet.NewCollector()
	for i := range 6 {
		st := m.Make(i, 0)
		if i == 5 {
			st.Predicate.Node.Identity = m.Make(4, 0).Predicate.Node.Identity
		}
		c.Add(st)
	}
	e, err := fleet.ParseExpected("nodes", "node[0000-0003,0010].cluster,node0004")
	if err != nil {
		t.Fatal(err)
	}
	f := c.Fleet(fleet.Options{Now: start, Expected: e})
	got := fmt.Sprint(f.Coverage.Expected, f.Coverage.Missing, f.Coverage.Unexpected, f.Coverage.Shared[0].Nodes)
	if want := "6 [node0010.cluster] [node0005] [node0004 node0005]"; got != want {
		t.Errorf("coverage: %s; want %s", got, want)
	}
}
