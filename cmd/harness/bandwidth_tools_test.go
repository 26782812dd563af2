package main

import (
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/exit"
)

// TestBandwidthPrograms: under NVIDIA's names the program is what they are.
func TestBandwidthPrograms(t *testing.T) {
	for args, want := range map[string]int{
		"./bandwidthTest --mode=no": exit.Usage, "p2pBandwidthLatencyTest --help": 0, "bandwidthTest --help": 0,
	} {
		var out, errOut strings.Builder
		if got := run(strings.Fields(args), &out, &errOut); got != want {
			t.Errorf("%s: status %d; want %d\n%s%s", args, got, want, &out, &errOut)
		}
	}
}
