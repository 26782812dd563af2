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

// diagnose runs a test with a fault of GPU 1.
func diagnose(t *testing.T, test, fault, params string, limits map[string]result.Rule) result.Result {
	t.Helper()
	p, err := Select(test, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.Params, err = ParseParams(params); err != nil {
		t.Fatal(err)
	}
	p.Duration, p.Timeout, p.Limits = 300*time.Millisecond, 20*time.Second, limits
	if fault == "hang" {
		p.Timeout = 8 * time.Second // a busy machine needs seconds to get there
	}
	r, _, err := runner(t, fault).Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	got := r.Results[0]
	if err := got.Validate(); err != nil || len(r.Results) != 1 || got.ID != test {
		t.Errorf("%v; %+v", err, r.Results)
	}
	return got
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
		{"memory", "hang", "", result.Error, "timed out: it was not done within 8s (at GPU "},
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
			got := diagnose(t, tt.test, tt.fault, tt.params, nil)
			text := got.Reason + "\n" + got.Output
			if got.Verdict != tt.want || !strings.Contains(text, tt.text) || tt.want == result.Pass && tt.text == "" && got.Reason != "2 GPUs" {
				t.Errorf("%s, %s; want %s, %q", got.Verdict, text, tt.want, tt.text)
			}
			for _, o := range got.Objects {
				name, unit := strings.TrimSuffix(o.Quantity, " 2"), o.Measured.Unit
				if !slices.ContainsFunc(result.Quantities("diag"), func(q result.Quantity) bool { return q.Name == name && q.Unit == unit }) {
					t.Errorf("package result does not know %q in %s", name, unit)
				}
			}
			found, _, _ := strings.Cut(got.Reason, " (at ")
			if strings.Contains(found, "GPU 0: ") && tt.fault != "" && tt.test != "p2p" && tt.test != "nvlink_stress" {
				t.Errorf("GPU 0 is blamed: %s", found)
			}
			if got.Verdict == result.Fail && got.Remedy == "" {
				t.Errorf("no remedy: %s", got.Reason)
			}
		})
	}
}

// TestLimits: a user's rule takes the place of a figure's limit, and can make a result worse, not
// better.
func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		test, fault, figure string
		rule                result.Rule
		want                result.Verdict
		text                string
		limit               float64
		kind                result.LimitKind
	}{
		{"memory", "", "write", result.Rule{Value: 4000}, result.Pass, "2 GPUs", 4000, result.AtLeast},
		{"memory", "", "write", result.Rule{Fraction: 0.95, Of: "peak"}, result.Fail, "write: 4400 GB/s, less than 4560", 0.95 * 4800, result.AtLeast},
		{"memory", "slow", "write", result.Rule{Value: 1000}, result.Fail, "GPU 1: write: 1467 GB/s is 31 % of 4800 (mle-acc); 3456 or more", 1000, result.AtLeast},
		{"pcie", "", "h2d", result.Rule{Fraction: 0.9, Of: "typical"}, result.Pass, "2 GPUs", 0.9 * 55.43, result.AtLeast},
		{"pcie", "", "h2d", result.Rule{Fraction: 0.9, Of: "peak"}, result.Fail, "h2d: 55 GB/s, less than 56.7", 0.9 * 63, result.AtLeast},
		{"sm_stress", "", "highest temperature", result.Rule{Value: 50}, result.Fail, "60 °C, more than 50", 50, result.AtMost},
		{"sm_stress", "", "highest power", result.Rule{Value: 650}, result.Pass, "2 GPUs", 650, result.AtLeast},
		{"sm_stress", "weak", "highest power", result.Rule{Value: 650}, result.Fail, "GPU 1, highest power: 300 W, less than 650", 650, result.AtLeast},
		{"sm_stress", "repeat", "highest power", result.Rule{Value: 690}, result.Fail, "GPU 1: bf16 products: multiprocessors 18", 690, result.AtLeast},
		{"sm_stress", "", "mean clock", result.Rule{Fraction: 0.5, Of: "peak"}, result.Error, "own.yaml:3: limits: mean clock: the database has no peak value of it for this machine; give a value", 0, ""},
		{"pcie", "no context", "h2d", result.Rule{Value: 60}, result.Error, "GPU 1: cuDevicePrimaryCtxRetain", 60, result.AtLeast},
	} {
		t.Run(fmt.Sprint(tt.test, " ", tt.fault, " ", tt.figure, " ", tt.rule), func(t *testing.T) {
			t.Parallel()
			tt.rule.Source = "own.yaml:3"
			got := diagnose(t, tt.test, tt.fault, "", map[string]result.Rule{tt.figure: tt.rule})
			if got.Verdict != tt.want || !strings.Contains(got.Reason, tt.text) {
				t.Errorf("%s, %s; want %s, %q", got.Verdict, got.Reason, tt.want, tt.text)
			}
			n := 0
			for _, o := range got.Objects {
				if o.Quantity != tt.figure {
					continue
				}
				n++
				l := o.Measured.Limit
				if tt.kind == "" && l != nil || tt.kind != "" && (l == nil || *l != result.Limit{Value: tt.limit, Kind: tt.kind, Source: "own.yaml:3"}) {
					t.Errorf("%s: the limit is %+v; want %s %v", o.Name, l, tt.kind, tt.limit)
				}
			}
			if n == 0 {
				t.Errorf("nothing is called %q: %+v", tt.figure, got.Objects)
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
	if _, _, err := runner(t, "no driver").Run(t.Context(), p); !errors.Is(err, driver.ErrNoDriver) || !strings.Contains(err.Error(), "not here") {
		t.Errorf("no driver: %v", err)
	}
	if _, _, err := runner(t, "broken").Run(t.Context(), p); err == nil || !strings.Contains(err.Error(), "cuInit: broken") {
		t.Errorf("broken: %v", err)
	}
	p.GPUs = []int{1}
	r, gpus, err := runner(t, "no context").Run(t.Context(), p)
	if err != nil || len(gpus) != 1 || gpus[0].Index != 1 || r.Results[0].Verdict != result.Error {
		t.Errorf("%+v, %+v, %v", r, gpus, err)
	}
	p.GPUs = []int{0}
	if r, _, err := runner(t, "no context").Run(t.Context(), p); err != nil || r.Results[0].Verdict != result.Pass || r.Results[0].Reason != "1 GPU" {
		t.Errorf("the other GPU: %+v, %v", r, err)
	}
	p.GPUs = []int{0, 2}
	if _, _, err := runner(t, "").Run(t.Context(), p); !errors.Is(err, ErrGPUs) {
		t.Errorf("GPU 2: %v", err)
	}
	p.GPUs = []int{0}
	p.Tests, _ = nil, p.Tests
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := runner(t, "").Run(ctx, p); err == nil {
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
