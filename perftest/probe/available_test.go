package probe

import (
	"errors"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
)

const ports = `
-- sys/class/infiniband/mlx5_0/node_type --
1: CA
-- sys/class/infiniband/mlx5_0/ports/1/state --
4: ACTIVE
-- sys/class/infiniband/mlx5_0/ports/1/link_layer --
InfiniBand
-- sys/class/infiniband/mlx5_1/ports/1/state --
1: DOWN
`

// TestAvailable: what is missing, in one line.
func TestAvailable(t *testing.T) {
	for _, tt := range []struct {
		tree, device string
		port         int
		want         string
	}{
		{ports, "", 1, ""},
		{ports, "mlx5_0", 1, ""},
		{"-- sys/x --\n", "", 1, "no RDMA device on this machine"},
		{"-- dir:sys/class/infiniband --\n", "", 1, "no RDMA device on this machine"},
		{ports, "mlx5_2", 1, `-d: there is no RDMA device "mlx5_2"; there are mlx5_0, mlx5_1; did you mean`},
		{ports, "mlx5_0", 2, "-i: mlx5_0 has no port 2"},
		{ports, "mlx5_1", 1, "port 1 of mlx5_1 is DOWN, not ACTIVE"},
	} {
		c := Default(Write, Bandwidth)
		c.Device, c.IBPort = tt.device, tt.port
		err := c.Available(sysfstest.Tree(t, []byte(tt.tree)))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("-d %q -i %d: %v; want %q", tt.device, tt.port, err, tt.want)
		}
		var f *FlagError
		if strings.HasPrefix(tt.want, "-") != errors.As(err, &f) {
			t.Errorf("%T: whose fault is %v?", err, err)
		}
	}
}

// TestEvents: none need be there, and those that are get what is told.
func TestEvents(t *testing.T) {
	var none Events
	none.TellWaiting("x")
	none.TellHeader(Info{})
	none.TellRow(Row{})
	none.TellNote("x")
	none.tellProgress(progress{})
	var got []string
	all := Events{
		Waiting: func(a string) { got = append(got, a) }, Header: func(i Info) { got = append(got, i.Device) }, Row: func(Row) { got = append(got, "row") },
		Note: func(s string) { got = append(got, s) }, Progress: func(s string) { got = append(got, s) },
	}
	all.TellWaiting(":1")
	all.TellHeader(Info{Device: "d"})
	all.TellRow(Row{})
	all.TellNote("%d", 5)
	all.tellProgress(progress{Bytes: 2, Done: 5, Total: 10})
	all.tellProgress(progress{Bytes: 2, Elapsed: 3e9, Duration: 1e10})
	if s := strings.Join(got, "|"); s != ":1|d|row|5|2 bytes, 5 of 10 messages|2 bytes, 3s of 10s" {
		t.Error(s)
	}
}

// TestRunChecks: wrong options are found before the machine is looked at.
func TestRunChecks(t *testing.T) {
	c := Default(Write, Bandwidth)
	c.QPs = 0
	var f *FlagError
	if _, err := Run(t.Context(), c, Events{}); !errors.As(err, &f) {
		t.Error(err)
	}
}
