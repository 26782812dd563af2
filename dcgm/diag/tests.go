package diag

import (
	"context"
	"time"
)

// A param is a parameter of a test. All parameters are numbers; true is 1.
type param struct {
	Name    string
	Default float64
	Usage   string
	hidden  bool // for testing the tests
}

// A Test describes a test.
type Test struct {
	Name   string // as in DCGM, if DCGM has such a test
	Title  string
	Fails  string // the conditions of a failure, for the documentation
	Level  int    // the lowest level with this test; 0: it only runs by name
	Params []param
	Limit  time.Duration // time limit, in addition to test_duration
	run    func(context.Context, *job) error
}

// Title is the title of a test's result.
func Title(t Test) string { return "GPUs pass the test: " + t.Title }

// duration is the parameter for how long a test loads the GPUs.
const duration = "test_duration"

func seconds(s float64) param { return param{Name: duration, Default: s, Usage: "seconds of load"} }

// injected is the parameter of tests that can inject the error that they should find.
var injected = param{Name: "inject_error", Usage: "1: make the error that the test is to find", hidden: true}

// Limits of pcieCounters and nvlinkCounters during a test.
var (
	maxReplays   = param{Name: "max_pcie_replays", Default: 80, Usage: "more of them during the test fail it"}
	maxCorrected = param{Name: "aer_threshold", Default: 480, Usage: "corrected errors of PCIe; more of them during the test fail it"}
	maxCRC       = param{Name: "max_nvlink_crc", Default: 100, Usage: "CRC errors of NVLink; more of them during the test fail it"}
)

