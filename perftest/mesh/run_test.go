package mesh

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/perftest/probe"
)

const ndr = "400 Gb/sec (4X NDR)"

func twoPorts(t testing.TB) string {
	return writeTree(t, fakePort{"mlx5_0", "4: ACTIVE", ndr, map[string]uint64{"symbol_error": 3, "port_xmit_data": 5}}, fakePort{"mlx5_1", "4: ACTIVE", ndr, nil})
}

func even(string, string) float64 { return 48e9 }

// TestRun: three hosts of two ports each; all ranks have the same report, and no
// port measured twice at once.
func TestRun(t *testing.T) {
	for _, tool := range []string{"write_bw", "read_bw", "send_lat"} {
		for _, serial := range []bool{false, true} {
			f := newFabric(func(from, to string) float64 {
				if from == "a/mlx5_1" && to == "c/mlx5_0" {
					return 11e9
				}
				return 48e9
			})
			tl, _ := probe.FindTool(tool)
			reports, errs := f.mesh(t, []string{twoPorts(t), twoPorts(t), twoPorts(t)}, func(_ int, o *Options) {
				o.Config, o.Serial, o.Samples = probe.Default(tl.Operation, tl.Measure), serial, 3
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			r := reports[0]
			if !reflect.DeepEqual(reports[1], r) || !reflect.DeepEqual(reports[2], r) {
				t.Error("the ranks have different reports")
			}
			if len(r.Ports) != 6 || len(r.Cells) != 24 || r.Rounds != 6 || len(f.twice) > 0 || serial && f.most > 1 {
				t.Errorf("%s: %d ports, %d cells, %d rounds, twice %v, at once %d", tool, len(r.Ports), len(r.Cells), r.Rounds, f.twice, f.most)
			}
			for _, c := range r.Cells {
				want := 48e9
				if r.Name(c.From) == "a mlx5_1" && r.Name(c.To) == "c mlx5_0" {
					want = 11e9
				}
				if c.Value != want || len(c.Samples) != 3 {
					t.Errorf("%s: %s → %s: %+v; want %g", tool, r.Name(c.From), r.Name(c.To), c, want)
				}
			}
		}
	}
}

// TestDuplicateAddress: two hosts of one address cannot reach each other.
func TestDuplicateAddress(t *testing.T) {
	for addr, bad := range map[string]bool{"10.0.0.1": true, "127.0.0.1": false} {
		f := newFabric(even)
		_, errs := f.mesh(t, []string{twoPorts(t), twoPorts(t)}, func(_ int, o *Options) { o.Addr = addr })
		for rank, err := range errs {
			if got := err != nil && strings.Contains(err.Error(), "the same address 10.0.0.1"); got != bad {
				t.Errorf("%s, rank %d: %v", addr, rank, err)
			}
		}
	}
}

// TestRunBoth: of both directions each has its cell.
func TestRunBoth(t *testing.T) {
	f := newFabric(func(from, _ string) float64 {
		if strings.HasPrefix(from, "a/") {
			return 40e9
		}
		return 44e9
	})
	reports, errs := f.mesh(t, []string{twoPorts(t), twoPorts(t)}, func(_ int, o *Options) { o.Config.Bidirectional = true })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, c := range reports[0].Cells {
		want := 44e9
		if c.From < 2 {
			want = 40e9
		}
		if c.Value != want {
			t.Errorf("%+v; want %g", c, want)
		}
	}
}

// TestRunFails: what goes wrong with a pair stands in its cells, and the others
// are measured.
func TestRunFails(t *testing.T) {
	for _, role := range []string{"client", "server"} {
		f := newFabric(even)
		f.fail = func(as, device, host string) error {
			if as == role && device == "mlx5_1" && host == "b" {
				return errors.New("QP 1:\nstatus 12")
			}
			return nil
		}
		reports, errs := f.mesh(t, []string{twoPorts(t), twoPorts(t), twoPorts(t)}, func(_ int, o *Options) { o.Samples = 2 })
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		r := reports[2]
		for _, c := range r.Cells {
			bad := role == "client" && c.From == 3 || role == "server" && c.To == 3
			if bad != (c.Error != "") || bad && (!strings.Contains(c.Error, "b mlx5_1: QP 1:; status 12") || c.Verdict != result.Fail) || !bad && len(c.Samples) != 2 {
				t.Errorf("%s: %+v", role, c)
			}
		}
		if len(r.Findings) != 1 || r.Findings[0].Kind != "port" || r.worst() != result.Fail {
			t.Errorf("%s: %+v", role, r.Findings)
		}
	}
}

// TestRunCounters: what goes up meanwhile is told of the port and of the cell.
func TestRunCounters(t *testing.T) {
	roots := []string{twoPorts(t), twoPorts(t)}
	f := newFabric(even)
	n := 3
	f.touch = func(host, device string) {
		if host == "a" && device == "mlx5_0" {
			f.mu.Lock()
			defer f.mu.Unlock()
			n++
			write(t, filepath.Join(roots[0], "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"), strings.Repeat("1", n%2+2))
		}
	}
	reports, errs := f.mesh(t, roots, nil)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	r := reports[1]
	if r.Ports[0].Counters["symbol_error"] == 0 || len(r.Ports[1].Counters) > 0 || len(r.Findings) != 1 || r.Findings[0].Kind != "counter" || r.worst() != result.Warn {
		t.Errorf("%+v\n%+v", r.Ports, r.Findings)
	}
	if c := r.Cell(0, 2); c.FromCounters["symbol_error"] == 0 || len(c.ToCounters) > 0 {
		t.Errorf("%+v", c)
	}
}

// TestRunRefuses: what no mesh can be made of.
func TestRunRefuses(t *testing.T) {
	one := func() string { return writeTree(t, fakePort{"mlx5_0", "4: ACTIVE", ndr, nil}) }
	none := func() string { return writeTree(t) }
	down := func() string { return writeTree(t, fakePort{"mlx5_0", "1: DOWN", ndr, nil}) }
	for _, tt := range []struct {
		roots  []string
		change func(int, *Options)
		usage  bool
		want   string
	}{
		{[]string{none()}, nil, false, "there is no RDMA device on this machine"},
		{[]string{none(), none()}, nil, false, "no host has an RDMA port that is up; a: it has no RDMA device"},
		{[]string{one()}, nil, false, "a mesh takes two ports, and only a mlx5_0 is there"},
		{[]string{down()}, nil, false, "mlx5_0 port 1 of a is DOWN"},
		{[]string{one()}, func(_ int, o *Options) { o.Devices = []string{"mlx5_7"} }, false, `there is no RDMA device "mlx5_7"; there are mlx5_0`},
		{[]string{one(), one()}, func(rank int, o *Options) { o.Samples = rank + 1 }, true, "rank 1 (b) was started with other options than rank 0 (a)"},
		{[]string{one(), one()}, func(_ int, o *Options) { o.Names = []string{"x"} }, true, "--hosts names 1 hosts, and there are 2"},
		{[]string{one(), one()}, func(_ int, o *Options) { o.Pattern = Loopback }, true, "the pattern loopback has no pair"},
	} {
		_, errs := newFabric(even).mesh(t, tt.roots, tt.change)
		for _, err := range errs {
			var usage *UsageError
			var not *probe.NotAvailable
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, &usage) != tt.usage || errors.As(err, &not) == tt.usage {
				t.Errorf("%v; want %s", err, tt.want)
			}
		}
	}
}

// TestRunPorts: who takes part, and who does not.
func TestRunPorts(t *testing.T) {
	part := func() string {
		return writeTree(t, fakePort{"mlx5_0", "4: ACTIVE", ndr, nil}, fakePort{"mlx5_1", "1: DOWN", ndr, nil}, fakePort{"mlx5_2", "1: DOWN", ndr, nil})
	}
	full := func() string {
		return writeTree(t, fakePort{"mlx5_0", "4: ACTIVE", ndr, nil}, fakePort{"mlx5_1", "4: ACTIVE", ndr, nil}, fakePort{"mlx5_2", "1: DOWN", ndr, nil})
	}
	reports, errs := newFabric(even).mesh(t, []string{full(), part(), full(), writeTree(t)}, func(rank int, o *Options) {
		o.Names = []string{"n1", "n2", "n3", "n4"}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range reports[3].Findings {
		got = append(got, string(f.Verdict)+" "+f.Text)
	}
	want := []string{
		"fail n4: it has no RDMA device",
		"pass n1 mlx5_2 port 1 is DOWN and was not measured",
		"fail n2 mlx5_1 port 1 is DOWN and was not measured; it is up on 2 of 4 hosts",
		"pass n2 mlx5_2 port 1 is DOWN and was not measured",
		"pass n3 mlx5_2 port 1 is DOWN and was not measured",
	}
	if !reflect.DeepEqual(got, want) || len(reports[0].Ports) != 5 {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestRunShared: processes of one host share its ports; each port is measured by
// one of them.
func TestRunShared(t *testing.T) {
	root := twoPorts(t)
	for _, devices := range [][]string{{"", ""}, {"mlx5_0", "mlx5_1"}} {
		f := newFabric(even)
		reports, errs := f.mesh(t, []string{root, root}, func(rank int, o *Options) {
			o.Host, o.HostID = "h", "h"
			if devices[rank] != "" {
				o.Devices = []string{devices[rank]}
			}
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		r := reports[0]
		if len(r.Hosts) != 1 || len(r.Ports) != 2 || len(r.Cells) != 2 || (r.Ports[1].Rank == 1) != (devices[1] != "") {
			t.Errorf("%v: %+v", devices, r)
		}
	}
}

// TestRunDeath: who is left ends when another process has.
func TestRunDeath(t *testing.T) {
	g := &team{size: 2, dead: make(chan struct{})}
	close(g.dead)
	o := Options{Config: probe.Default(probe.Write, probe.Bandwidth), Pattern: AllPairs, Tree: open(t, twoPorts(t)), Measure: newFabric(even).measure("a")}
	if _, err := Run(t.Context(), o, teammate{g, 0}); err == nil || !strings.Contains(err.Error(), "rank 1 is dead") {
		t.Error(err)
	}
}
