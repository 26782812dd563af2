package main

import (
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/perftest/membw"
)

func TestParseBandwidthTest(t *testing.T) {
	for args, want := range map[string]membw.TestOptions{
		"": {Mode: "quick"},
		"--memory=pageable --dtod --htod --device=all --csv --wc":                   {Mode: "quick", Pageable: true, WriteCombined: true, HtoD: true, DtoD: true, All: true, CSV: true},
		"-mode=range --start=10 --end 35 -increment=10 --wc --cputiming --device=3": {Mode: "range", Start: 10, End: 35, Increment: 10, WriteCombined: true, Device: 3, CPUTiming: true},
		"--mode=shmoo": {Mode: "shmoo"},
	} {
		got, done, err := parseBandwidthTest(strings.Fields(args), io.Discard)
		if err != nil || done || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", args, got, err, want)
		}
	}
}

func TestRepeated(t *testing.T) {
	for args, want := range map[string]string{
		"-t a b -v":              "-t a -t b -v",
		"-b 4 -t 1 2 3 -p d e":   "-b 4 -t 1 -t 2 -t 3 -p d -p e",
		"--testcase=a -i 2":      "--testcase=a -i 2",
		"--testcasePrefixes d e": "--testcasePrefixes d --testcasePrefixes e",
		"-t":                     "-t",
		"":                       "",
	} {
		if got := repeated(strings.Fields(args)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q becomes %q; want %q", args, got, want)
		}
	}
}

// TestBandwidthPrograms: under NVIDIA's names the program is what they are.
func TestBandwidthPrograms(t *testing.T) {
	for args, want := range map[string]int{
		"/usr/bin/nvbandwidth -l": 0, "./bandwidthTest --mode=no": exit.Usage, "p2pBandwidthLatencyTest --help": 0, "bandwidthTest --help": 0,
	} {
		var out, errOut strings.Builder
		if got := run(strings.Fields(args), &out, &errOut); got != want {
			t.Errorf("%s: status %d; want %d\n%s%s", args, got, want, &out, &errOut)
		}
	}
}