// allTests returns all tests, in the order in which they run: copies before tests that heat the
// GPUs.
func allTests() []Test {
	return []Test{
		{Name: "software", Title: "libraries, device files, permissions, environment",
			Fails: "nouveau holds a device; the rest are warnings",
			Level: 1, Limit: time.Minute, run: software},
		{Name: "context_create", Title: "a CUDA context on each GPU",
			Fails: "it cannot be had",
			Limit: 2 * time.Minute, run: contexts},
		{Name: "memory", Title: "patterns in all memory that is free",
			Fails: "a word is wrong; writing or verifying is below the floor of `memory_bandwidth`",
			Level: 2, Limit: 5 * time.Minute, run: memory, Params: []param{
				{Name: "minimum_allocation_percentage", Default: 75, Usage: "of a GPU's memory that must be free, or the test is an error"},
				{Name: "walks", Default: 8, Usage: "places through which a bit walks, 64 at most"},
				{Name: "max_memory_mb", Usage: "MB of a GPU to test at most; 0: all"},
				injected,
			}},
		{Name: "pcie", Title: "copies between host and GPUs, alone and all at once",
			Fails: "data is wrong; alone, less than the platform's floor of host copies; errors of PCIe, see below",
			Level: 2, Limit: 5 * time.Minute, run: pcie, Params: []param{
				{Name: "copies", Default: 64, Usage: "of 64 MB that are timed"},
				{Name: "min_bandwidth", Usage: "GB/s that h2d and d2h must reach; 0: what the platform should"},
				maxReplays, maxCorrected,
			}},
		{Name: "p2p", Title: "each pair of GPUs: writes verified by the other one, reads verified here",
			Fails: "data is wrong; writes are below 0.71 of NVLink's figure; errors of NVLink, see below",
			Level: 2, Limit: 10 * time.Minute, run: p2p, Params: []param{
				{Name: "size_mb", Default: 256, Usage: "MB that are written and read"},
				{Name: "min_bandwidth", Usage: "GB/s that writes must reach; 0: what the platform should"},
				maxCRC,
			}},
		{Name: "memory_bandwidth", Title: "streams through a GPU's memory",
			Fails: "below the platform's floor",
			Level: 3, Limit: 3 * time.Minute, run: bandwidth, Params: []param{
				{Name: "minimum_bandwidth", Usage: "MB/s that triad must reach; 0: what the platform should"},
				{Name: "memory_size_mb", Default: 12288, Usage: "MB that a stream goes through"},
				{Name: "test_loops", Default: 10, Usage: "times that it does"},
			}},
		{Name: "diagnostic", Title: "matrix products in four kinds of arithmetic, compared between multiprocessors and repeats",
			Fails: "see below; by wgmma, bf16 and fp16 below the platform's floor of bf16",
			Level: 3, Limit: 3 * time.Minute, run: diagnostic, Params: []param{
				seconds(180), {Name: "use_doubles", Default: 1, Usage: "0: without fp64"}, injected,
			}},
		{Name: "sm_stress", Title: "bf16 matrix products, compared between multiprocessors and repeats",
			Fails: "as `diagnostic`",
			Limit: 3 * time.Minute, run: smStress, Params: []param{
				seconds(30), injected,
			}},
		{Name: "targeted_stress", Title: "fp32 matrix products at a rate, without throttling",
			Fails: "below 0.95 of DCGM's target for the model",
			Level: 3, Limit: 3 * time.Minute, run: targetedStress, Params: []param{
				seconds(30),
				{Name: "target_stress", Usage: "GFLOP/s; 0: what DCGM has for the model"},
				{Name: "target_perf_min_ratio", Default: 0.95, Usage: "of it that must be reached"},
			}},
		{Name: "targeted_power", Title: "load up to a board's power, without throttling",
			Fails: "highest power below 0.75 of DCGM's target, or of the GPU's limit if that is lower",
			Level: 3, Limit: 3 * time.Minute, run: targetedPower, Params: []param{
				seconds(120),
				{Name: "target_power", Usage: "W; 0: what DCGM has for the model, or the GPU's limit where that is lower"},
				{Name: "target_power_min_ratio", Default: 0.75, Usage: "of it that must be reached"},
			}},
		{Name: "memtest", Title: "patterns in memory, over and over",
			Fails: "a word is wrong",
			Level: 4, Limit: 5 * time.Minute, run: memtest, Params: []param{
				seconds(600),
				{Name: "walks", Default: 64, Usage: "places through which a bit walks, 64 at most"},
				{Name: "minimum_allocation_percentage", Default: 75, Usage: "of a GPU's memory that must be free, or the test is an error"},
				{Name: "max_memory_mb", Usage: "MB of a GPU to test at most; 0: all"},
				injected,
			}},
		{Name: "pcie_stress", Title: "copies between host and all GPUs at once, over and over",
			Fails: "data is wrong; errors of PCIe, see below",
			Level: 4, Limit: 3 * time.Minute, run: pcieStress, Params: []param{
				seconds(60),
				{Name: "copies", Default: 64, Usage: "of 64 MB that are timed together"},
				maxReplays, maxCorrected,
			}},
		{Name: "nvlink_stress", Title: "GPUs write to and read from one another in pairs, all pairs at once, over and over",
			Fails: "data is wrong; errors of NVLink, see below",
			Level: 4, Limit: 3 * time.Minute, run: nvlinkStress, Params: []param{
				seconds(60),
				{Name: "size_mb", Default: 1024, Usage: "MB that are written and read"},
				maxCRC,
			}},
		{Name: "pulse_test", Title: "load on and off, at once on all GPUs",
			Fails: "as `diagnostic`, without a rate",
			Level: 4, Limit: 3 * time.Minute, run: pulse, Params: []param{
				seconds(60), {Name: "on_ms", Default: 500, Usage: "of load"}, {Name: "off_ms", Default: 500, Usage: "without"},
			}},
	}
}

// testNamed returns the test with the given name.
func testNamed(name string) (Test, bool) {
	for _, t := range allTests() {
		if t.Name == name {
			return t, true
		}
	}
	return Test{}, false
}

// param returns the parameter with the given name.
func (t Test) param(name string) (param, bool) {
	for _, p := range t.Params {
		if p.Name == name {
			return p, true
		}
	}
	return param{}, false
}
