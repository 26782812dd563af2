package topology

import "testing"

func TestGDR(t *testing.T) {
	auto := GDROptions{Level: PXB, Read: -1, C2C: true}
	level := func(c Class) GDROptions { o := auto; o.Level = c; return o }
	no := new(bool)
	for _, tt := range []struct {
		name     string
		machine  string
		gpu, nic int
		opt      GDROptions
		change   func(*System)
		want     string
	}{
		{"one switch", "a100-8", 0, 0, auto, nil, "GPU Direct RDMA Enabled for GPU 0 / HCA 0 (distance 4 <= 5), read 1"},
		{"several switches", "a100-8", 0, 1, auto, nil, "GPU Direct RDMA Enabled for GPU 0 / HCA 1 (distance 5 <= 5), read 1"},
		{"a host bridge", "a100-8", 0, 2, auto, nil, "GPU Direct RDMA Disabled for GPU 0 / HCA 2 (distance 8 > 5)"},
		{"another NUMA node", "a100-8", 0, 7, auto, nil, "GPU Direct RDMA Disabled for GPU 0 / HCA 7 (distance 9 > 5)"},
		{"level PIX", "a100-8", 0, 1, level(PIX), nil, "GPU Direct RDMA Disabled for GPU 0 / HCA 1 (distance 5 > 4)"},
		{"level PHB", "a100-8", 0, 2, level(PHB), nil, "GPU Direct RDMA Enabled for GPU 0 / HCA 2 (distance 8 <= 8), read 1"},
		{"level SYS", "a100-8", 0, 7, level(SYS), nil, "GPU Direct RDMA Enabled for GPU 0 / HCA 7 (distance 9 <= 9), read 1"},
		{"level LOC", "a100-8", 0, 0, level(LOC), nil, "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 4 > 0)"},
		{"C2C", "gb200-4", 1, 0, auto, nil, "GPU Direct RDMA Enabled for GPU 1 / HCA 0 (distance 3 <= 5), read 1"},
		{"no C2C", "gb200-4", 1, 0, GDROptions{Level: PXB, Read: -1}, nil, "GPU Direct RDMA Disabled for GPU 1 / HCA 0 (distance 8 > 5)"},
		{"C2C to another processor's card", "gb200-4", 1, 2, auto, nil, "GPU Direct RDMA Disabled for GPU 1 / HCA 2 (distance 9 > 5)"},
		{"no read", "a100-8", 3, 3, GDROptions{Level: PXB}, nil, "GPU Direct RDMA Enabled for GPU 3 / HCA 3 (distance 4 <= 5), read 0"},
		{"an old GPU with NVLinks", "a100-8", 0, 0, auto, func(s *System) { s.GPUs[0].SM = 70 }, "GPU Direct RDMA Enabled for GPU 0 / HCA 0 (distance 4 <= 5), read 1"},
		{"an old GPU without", "a100-8", 0, 0, auto, func(s *System) { s.GPUs[0].SM, s.GPUs[0].NVLinks = 70, nil }, "GPU Direct RDMA Enabled for GPU 0 / HCA 0 (distance 4 <= 5), read 0"},
		{"an old GPU, read all the same", "a100-8", 0, 0, GDROptions{Level: PXB, Read: 1}, func(s *System) { s.GPUs[0].SM, s.GPUs[0].NVLinks = 70, nil }, "GPU Direct RDMA Enabled for GPU 0 / HCA 0 (distance 4 <= 5), read 1"},
		{"GPU without", "a100-8", 0, 0, auto, func(s *System) { s.GPUs[0].GDR = no }, "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (the GPU cannot)"},
		{"card without", "a100-8", 0, 0, auto, func(s *System) { s.NICs[0].GDR = no }, "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (the HCA cannot)"},
		{"Ethernet", "h200-vm", 0, 0, level(SYS), func(s *System) { s.NICs[0].RDMA = false }, "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (it is not an RDMA device)"},
		{"off", "a100-8", 0, 0, GDROptions{Off: true, Level: SYS, Read: 1}, nil, "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (NCCL_IB_CUDA_SUPPORT=0)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := load(t, tt.machine+".xml")
			if tt.change != nil {
				tt.change(s)
			}
			if got := s.GDR(tt.gpu, tt.nic, tt.opt).String(); got != tt.want {
				t.Errorf("GDR(%d, %d) = %s; want %s", tt.gpu, tt.nic, got, tt.want)
			}
		})
	}
}
