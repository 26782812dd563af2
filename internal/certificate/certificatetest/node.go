package certificatetest

import (
	"fmt"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// Node returns a certificate of a machine with the given number of GPUs, at most 8. It contains
// every field and every verdict that a report must be able to show. The figures are made up.
func Node(gpus int) *certificate.Statement {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := certificate.New(certificate.Predicate{
		Suite: "node", Started: begin, Finished: begin.Add(83*time.Second + 250*time.Millisecond),
		Harness: certificate.Harness{Version: "0.1.0", Commit: "tree-3f9c2d1"},
		Environment: certificate.Environment{
			Platform: "linux/amd64", Kernel: "Linux 6.8.0", OS: "Ubuntu 24.04.2 LTS", OSID: "ubuntu 24.04", CPU: "Intel(R) Xeon(R) Platinum 8480C", CPUs: 112,
			Target: "cuda12.9.1-ubuntu24.04", Recipe: "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210",
		},
		Results: []result.Result{
			health(gpus),
			{ID: "health/xid", Title: "the kernel's log has no error of a GPU", Verdict: result.Warn, Reason: "Xid 94 on GPU 1, 40 minutes ago", Remedy: "restart the program that was hit", Seconds: 0.01},
			copies(gpus), pairs(gpus), allReduce(),
			{ID: "ib/write", Title: "ports reach their rate", Verdict: result.Skip, Reason: "there is no RDMA device"},
			{ID: "diag/pulse", Title: "GPUs stand sudden load", Verdict: result.Error, Reason: "no result within 1m0s", Seconds: 60, Output: "round 3\nround 4\n"},
		},
	})
	if err := s.SetNode(node(gpus)); err != nil {
		panic(err)
	}
	return s
}

func gpuName(i int) string { return fmt.Sprintf("GPU %d", i) }

func uuid(i int) string { return fmt.Sprintf("GPU-0000000%d-1111-2222-3333-444444444444", i) }

func health(gpus int) result.Result {
	r := result.Result{ID: "health/gpu/temperature", Title: "there is room below the temperature at which GPUs slow down", Verdict: result.Pass, Seconds: 0.4}
	for i := range gpus {
		r.Objects = append(r.Objects, result.Object{
			Name: gpuName(i), ID: uuid(i), Verdict: result.Pass, Reason: fmt.Sprintf("%d °C below", 41-i),
			Measured: &result.Measurement{Value: float64(41 - i), Unit: "°C", Limit: &result.Limit{Value: 5, Kind: result.AtLeast, Source: "assay"}},
		})
	}
	return r
}

func copies(gpus int) result.Result {
	r := result.Result{
		ID: "bandwidth/h2d", Title: "copies from the host to each GPU are fast enough", Verdict: result.Fail,
		Reason: "GPU 0: 31.2 GB/s, less than 48", Remedy: "look at the slot's width and generation", Seconds: 2.5,
	}
	for i := range gpus {
		m := measurement(55.2, 64, 48)
		o := result.Object{Name: gpuName(i), ID: uuid(i), Verdict: result.Pass, Measured: m}
		if i == 0 {
			o.Verdict, o.Reason, o.Measured = result.Fail, "31.2 GB/s, less than 48", measurement(31.2, 64, 48)
		}
		r.Objects = append(r.Objects, o)
	}
	r.Measured = r.Objects[0].Measured
	return r
}

func measurement(value, expected, limit float64) *result.Measurement {
	return &result.Measurement{
		Value: value, Unit: "GB/s", Expected: expected, Source: "PCIe 5 x16", Ratio: value / expected,
		Limit:  &result.Limit{Value: limit, Kind: result.AtLeast, Source: "Azure"},
		Spread: &result.Spread{Low: value * 0.99, High: value * 1.01, Kind: result.Confidence, Samples: 16},
	}
}

func pairs(gpus int) result.Result {
	r := result.Result{ID: "bandwidth/p2p", Title: "GPUs write to each other's memory fast enough", Verdict: result.Pass, Seconds: 7.75}
	for i := range gpus {
		for j := range gpus {
			if i == j {
				continue
			}
			m := measurement(388+float64((3*i+5*j)%7), 450, 360)
			m.Source = "NVLink"
			r.Objects = append(r.Objects, result.Object{Name: gpuName(i), Peer: gpuName(j), ID: uuid(i), Quantity: "write", Verdict: result.Pass, Measured: m})
		}
	}
	return r
}

func allReduce() result.Result {
	c := result.Curve{Name: "all_reduce, out of place", X: "B", Y: "GB/s", Expected: 360, Source: "H200, ring"}
	for bytes := 1024.0; bytes <= 1<<32; bytes *= 4 {
		c.Points = append(c.Points, result.Point{X: bytes, Y: 371 * bytes / (bytes + 24e6)})
	}
	m := measurement(c.Points[len(c.Points)-1].Y, 360, 313)
	m.Source = c.Source
	return result.Result{ID: "coll/all_reduce", Title: "all_reduce among all GPUs is fast enough", Verdict: result.Pass, Measured: m, Seconds: 11, Curves: []result.Curve{c}}
}

func node(gpus int) *certificate.Node {
	n := &certificate.Node{
		Name: "node07", Vendor: "Supermicro", Product: "SYS-821GE", Container: "docker", Platform: "hgx-h200", Differences: []string{"no RDMA ports, not 8"},
		Driver: "580.159.04", CUDA: "13.0", Versions: map[string]string{"libnccl": "2.28.3"}, Variables: map[string]string{"NCCL_NVLS_ENABLE": "0"},
		Cloud: "none", Instance: "none", Topology: &certificate.Topology{},
		Ports: []certificate.Port{{Name: "mlx5_0/1", Device: "ConnectX-7", GUID: "0c42:a103:0065:f2f4", Firmware: "28.39.1002", LinkLayer: "InfiniBand", State: "DOWN", Gbit: 400}},
	}
	t := n.Topology
	t.Parts = append(t.Parts, certificate.Part{ID: "nvswitch", Kind: certificate.PartNVSwitch, Label: "NVSwitch"},
		certificate.Part{ID: "cpu0", Kind: certificate.PartCPU, Label: "NUMA 0"}, certificate.Part{ID: "cpu1", Kind: certificate.PartCPU, Label: "NUMA 1"})
	t.Links = append(t.Links, certificate.Link{A: "cpu0", B: "cpu1", Kind: "UPI"})
	for i := range gpus {
		id, under := fmt.Sprintf("gpu%d", i), fmt.Sprintf("switch%d", i/2)
		if i%2 == 0 {
			t.Parts = append(t.Parts, certificate.Part{ID: under, Kind: certificate.PartSwitch, Label: "PCIe switch", Under: fmt.Sprintf("cpu%d", i/4), Link: "PCIe 5 x16"})
		}
		t.Parts = append(t.Parts, certificate.Part{ID: id, Kind: certificate.PartGPU, Label: gpuName(i), Under: under, Link: "PCIe 5 x16"})
		t.Links = append(t.Links, certificate.Link{A: id, B: "nvswitch", Kind: "NVLink", Count: 18, GBps: 450})
		n.GPUs = append(n.GPUs, certificate.GPU{Index: i, Name: "NVIDIA H200", UUID: uuid(i), Bus: fmt.Sprintf("0000:%02x:00.0", 0x18+16*i), VBIOS: "96.00.A5.00.01", Memory: 150_754_820_096})
		n.Identity = append(n.Identity, uuid(i))
	}
	t.Parts = append(t.Parts, certificate.Part{ID: "mlx5_0", Kind: certificate.PartNIC, Label: "mlx5_0", Under: "cpu0", Link: "PCIe 5 x16"})
	n.Identity = append(n.Identity, "port 0c42:a103:0065:f2f4")
	return n
}
