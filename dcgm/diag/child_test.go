package diag

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// In processes with these the test binary is a child, with one of the scenarios, or
// the fake machine with a fault.
const (
	childEnv    = "DIAG_TEST_CHILD"
	scenarioEnv = "DIAG_TEST_SCENARIO"
)

// scenarios are machines that children have instead.
var scenarios = map[string]func() (Machine, error){
	"no driver": func() (Machine, error) { return nil, fmt.Errorf("%w: not here", driver.ErrNoDriver) },
	"broken":    func() (Machine, error) { return nil, errors.New("cuInit: broken") },
}

func TestMain(m *testing.M) {
	name, ok := os.LookupEnv(childEnv)
	if !ok {
		os.Exit(m.Run())
	}
	db, err := platform.Load()
	if err == nil {
		scenario := os.Getenv(scenarioEnv)
		open := scenarios[scenario]
		if open == nil {
			open = func() (Machine, error) { return fakeMachine{scenario}, nil }
		}
		sensors := func() (Sensors, error) { return fakeSensors{scenario}, nil }
		if scenario == "no sensors" {
			sensors = func() (Sensors, error) { return nil, errors.New("no NVML") }
		}
		err = Child(context.Background(), name, Environment{Open: open, Sensors: sensors, Links: fakeLinks(scenario), DB: db, Root: os.Getenv("DIAG_TEST_ROOT"), Environ: []string{"CUDA_PROFILE=1"}}, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// runner starts children with a scenario.
func runner(t *testing.T, scenario string, env ...string) *Runner {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Runner{Command: func(ctx context.Context, name string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(append(os.Environ(), childEnv+"="+name, scenarioEnv+"="+scenario), env...)
		return cmd
	}}
}

// diagnose runs tests with a fault of GPU 1.
func diagnose(t *testing.T, tests, fault, params string) *Report {
	t.Helper()
	p, err := Select(tests, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.Params, err = ParseParams(params); err != nil {
		t.Fatal(err)
	}
	p.Duration, p.Timeout = 300*time.Millisecond, 20*time.Second
	if fault == "hang" {
		p.Timeout = time.Second
	}
	r, err := runner(t, fault).Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFaults: each test passes on a good machine, and finds what is its to find, on
// the GPU that has it.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		test, fault, params string
		want                result.Verdict
		text                string
	}{
		{"memory", "", "", result.Pass, ""},
		{"memory", "slow", "", result.Fail, "GPU 1: write: 1467 GB/s is 31 % of 4800 (mle-acc); 3456 or more is expected (mle-net)"},
		{"memory", "memory", "", result.Fail, "GPU 1: memory, first with pattern walking ones 3: 2 words of 8 bytes wrong, in bits 0x0000000000000011; the first 2: at 0x7000"},
		{"memory", "", "memory.inject_error=1", result.Fail, "first with pattern 0x00"},
		{"memory", "full", "", result.Error, "GPU 1: only 20 % of its memory is free; 75 % must be tested"},
		{"memory", "full", "memory.minimum_allocation_percentage=10", result.Pass, ""},
		{"memory", "crash", "", result.Error, "panic: a crash"},
		{"memory", "hang", "", result.Error, "timed out: it was not done within 1s (at GPU "},
		{"memory", "lost", "", result.Fail, "GPU 1: cuEventSynchronize: CUDA error 700"},
		{"memory", "babble", "", result.Error, `it wrote "not JSON"`},
		{"memory", "leave", "", result.Error, "it ended without a result"},
		{"memory", "no context", "", result.Error, "GPU 1: cuDevicePrimaryCtxRetain: out of memory"},
		{"context_create", "", "", result.Pass, ""},
		{"context_create", "no context", "", result.Error, "GPU 1: cuDevicePrimaryCtxRetain"},
		{"memtest", "", "", result.Pass, ""},
		{"memtest", "memory", "", result.Fail, "walking ones 3"},
		{"pcie", "", "", result.Pass, ""},
		{"pcie", "host", "", result.Fail, "GPU 1: d2h: 1 word"},
		{"pcie", "slow", "", result.Fail, "GPU 1: h2d: 18.33 GB/s is 29 % of 63 (mle-net); 47.88 or more is expected (aznhc)"},
		{"pcie", "", "pcie.min_bandwidth=60", result.Fail, "GPU 0: h2d: 55 GB/s is 92 % of 60 (parameter); 60 or more is expected (parameter)"},
		{"pcie", "pcie_replay", "", result.Fail, "GPU 1: PCIe replays: 1000 during the test; 80 are allowed"},
		{"pcie", "pcie_replay", "pcie.max_pcie_replays=1000", result.Pass, ""},
		{"pcie", "no sensors", "", result.Pass, "counters of link errors were not read: no NVML"},
		{"pcie", "no context", "", result.Error, "GPU 1: cuDevicePrimaryCtxRetain"},
		{"pcie_stress", "", "", result.Pass, ""},
		{"pcie_stress", "host", "", result.Fail, "GPU 1: d2h, all at once: "},
		{"pcie_stress", "pcie_replay", "", result.Fail, "GPU 1: PCIe replays: 1000 during the test; 80 are allowed"},
		{"p2p", "nvlink_recovery", "", result.Fail, "GPU 1: NVLink recoveries: 1000 during the test; 0 are allowed"},
		{"p2p", "nvlink_crc_flit", "", result.Fail, "GPU 1: NVLink CRC errors, flits: 1000 during the test; 100 are allowed"},
		{"p2p", "nvlink_replay", "", result.Pass, ""},
		{"p2p", "direct", "", result.Pass, ""},
		{"p2p", "", "", result.Pass, ""},
		{"p2p", "staged", "", result.Pass, ""},
		{"p2p", "slow", "", result.Fail, "GPU 0: write: 126.7 GB/s is 28 % of 450 (mle-net)"},
		{"p2p", "peer", "", result.Fail, "GPU 0: writing to GPU 1, as that one finds it: 1 word"},
		{"p2p", "peer", "", result.Fail, "GPU 1: reading from GPU 0: 1 word"},
		{"nvlink_stress", "", "", result.Pass, ""},
		{"nvlink_stress", "staged", "", result.Pass, ""},
		{"nvlink_stress", "peer", "", result.Fail, "GPU 0: writing to GPU 1, as that one finds it: "},
		{"nvlink_stress", "peer", "", result.Fail, "GPU 1: reading from GPU 0: "},
		{"nvlink_stress", "nvlink_recovery", "", result.Fail, "GPU 1: NVLink recoveries: 1000 during the test; 0 are allowed"},
		{"nvlink_stress", "no context", "", result.Error, "cuDevicePrimaryCtxRetain"},
		{"memory_bandwidth", "", "", result.Pass, ""},
		{"memory_bandwidth", "slow", "", result.Fail, "GPU 1: triad: 1400 GB/s is 29 % of 4800"},
		{"memory_bandwidth", "", "memory_bandwidth.minimum_bandwidth=4300000", result.Fail, "GPU 0: triad: 4200 GB/s is 98 % of 4300 (parameter)"},
		{"diagnostic", "", "", result.Pass, ""},
		{"diagnostic", "sm", "", result.Fail, "GPU 1: fp64 products: multiprocessors 17 have other results than the rest"},
		{"diagnostic", "arithmetic", "", result.Fail, "GPU 1: fp32 products by fma: 5 results are not what the host computes"},
		{"diagnostic", "hot", "", result.Fail, "GPU 1: clocks were held down under load: hardware thermal slowdown"},
		{"sm_stress", "repeat", "", result.Fail, "GPU 1: bf16 products: multiprocessors 18 have other results when they repeat one"},
		{"sm_stress", "drift", "", result.Fail, "GPU 1: bf16 products: most multiprocessors have other results than in the launch before"},
		{"sm_stress", "", "sm_stress.inject_error=1", result.Fail, "multiprocessors 66"},
		{"sm_stress", "slow", "", result.Fail, "GPU 1: bf16 products, wgmma: 250 TFLOP/s is 25 % of 989"},
		{"sm_stress", "warm", "", result.Warn, "software thermal slowdown"},
		{"sm_stress", "no sensors", "", result.Pass, "were not watched: no NVML"},
		{"sm_stress", "blind", "", result.Error, "GPU 1: its sensors cannot be read: GPU is lost"},
		{"targeted_stress", "", "", result.Pass, ""},
		{"targeted_stress", "slow", "", result.Fail, "GPU 1: fp32 products: 16.67 TFLOP/s is 44 % of 37.5 (dcgm)"},
		{"targeted_power", "", "", result.Pass, ""},
		{"targeted_power", "weak", "", result.Fail, "GPU 1: highest power: 300 W is 43 % of 700"},
		{"targeted_power", "no sensors", "", result.Skip, "power cannot be read: no NVML"},
		{"pulse_test", "", "pulse_test.on_ms=20;pulse_test.off_ms=20", result.Pass, ""},
		{"pulse_test", "repeat", "pulse_test.on_ms=20;pulse_test.off_ms=20", result.Fail, "multiprocessors 18"},
	} {
		t.Run(tt.test+" "+tt.fault+" "+tt.params, func(t *testing.T) {
			t.Parallel()
			r := diagnose(t, tt.test, tt.fault, tt.params)
			got := r.Tests[0]
			text := got.Reason + "\n" + got.Output + "\n"
			for _, f := range got.Findings {
				text += got.on(f.GPU) + f.Text + "\n"
			}
			if got.Status != tt.want || r.Status != tt.want || !strings.Contains(text, tt.text) || tt.want == result.Pass && tt.text == "" && len(got.Findings) > 0 {
				t.Errorf("%s, %s; want %s, %q", got.Status, text, tt.want, tt.text)
			}
			for _, m := range got.Measurements {
				if unit := strings.Replace(m.Unit, "GFLOP/s", "TFLOP/s", 1); !slices.ContainsFunc(result.Quantities("diag"), func(q result.Quantity) bool { return q.Name == m.Name && q.Unit == unit }) {
					t.Errorf("package result does not know %q in %s", m.Name, m.Unit)
				}
			}
			for _, f := range got.Findings {
				if f.GPU == 0 && tt.fault != "" && tt.test != "p2p" && tt.test != "nvlink_stress" {
					t.Errorf("GPU 0 is blamed: %s", f.Text)
				}
				if f.Status == result.Fail && f.Remedy == "" {
					t.Errorf("no remedy: %s", f.Text)
				}
			}
		})
	}
}

// TestRunnerGPUs: GPUs that are not there, or cannot be listed, are no report.
func TestRunnerGPUs(t *testing.T) {
	p, err := Select("context_create", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runner(t, "no driver").Run(t.Context(), p); !errors.Is(err, driver.ErrNoDriver) || !strings.Contains(err.Error(), "not here") {
		t.Errorf("no driver: %v", err)
	}
	if _, err := runner(t, "broken").Run(t.Context(), p); err == nil || !strings.Contains(err.Error(), "cuInit: broken") {
		t.Errorf("broken: %v", err)
	}
	p.GPUs = []int{1}
	r, err := runner(t, "no context").Run(t.Context(), p)
	if err != nil || len(r.GPUs) != 1 || r.GPUs[0].Index != 1 || r.Status != result.Error {
		t.Errorf("%+v, %v", r, err)
	}
	p.GPUs = []int{0}
	if r, err := runner(t, "no context").Run(t.Context(), p); err != nil || r.Status != result.Pass {
		t.Errorf("the other GPU: %+v, %v", r, err)
	}
	p.GPUs = []int{0, 2}
	if _, err := runner(t, "").Run(t.Context(), p); !errors.Is(err, ErrGPUs) {
		t.Errorf("GPU 2: %v", err)
	}
	p.GPUs = []int{0}
	p.Tests, _ = nil, p.Tests
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := runner(t, "").Run(ctx, p); err == nil {
		t.Error("interrupted, and nothing is said")
	}
}

// TestTournament: in a tournament's rounds each GPU meets each other one once, and is the partner
// of its partner.
func TestTournament(t *testing.T) {
	for n := 2; n <= 16; n++ {
		met := map[[2]int]int{}
		for round := range tournament(n) {
			for a := range n {
				b := partner(n, round, a)
				if b < 0 || b >= n || partner(n, round, b) != a || n%2 == 0 && a == b {
					t.Fatalf("%d GPUs, round %d: the partner of %d is %d, whose partner is %d", n, round, a, b, partner(n, round, b))
				}
				met[[2]int{a, b}]++
			}
		}
		for a := range n {
			for b := range n {
				if a != b && met[[2]int{a, b}] != 1 {
					t.Errorf("%d GPUs: %d meets %d %d times", n, a, b, met[[2]int{a, b}])
				}
			}
		}
	}
}
