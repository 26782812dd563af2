package verbs

import "testing"

func TestAdmits(t *testing.T) {
	for _, tt := range []struct {
		spec, device string
		port         int
		want         bool
	}{
		{"", "mlx5_0", 1, true},
		{"mlx5", "mlx5_0", 1, true},
		{"mlx5", "rxe0", 1, false},
		{"mlx5_1", "mlx5_10", 1, true},
		{"=mlx5_1", "mlx5_10", 1, false},
		{"=mlx5_1", "mlx5_1", 2, true},
		{"mlx5_0:1,mlx5_1:2", "mlx5_0", 1, true},
		{"mlx5_0:1,mlx5_1:2", "mlx5_0", 2, false},
		{"mlx5_0:1,mlx5_1:2", "mlx5_1", 2, true},
		{"^mlx5_1", "mlx5_1", 1, false},
		{"^mlx5_1", "mlx5_10", 1, false},
		{"^=mlx5_1", "mlx5_10", 1, true},
		{"^mlx5_1:2", "mlx5_1", 1, true},
		{"^mlx5_1:2", "mlx5_1", 2, false},
		{"^mlx5_0,rxe", "rxe1", 1, false},
		{"^mlx5_0,rxe", "mlx5_2", 1, true},
	} {
		if got := admits(tt.spec, tt.device, tt.port); got != tt.want {
			t.Errorf("NCCL_IB_HCA=%s: %s port %d: %v; want %v", tt.spec, tt.device, tt.port, got, tt.want)
		}
	}
}
