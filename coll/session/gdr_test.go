package session

import (
	"os"
	"testing"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/transport/verbs"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/topology"
)

// TestNearestPort: of the ports that are used, a GPU begins with the nearest.
func TestNearestPort(t *testing.T) {
	const staged = "; not used: data are staged in host memory"
	ports := func(names ...string) (list []verbs.PortInfo) {
		for _, n := range names {
			list = append(list, verbs.PortInfo{Device: n, Port: 1})
		}
		return list
	}
	all := ports("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7")
	for _, tt := range []struct {
		machine string
		gpu     int
		ports   []verbs.PortInfo
		level   knob.PathLevel
		first   int
		why     string
	}{
		{"a100-8", 0, all, knob.PXB, 0, "GPU Direct RDMA Enabled for GPU 0 / HCA 0 (distance 4 <= 5), read 1 mlx5_0" + staged},
		{"a100-8", 5, all, knob.PXB, 5, "GPU Direct RDMA Enabled for GPU 5 / HCA 5 (distance 4 <= 5), read 1 mlx5_5" + staged},
		{"a100-8", 5, ports("mlx5_5", "mlx5_0"), knob.PXB, 0, "GPU Direct RDMA Enabled for GPU 5 / HCA 0 (distance 4 <= 5), read 1 mlx5_5" + staged},
		{"a100-8", 5, ports("mlx5_0", "mlx5_6"), knob.PXB, 1, "GPU Direct RDMA Disabled for GPU 5 / HCA 1 (distance 8 > 5) mlx5_6" + staged},
		{"a100-8", 5, ports("mlx5_0", "mlx5_6"), knob.PHB, 1, "GPU Direct RDMA Enabled for GPU 5 / HCA 1 (distance 8 <= 8), read 1 mlx5_6" + staged},
		{"gb200-4", 3, ports("mlx5_0", "mlx5_3"), knob.PXB, 1, "GPU Direct RDMA Enabled for GPU 3 / HCA 1 (distance 3 <= 5), read 1 mlx5_3" + staged},
		{"a100-8", 5, ports("rxe0"), knob.PXB, -1, ""},
		{"a100-8", -1, all, knob.PXB, -1, ""},
	} {
		f, err := os.Open("../../internal/host/topology/testdata/" + tt.machine + ".xml")
		if err != nil {
			t.Fatal(err)
		}
		sys, err := topology.Load(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		id := sysfs.BusID{Domain: 0xffff}
		if tt.gpu >= 0 {
			id = sys.GPUs[tt.gpu].BusID
		}
		k := knob.Default()
		k.IB.GDRLevel = tt.level
		first, why := nearestPort(sys, id, tt.ports, GDROptions(k))
		if first != tt.first || tt.why != "" && why != tt.why || why == "" {
			t.Errorf("%s, GPU %d of %v: port %d, %q; want %d, %q", tt.machine, tt.gpu, tt.ports, first, why, tt.first, tt.why)
		}
	}
}
