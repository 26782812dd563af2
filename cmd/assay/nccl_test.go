package main

import (
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/jobs"
)

func TestNCCLVariable(t *testing.T) {
	for set, want := range map[string]string{
		"NCCL_DEBUG=VERBOSE":          "warning: \"VERBOSE\": there is no level",
		"NCCL_ALGO=Rings":             "there is no algorithm",
		"NCCL_NET_GDR_LEVEL=SYSTEM":   "warning: \"SYSTEM\": it is not a distance, and it is left out; allowed: LOC",
		"NCCL_IB_DISABLE=true":        "warning: \"true\": it is not an integer, and NCCL reads it as 0; allowed: 0 or 1",
		"NCCL_IB_HCAS=mlx5":           "warning: NCCL reads no variable of this name; did you mean NCCL_IB_HCA?",
		"NCCL_BUFFSIZE=8M":            "warning: \"8M\": NCCL reads 8 of it",
		"NCCL_DEBUG=info":             "",
		"NCCL_DEBUG=OFF":              "",
		"NCCL_IB_HCA=^=mlx5_1":        "",
		"NCCL_ALGO=allreduce:ring":    "",
		"NCCL_TUNER_CONFIG_PATH=x":    "", // a plugin's
		"NCCL_TOPO_FILE=/a.xml":       "",
		"NCCL_NVLS_ENABLE=0":          "",
		"NCCL_SOCKET_IFNAME=":         "",
		"NCCL_P2P_NET_CHUNKSIZE=1024": "",
		"NCCL_NET_GDR_LEVEL=PIX":      "",
	} {
		name, value, _ := strings.Cut(set, "=")
		got := ""
		if f := ncclVariable(name, value); f != nil {
			got = strings.TrimPrefix(jobs.Finding{Level: f.Level, Message: f.Message, Remedy: f.Remedy}.String(), ": ")
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", set, got, want)
		}
	}
}
