package node

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/result"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/dcgm/diag"
	"github.com/assay-hpc/assay/harness/audit"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/perftest/membw"
	"github.com/assay-hpc/assay/perftest/mesh"
)

type facts = machine.Facts

// twoGPUs is a machine with a driver.
var twoGPUs = facts{PCI: 2, GPUs: 2, CUDA: true}

// certify runs a suite whose only entry is this, on a machine whose commands all
// print the same.
func certify(t *testing.T, cfg *Config, entry string) map[string]result.Result {
	t.Helper()
	f, err := suite.ParseFile("own.yaml", strings.NewReader("version: 1\ntitle: t\nchecks:\n- "+entry+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	checks, err := f.Checks(cfg.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	results, err := suite.Run(t.Context(), &suite.Env{}, checks, suite.Options{Parallel: 4})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]result.Result{}
	for _, r := range results {
		out[r.ID] = r
		directed(t, r)
	}
	return out
}

// directed fails for a figure of which nobody has said which way is better.
func directed(t *testing.T, r result.Result) {
	t.Helper()
	if m := r.Measured; m != nil && len(r.Objects) == 0 && result.BetterOf(r.ID, "", m.Unit, "") == result.Unknown {
		t.Errorf("%s is measured in %s, and package result does not know which way is better", r.ID, m.Unit)
	}
	for _, o := range r.Objects {
		if m := o.Measured; m != nil && result.BetterOf(r.ID, o.Quantity, m.Unit, "") == result.Unknown {
			t.Errorf("%s measures %q of %s in %s, and package result does not know which way is better", r.ID, o.Quantity, o.Name, m.Unit)
		}
	}
}

// TestQuantities: what suites can measure is in package result by its name.
func TestQuantities(t *testing.T) {
	registered := func(kind string) (names []string) {
		for _, q := range result.Quantities(kind) {
			names = append(names, q.Name)
		}
		return names
	}
	for kind, names := range map[string][]string{"bandwidth": membw.FamilyNames(), "coll": perf.Collectives()} {
		for _, n := range names {
			if !slices.Contains(registered(kind), n) {
				t.Errorf("package result does not know %q of %s", n, kind)
			}
		}
	}
	for _, n := range registered("bandwidth") { // none that has gone
		if !slices.Contains(membw.FamilyNames(), n) {
			t.Errorf("package result has %q of bandwidth, which nothing measures", n)
		}
	}
}

// TestLimitsOfASite: a limit is the least of what should be high, and the most of
// what should be low.
func TestLimitsOfASite(t *testing.T) {
	latency := bandwidthReport(copied("host_latency", "ns", 0, 800, 1200), copied("host_to_device", "GB/s", 63, 50, 55), copied("host_to_device_all", "GB/s", 50, 50))
	peak, typical := &platform.Cited{Value: 64, Source: "sheet"}, &platform.Cited{Value: 54, Source: "measured"}
	machine := twoGPUs
	machine.Expect.Figures = []platform.Expected{
		{Name: "h2d", GPU: "h200", Peak: peak, Typical: typical},
		{Name: "all_reduce", Nodes: 1, GPUs: 2, Peak: &platform.Cited{Value: 450, Source: "sheet"}, Typical: &platform.Cited{Value: 400, Source: "measured"}, Floor: &platform.Floor{Cited: platform.Cited{Value: 351, Source: "rule"}}},
	}
	for name, tt := range map[string]struct {
		doc       any
		entry, id string
		want      result.Verdict
		text      string
		limit     float64 // of the first object that has a value; its kind
		kind      result.LimitKind
	}{
		"latency is low":                 {latency, "bandwidth, with: {families: [host_latency]}, limits: {host_latency: {value: 1300}}", "bandwidth/host_latency", result.Pass, "800 to 1200 ns", 1300, result.AtMost},
		"latency is high":                {latency, "bandwidth, with: {families: [host_latency]}, limits: {host_latency: {value: 900}}", "bandwidth/host_latency", result.Fail, "GPU 1: 1200 ns, more than 900", 900, result.AtMost},
		"bandwidth is low":               {latency, "bandwidth, with: {families: [host_to_device]}, limits: {host_to_device: {value: 52}}", "bandwidth/host_to_device", result.Fail, "GPU 0: 50 GB/s, less than 52", 52, result.AtLeast},
		"of the peak":                    {latency, "bandwidth, with: {families: [host_to_device]}, limits: {host_to_device: {fraction: 0.9, of: peak}}", "bandwidth/host_to_device", result.Fail, "less than 56.7", 0.9 * 63, result.AtLeast},
		"of what is typical":             {latency, "bandwidth, with: {families: [host_to_device]}, limits: {host_to_device: {fraction: 0.9, of: typical}}", "bandwidth/host_to_device", result.Pass, "", 0.9 * 54, result.AtLeast},
		"all at once, of the peak":       {latency, "bandwidth, with: {families: [host_to_device_all]}, limits: {host_to_device_all: {fraction: 0.9, of: peak}}", "bandwidth/host_to_device_all", result.Fail, "less than 57.6", 0.9 * 64, result.AtLeast},
		"of a latency that nobody knows": {latency, "bandwidth, with: {families: [host_latency]}, limits: {host_latency: {fraction: 1.2, of: typical}}", "bandwidth/host_latency", result.Error, "own.yaml:4: limits: host_latency: the database has no typical value of it for this machine; give a value", 0, ""},
		"coll of the peak":               {document(380), "coll, with: {operations: [all_reduce]}, limits: {all_reduce: {fraction: 0.9, of: peak}}", "coll/all_reduce", result.Fail, "less than 405", 0, ""},
		"coll of what is typical":        {document(380), "coll, with: {operations: [all_reduce]}, limits: {all_reduce: {fraction: 0.9, of: typical}}", "coll/all_reduce", result.Pass, "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &Config{Machine: machine, Run: says(t, 0, tt.doc)}
			r := certify(t, cfg, "{run: "+tt.entry+"}")[tt.id]
			want(t, r, tt.want, tt.text)
			if tt.limit == 0 {
				return
			}
			if l := r.Objects[0].Measured.Limit; l == nil || l.Value != tt.limit || l.Kind != tt.kind || l.Source != "own.yaml:4" {
				t.Errorf("the limit is %+v; want %s %v", l, tt.kind, tt.limit)
			}
		})
	}
	// Of several tests one measures it.
	cfg := &Config{Machine: machine}
	cfg.Run = says(t, 0, diagReport(result.Result{ID: "pcie", Verdict: result.Pass}, diagResult(result.Pass, "highest temperature", "°C", 70, 95)))
	got := certify(t, cfg, "{run: diag, with: {tests: [pcie, memory]}, limits: {highest temperature: {value: 99}}}")
	want(t, got["diag/pcie"], result.Pass, "")
	want(t, got["diag/memory"], result.Pass, "")
}

// says is a harness whose commands all print this document.
func says(t *testing.T, status int, doc any) func(context.Context, ...string) (Output, error) {
	t.Helper()
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return func(context.Context, ...string) (Output, error) {
		return Output{Stdout: b, Stderr: "harness: as it was\n", Status: status}, nil
	}
}

func want(t *testing.T, r result.Result, v result.Verdict, text string) {
	t.Helper()
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	if all := r.Reason + " | " + r.Remedy; r.Verdict != v || !strings.Contains(all, text) {
		t.Errorf("%s: %s: %s; want %s, …%s…", r.ID, r.Verdict, all, v, text)
	}
}

func TestSuites(t *testing.T) {
	cfg := &Config{Machine: twoGPUs}
	kinds := append(cfg.Kinds(), audit.Kind(), suite.Kind{Name: "image", Make: func(e *suite.Entry) ([]suite.Check, error) {
		return []suite.Check{{ID: e.ID, Run: func(context.Context, *suite.Env) result.Result { return result.Passed("") }}}, nil
	}})
	var before int
	for _, name := range Names() {
		f, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		checks, err := f.Checks(kinds)
		if err != nil {
			t.Fatal(err)
		}
		if name != "fabric" && len(checks) <= before || f.Limit == 0 {
			t.Errorf("%s: %d checks in %v; the one before has %d", name, len(checks), f.Limit, before)
		}
		before = len(checks)
		text, err := Text(name)
		if err != nil || !strings.Contains(string(text), f.Title) {
			t.Errorf("the text of %s: %v", name, err)
		}
	}
	if _, err := Load("none"); err == nil {
		t.Error("a suite that does not exist was loaded")
	}
}

// TestNodeLoads: the suite node gives each load its own time, 35 s together.
func TestNodeLoads(t *testing.T) {
	f, err := Load("node")
	if err != nil {
		t.Fatal(err)
	}
	seconds := map[string]float64{}
	cfg := &Config{Machine: twoGPUs}
	cfg.Run = func(_ context.Context, args ...string) (Output, error) {
		name := args[2] // diag -r NAME
		plan, err := diag.Select(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, arg := range args {
			value := ""
			for _, p := range plan.Tests[0].Params {
				if p.Name == "test_duration" && arg == "--duration" {
					value = strings.TrimSuffix(args[i+1], "s")
				}
			}
			if own, ok := strings.CutPrefix(arg, name+".test_duration="); ok {
				value = own
			}
			if value == "" {
				continue
			}
			if seconds[name], err = strconv.ParseFloat(value, 64); err != nil {
				t.Errorf("%q: %v", args, err)
			}
		}
		return Output{}, errors.New("not here")
	}
	kinds := append(cfg.Kinds(), audit.Kind(), suite.Kind{Name: "image", Make: func(*suite.Entry) ([]suite.Check, error) { return nil, nil }})
	checks, err := f.Checks(kinds)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if strings.HasPrefix(c.ID, "diag/") {
			c.Run(t.Context(), &suite.Env{})
		}
	}
	want := map[string]float64{"diagnostic": 8, "targeted_stress": 4, "targeted_power": 8, "pulse_test": 7.5}
	if !maps.Equal(seconds, want) {
		t.Errorf("%v; want %v", seconds, want)
	}
}

func TestEntriesRefused(t *testing.T) {
	cfg := &Config{}
	for entry, wrong := range map[string]string{
		"{run: platform, with: {a: 1}}":                                     `there is no key "a"`,
		"{run: platform, limits: {a: {value: 1}}}":                          `platform has no figures`,
		"{run: health, with: {only: [nothing]}}":                            `with: only: no check of health matches "nothing"`,
		"{run: health, with: {skip: [nope/x]}}":                             `with: skip: no check of health matches "nope/x"; the nearest is`,
		"{run: health, with: {only: [node/shm], skip: [node]}}":             "leave no check of health",
		"{run: health, id: ../x}":                                           `id: "../x"`,
		"{run: health, limits: {a: {value: 1}}}":                            `certify --thresholds FILE`,
		"{run: diag, with: {tests: [memory]}, limits: {wirte: {value: 1}}}": `"wirte" is not a figure of this check; did you mean "write"?`,
		"{run: diag}":                         "tests: name one at least",
		"{run: diag, with: {tests: [memry]}}": `did you mean "memory"?`,
		"{run: diag, with: {tests: [\"3\"]}}": `there is no test "3"`,
		"{run: diag, with: {tests: [memory], parameters: [memory.walk=1]}}": "memory has",
		"{run: bandwidth, with: {families: [host_to_devise]}}":              `did you mean "host_to_device"?`,
		"{run: bandwidth, with: {samples: 0}}":                              "1 at least",
		"{run: bandwidth, limits: {h2d: {value: 1}}}":                       `"h2d" is not a figure`,
		"{run: coll}": "operations: name one at least",
		"{run: coll, with: {operations: [all_redeuce]}}":                               `did you mean "all_reduce"?`,
		"{run: coll, with: {operations: [all_reduce], device: tpu}}":                   "want gpu or cpu",
		"{run: coll, with: {operations: [all_reduce], engine: mpi}}":                   "want assay",
		"{run: coll, with: {operations: [all_reduce], ranks: 1}}":                      "2 at least",
		"{run: coll, with: {operations: [all_gather], same_bits: true}}":               "all_gather adds nothing",
		"{run: coll, with: {operations: [all_reduce], same_bits: true, engine: nccl}}": "with assay's engine",
		"{run: coll, with: {operations: [all_reduce]}, limits: {x: {value: 1}}}":       `"x" is not a figure`,
		"{run: mesh, with: {arg: []}}":                                                 `did you mean "args"?`,
	} {
		f, err := suite.ParseFile("own.yaml", strings.NewReader("version: 1\ntitle: t\nchecks:\n- "+entry+"\n"))
		if err == nil {
			_, err = f.Checks(cfg.Kinds())
		}
		if err == nil || !strings.Contains(err.Error(), wrong) || !strings.Contains(err.Error(), "own.yaml:4") {
			t.Errorf("%s: %v; want own.yaml:4 … %s", entry, err, wrong)
		}
	}
}

// TestNoGPUs: where there are none, that is a skip; where there are some that
// cannot be used, it is none.
func TestNoGPUs(t *testing.T) {
	eight := 8
	for name, tt := range map[string]struct {
		cfg  Config
		want result.Verdict
		text string
	}{
		"none":         {Config{}, result.Skip, "there is no GPU on PCI"},
		"none wanted":  {Config{GPUs: new(int)}, result.Skip, "there is no GPU on PCI"},
		"eight wanted": {Config{GPUs: &eight, Machine: facts{CUDA: true, Why: "no driver"}}, result.Error, "CUDA none: no driver"},
		"no code":      {Config{Machine: facts{PCI: 8, Why: "w"}}, result.Error, "use the harness of a CUDA image"},
		"no driver":    {Config{Machine: facts{PCI: 8, CUDA: true, Why: "no libcuda"}}, result.Error, "docker run --gpus all"},
	} {
		for entry, id := range map[string]string{
			"{run: diag, with: {tests: [memory]}}":           "diag/memory",
			"{run: bandwidth, with: {families: [local_ce]}}": "bandwidth/local_ce",
			"{run: coll, with: {operations: [all_reduce]}}":  "coll/all_reduce",
		} {
			got := certify(t, &tt.cfg, entry)[id]
			if t.Run(name+" "+id, func(t *testing.T) { want(t, got, tt.want, tt.text) }); t.Failed() {
				return
			}
		}
	}
}

// TestChildren has children end in all ways that are not a report.
func TestChildren(t *testing.T) {
	entry := "{run: diag, with: {tests: [memory]}}"
	for name, tt := range map[string]struct {
		out  Output
		err  error
		text string
	}{
		"cannot start": {err: errors.New("no such program"), text: "harness diag -r memory -o json: no such program"},
		"killed":       {out: Output{Status: -1, Stdout: []byte(`{"tests": [{"test": "memory", "status": "pass"}]}`)}, text: "it was killed"},
		"not done":     {out: Output{Status: 3, Stderr: "more\nharness: out of memory\n"}, text: "it ended with status 3: out of memory"},
		"crash":        {out: Output{Status: 2, Stderr: "at work\nfatal error: unexpected signal\n[signal SIGSEGV]\ngoroutine 1\ngs 0x0\n"}, text: "it ended with status 2: fatal error: unexpected signal"},
		"no report":    {out: Output{Stdout: []byte("Segmentation fault")}, text: "its report cannot be read"},
		"another test": {out: Output{Stdout: []byte(`{"tests": []}`)}, text: "has nothing about memory"},
	} {
		cfg := &Config{Machine: twoGPUs, Run: func(context.Context, ...string) (Output, error) { return tt.out, tt.err }}
		t.Run(name, func(t *testing.T) { want(t, certify(t, cfg, entry)["diag/memory"], result.Error, tt.text) })
	}
}

// TestSharedRun: what was cut off is tried again by the next check, which has
// time of its own.
func TestSharedRun(t *testing.T) {
	calls := 0
	run := func(ctx context.Context) (*int, *result.Result) {
		calls++
		if calls == 1 {
			<-ctx.Done()
			res := result.Errored("cut off")
			return nil, &res
		}
		return &calls, nil
	}
	var o once[int]
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if _, bad := o.get(ctx, run); bad == nil {
		t.Error("what was cut off has a report")
	}
	for range 3 {
		if doc, bad := o.get(t.Context(), run); bad != nil || *doc != 2 {
			t.Errorf("%v, %v", doc, bad)
		}
	}
}

func TestPlatform(t *testing.T) {
	h200 := platform.Recognition{Platform: "hgx-h200", Name: "HGX H200 8x", GPUs: []platform.GPUGroup{{Name: "H200", Count: 8}}, NICs: []platform.NICGroup{{Name: "ConnectX-7", Count: 8}}}
	part, slow := h200, h200
	part.NICs, part.Differences = nil, []string{"2 GPUs of 8", "no RDMA port of 8 (InfiniBand NDR)"}
	part.Missing = []platform.Missing{{What: platform.GPUs, Have: 2, Text: part.Differences[0]}, {What: platform.Ports, Have: 0, Text: part.Differences[1]}}
	slow.Differences = []string{"GPU 3: 16 of 18 NVLinks are up"}
	machine := func(r platform.Recognition) facts {
		return facts{PCI: 8, Expect: platform.Expectation{Recognition: r}}
	}
	none, two, eight := 0, 2, 8
	unknown := machine(platform.Recognition{GPUs: []platform.GPUGroup{{Name: "X1", Count: 2}}})
	for name, tt := range map[string]struct {
		cfg  Config
		want result.Verdict
		text string
	}{
		"known":                             {Config{Machine: machine(h200)}, result.Pass, "HGX H200 8x"},
		"differs":                           {Config{Machine: machine(slow)}, result.Pass, "HGX H200 8x, but: GPU 3: 16 of 18"},
		"devices are missing":               {Config{Machine: machine(part)}, result.Warn, "it is most like HGX H200 8x (hgx-h200), and has 2 GPUs of 8, no RDMA port of 8 (InfiniBand NDR) | look for the missing devices (harness show platform, lspci, dmesg); if this is a container or a virtual machine that was given a part of the machine, say so with --gpus 2 --ports 0"},
		"a part, as was said":               {Config{GPUs: &two, Ports: &none, Machine: machine(part)}, result.Pass, "HGX H200 8x, but: 2 GPUs of 8"},
		"GPUs as was said":                  {Config{GPUs: &two, Machine: machine(part)}, result.Warn, "and has no RDMA port of 8 (InfiniBand NDR) | "},
		"other than was said":               {Config{GPUs: &eight, Ports: &none, Machine: machine(part)}, result.Warn, "and has 2 GPUs of 8 | "},
		"ports, not as said":                {Config{Ports: &two, Machine: machine(h200)}, result.Fail, "it should have 2 RDMA ports, and has 8"},
		"as wanted":                         {Config{Platform: "hgx-h200", Machine: machine(h200)}, result.Pass, "HGX"},
		"a part of what is wanted":          {Config{Platform: "hgx-h200", Machine: machine(part)}, result.Fail, "it should be hgx-h200, and has 2 GPUs of 8, no RDMA port of 8"},
		"a part of what is wanted, as said": {Config{Platform: "hgx-h200", GPUs: &two, Ports: &none, Machine: machine(part)}, result.Pass, "HGX"},
		"another":                           {Config{Platform: "hgx-h100-ndr400", Machine: machine(h200)}, result.Fail, "it should be hgx-h100-ndr400, and is nearest to hgx-h200"},
		"unknown":                           {Config{Machine: unknown}, result.Skip, "has 2 × X1"},
		"no GPU":                            {Config{}, result.Skip, "a machine without GPUs"},
		"dumb GPUs":                         {Config{Machine: facts{PCI: 8, Why: "no driver"}}, result.Error, "PCI has 8 GPUs, and nothing is known of them: no driver"},
	} {
		t.Run(name, func(t *testing.T) { want(t, certify(t, &tt.cfg, "{run: platform}")["platform"], tt.want, tt.text) })
	}
}

func TestSurePlatform(t *testing.T) {
	like := func(differences ...string) facts {
		return facts{Expect: platform.Expectation{Recognition: platform.Recognition{Platform: "hgx-h200", Differences: differences}}}
	}
	for want, cfg := range map[string]Config{
		"hgx-h200": {Machine: like()},
		"":         {Machine: like("2 GPUs of 8")},
		"own":      {Platform: "own", Machine: like("2 GPUs of 8")},
		"other":    {Platform: "other", Machine: like()},
	} {
		if got := cfg.surePlatform(); got != want {
			t.Errorf("%+v: %q; want %q", cfg, got, want)
		}
	}
}

func TestHealth(t *testing.T) {
	volatile := result.Result{ID: "gpu/ecc/volatile", Verdict: result.Fail, Reason: "GPU 1: 3 errors", Wanted: "0 errors (DCGM)", Remedy: "reset it", Objects: []result.Object{
		{Name: "GPU 1", ID: "GPU-1", Bus: "0000:11:00.0", Verdict: result.Fail, Reason: "3 errors", Measured: &result.Measurement{Value: 3, Unit: "errors", Limit: &result.Limit{Kind: result.AtMost, Source: "DCGM"}}},
	}}
	r := result.Report{Kind: "health", Results: []result.Result{volatile, {ID: "gpu/mig", Verdict: result.Pass, Reason: "off, all 2"}}}
	args := [][]string{}
	run := says(t, 1, r)
	eight := 8
	cfg := &Config{GPUs: &eight, Platform: "hgx-h200", Run: func(ctx context.Context, a ...string) (Output, error) {
		args = append(args, a)
		return run(ctx, a...)
	}}
	got := certify(t, cfg, "{run: health, with: {window: 1s, only: [gpu, node/shm], skip: [gpu/same]}}")
	want(t, got["health/gpu/ecc/volatile"], result.Fail, "GPU 1: 3 errors | reset it")
	if g := got["health/gpu/ecc/volatile"]; g.Title != "there are no uncorrectable ECC errors since the driver was loaded" || g.Wanted != volatile.Wanted || len(g.Objects) != 1 || g.Objects[0].Bus != "0000:11:00.0" {
		t.Errorf("%+v", g)
	}
	want(t, got["health/gpu/mig"], result.Pass, "off, all 2")
	want(t, got["health/gpu/count"], result.Error, "nothing about gpu/count")
	if _, ok := got["health/gpu/same/vbios"]; ok {
		t.Error("a check was made that skip names")
	}
	all := strings.Join(args[0], " ")
	if len(args) != 1 || all != "health -o json --window 1s --since 2h0m0s --gpus 8 --hardware hgx-h200" {
		t.Errorf("%d runs: %s", len(args), all)
	}
}

func diagReport(results ...result.Result) result.Report {
	return result.Report{Kind: "diag", Results: results}
}

// diagResult is a result of the test memory, with a value of each GPU.
func diagResult(v result.Verdict, figure, unit string, values ...float64) result.Result {
	res := copied("memory", unit, 0, values...)
	for i := range res.Objects {
		res.Objects[i].ID, res.Objects[i].Quantity = "uuid-"+gpuName(i), figure
	}
	res.Verdict = v
	return res
}

func TestDiag(t *testing.T) {
	passes := diagResult(result.Pass, "write", "GB/s", 4300, 4301)
	slow := diagResult(result.Fail, "write", "GB/s", 4300, 3000)
	slow.Reason, slow.Remedy = "GPU 1: 3000 GB/s, less than 3456", "reset it"
	for name, tt := range map[string]struct {
		entry string
		r     result.Result
		want  result.Verdict
		text  string
	}{
		"passes":           {"", passes, result.Pass, ""},
		"slow":             {"", slow, result.Fail, "GPU 1: 3000 GB/s, less than 3456 | reset it"},
		"broken":           {"", result.Result{ID: "memory", Verdict: result.Error, Reason: "killed by signal 11"}, result.Error, "killed by signal 11"},
		"limit":            {", limits: {write: {value: 4000}}", passes, result.Pass, ""},
		"limit of nothing": {", limits: {triad: {value: 4000}}", passes, result.Error, `own.yaml:4: limits: nothing was measured that is called ["triad"]`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &Config{Machine: twoGPUs, Run: says(t, 1, diagReport(tt.r))}
			r := certify(t, cfg, "{run: diag, with: {tests: [memory]}"+tt.entry+"}")["diag/memory"]
			want(t, r, tt.want, tt.text)
			if r.Verdict != result.Error && (!reflect.DeepEqual(r.Objects, tt.r.Objects) || !reflect.DeepEqual(r.Measured, tt.r.Measured)) {
				t.Errorf("%+v; want %+v", r, tt.r)
			}
		})
	}
}

func TestDiagArguments(t *testing.T) {
	var got []string
	cfg := &Config{Machine: twoGPUs, Run: func(_ context.Context, a ...string) (Output, error) {
		got = append(got, strings.Join(a, " "))
		return Output{Status: 3}, nil
	}}
	certify(t, cfg, "{run: diag, with: {tests: [pcie, sm_stress], duration: 5s, parameters: [pcie.copies=16]}}")
	certify(t, cfg, "{run: diag, with: {tests: [memory]}, limits: {write: {fraction: 0.95, of: peak}, read: {value: 4000}}}")
	slices.Sort(got)
	if all := strings.Join(got, "; "); all != `diag -r memory -o json --limits {"read":{"value":4000,"source":"own.yaml:4"},"write":{"fraction":0.95,"of":"peak","source":"own.yaml:4"}}; `+
		"diag -r pcie -o json --duration 5s -p pcie.copies=16; diag -r sm_stress -o json --duration 5s" {
		t.Error(all)
	}
}

// copied is a family that passed, with a value of each GPU.
func copied(id, unit string, reference float64, values ...float64) result.Result {
	var objects []result.Object
	for i, v := range values {
		m := &result.Measurement{Value: v, Unit: unit}
		m.Expect(reference, "sheet")
		objects = append(objects, result.Object{Name: gpuName(i), Verdict: result.Pass, Measured: m})
	}
	res := result.Sum(objects)
	res.ID, res.Measured = id, result.Speaking(id, objects)
	return res
}

func bandwidthReport(results ...result.Result) membw.Report {
	r := membw.Report{GPUs: []membw.Subject{{Model: "h200"}, {GPU: membw.GPU{Index: 1}, Model: "h200"}}}
	r.Kind, r.Results = "bandwidth", results
	return r
}

// TestBandwidth: results are those of the report; a limit takes the place of theirs.
func TestBandwidth(t *testing.T) {
	slow := copied("host_to_device", "GB/s", 63, 55, 20)
	slow.Verdict, slow.Reason, slow.Remedy = result.Fail, "GPU 1 is slow", "look"
	slow.Objects[1].Verdict, slow.Objects[1].Reason = result.Fail, "20.0 GB/s is 32 %"
	few := result.Skipped("it takes more GPUs")
	few.ID = "peer_both_ce"
	cfg := &Config{Machine: twoGPUs, Run: says(t, 1, bandwidthReport(slow, few))}
	got := certify(t, cfg, "{run: bandwidth, with: {families: [host_to_device, peer_write_ce, peer_both_ce]}}")
	want(t, got["bandwidth/host_to_device"], result.Fail, "GPU 1 is slow | look")
	want(t, got["bandwidth/peer_both_ce"], result.Skip, "more GPUs")
	want(t, got["bandwidth/peer_write_ce"], result.Error, "the report of harness bandwidth has nothing about peer_write_ce")
	got = certify(t, cfg, "{run: bandwidth, with: {families: [peer_write_ce, peer_both_ce]}, limits: {peer_write_ce: {value: 1}, peer_both_ce: {value: 1}}}")
	want(t, got["bandwidth/peer_both_ce"], result.Skip, "more GPUs")
	want(t, got["bandwidth/peer_write_ce"], result.Error, "has nothing about peer_write_ce")
	got = certify(t, cfg, "{run: bandwidth, with: {families: [host_to_device]}, limits: {host_to_device: {value: 56}}}")
	want(t, got["bandwidth/host_to_device"], result.Fail, "less than 56; and 1 more | compare the links' state")
	got = certify(t, cfg, "{run: bandwidth, with: {families: [host_to_device]}, limits: {host_to_device: {fraction: 0.3, of: peak}}}")
	want(t, got["bandwidth/host_to_device"], result.Pass, "20 to 55 GB/s | ")
}

func document(busbw float64) perf.Document {
	return perf.Document{Ranks: 2, Rows: []perf.Row{
		{Bytes: 1 << 20, OutOfPlace: perf.Placement{BusBW: 100}, InPlace: perf.Placement{BusBW: 101}},
		{Bytes: 1 << 30, OutOfPlace: perf.Placement{BusBW: busbw}, InPlace: perf.Placement{BusBW: busbw}},
	}}
}

func TestColl(t *testing.T) {
	machine := twoGPUs
	machine.Expect.Figures = []platform.Expected{
		{Name: "all_reduce", Nodes: 1, GPUs: 2, Algorithm: "nvls", Floor: &platform.Floor{Cited: platform.Cited{Value: 420, Source: "s"}}},
		{Name: "all_reduce", Nodes: 1, GPUs: 2, Algorithm: "ring", Peak: &platform.Cited{Value: 450, Source: "sheet"}, Floor: &platform.Floor{Cited: platform.Cited{Value: 351, Source: "rule"}}},
		{Name: "all_gather", Nodes: 1, GPUs: 2, Bytes: 16 << 30, Floor: &platform.Floor{Cited: platform.Cited{Value: 351, Source: "of larger messages"}}},
		{Name: "all_reduce", Nodes: 1, GPUs: 8, Floor: &platform.Floor{Cited: platform.Cited{Value: 1, Source: "of more GPUs"}}},
	}
	late := document(380)
	late.Straggler = &perf.StragglerSummary{Rank: 1, Host: "h", Excess: 30, Percent: 40, Often: 9, Of: 10}
	wrong := document(380)
	wrong.Bad = 2
	failed := document(380)
	failed.Error = "rank 1: the peer has gone"
	for name, tt := range map[string]struct {
		d     perf.Document
		entry string
		want  result.Verdict
		text  string
	}{
		"fast":   {document(380), "", result.Pass, "2 ranks, every result verified"},
		"slow":   {document(340), "", result.Fail, "340 GB/s with 1073741824 bytes, less than 351"},
		"late":   {late, "", result.Warn, "GPU 1 is late: rank 1 on h"},
		"wrong":  {wrong, "", result.Fail, "2 results were wrong | do not use the node"},
		"failed": {failed, "", result.Error, "the peer has gone"},
		"empty":  {perf.Document{Ranks: 2}, "", result.Error, "nothing was measured"},
		"own":    {document(340), ", limits: {all_reduce: {value: 300}}", result.Pass, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &Config{Machine: machine, Run: says(t, 0, tt.d)}
			r := certify(t, cfg, "{run: coll, with: {operations: [all_reduce]}"+tt.entry+"}")["coll/all_reduce"]
			want(t, r, tt.want, tt.text)
			if r.Verdict != result.Error && (len(r.Curves) != 2 || len(r.Curves[0].Points) != 2 || r.Curves[0].Expected != 450 || r.Measured.Expected != 450) {
				t.Errorf("%+v %+v", r.Curves, r.Measured)
			}
		})
	}
	for bytes, want := range map[int64]bool{256 << 20: false, 1 << 30: true, 16 << 30: true} {
		if got := (&Config{Machine: machine}).figure("all_gather", 1, 2, bytes) != nil; got != want {
			t.Errorf("%d bytes are held against a figure of 16 GiB: %v; want %v", bytes, got, want)
		}
	}
	one := &Config{Machine: facts{PCI: 1, GPUs: 1, CUDA: true}}
	want(t, certify(t, one, "{run: coll, with: {operations: [all_reduce]}}")["coll/all_reduce"], result.Skip, "it takes two GPUs")
	host := &Config{Run: says(t, 0, late)}
	r := certify(t, host, "{run: coll, id: host, with: {operations: [all_reduce], device: cpu, ranks: 2}}")["host/all_reduce"]
	want(t, r, result.Pass, "2 ranks") // who is late there says nothing
}

func TestMesh(t *testing.T) {
	down := result.Failed("port mlx5_1/1 is down").WithRemedy("look")
	down.ID = mesh.ResultID
	run := says(t, 1, mesh.Report{Report: result.Report{Kind: "ib mesh", Results: []result.Result{down}}})
	want(t, certify(t, &Config{Machine: facts{Ports: 2}, Run: run}, "{run: mesh}")["mesh"], result.Fail, "port mlx5_1/1 is down | look")
	want(t, certify(t, &Config{Run: run}, "{run: mesh}")["mesh"], result.Skip, "no RDMA device has a port that is up")
	want(t, certify(t, &Config{Machine: facts{Ports: 1}, Run: run}, "{run: mesh}")["mesh"], result.Skip, "it takes two")
}

// TestSameBits: a GPU whose sums have other bits is named, whichever rank it is in a rotation.
func TestSameBits(t *testing.T) {
	const entry = "{run: coll, with: {operations: [reduce_scatter], same_bits: true, min: 64K, max: 64M, factor: 32}}"
	var seen []string
	rotations := func(bad string) func(context.Context, ...string) (Output, error) {
		seen = nil
		return func(ctx context.Context, args ...string) (Output, error) {
			devices, ok := strings.CutPrefix(args[0], "CUDA_VISIBLE_DEVICES=")
			if !ok || !slices.Contains(args, "--same-bits") && !slices.Contains(args, "prod") {
				t.Errorf("harness %v", args)
			}
			if way := strings.TrimPrefix(args[1], "ASSAY_GPU_ALGO="); way != args[1] {
				devices += " " + way
			}
			if slices.Contains(args, "prod") {
				devices += " prod"
			}
			seen = append(seen, devices)
			devices, _, _ = strings.Cut(devices, " ")
			d := document(1)
			for i, name := range strings.Split(devices, ",") {
				var intro struct {
					Devices []map[string]any `json:"devices"`
				}
				intro.Devices = []map[string]any{{"rank": i, "bus": []int{0, 0x10 + int(name[0]-'0'), 0}}}
				b, err := json.Marshal(intro)
				if err != nil {
					t.Fatal(err)
				}
				var one perf.Document
				if err := json.Unmarshal(b, &one); err != nil {
					t.Fatal(err)
				}
				d.Devices = append(d.Devices, one.Devices...)
				if name == bad {
					d.Rows[1].InPlace.Wrong, d.Rows[1].InPlace.WrongOn, d.Bad = 3, []int{i}, 1
				}
			}
			return says(t, min(d.Bad, 1), d)(ctx, args...)
		}
	}
	check := func(bad string) result.Result {
		return certify(t, &Config{Machine: twoGPUs, Run: rotations(bad)}, entry)["coll/reduce_scatter"]
	}
	want(t, check(""), result.Pass, "2 ranks, 16 runs of 64 results, all with the bits of the ranks' order")
	turns := func(a, b string) []string {
		return []string{
			a, a + " prod", b + " reduce_ll", b + " reduce_ll prod", a + " reduce_ll128", a + " reduce_ll128 prod", b + " allreduce_simple", b + " allreduce_simple prod",
			b, b + " prod", a + " reduce_ll", a + " reduce_ll prod", b + " reduce_ll128", b + " reduce_ll128 prod", a + " allreduce_simple", a + " allreduce_simple prod",
		}
	}
	if !slices.Equal(seen, turns("0,1", "1,0")) {
		t.Errorf("turns %q", seen)
	}
	want(t, check("1"), result.Fail, "GPU 0000:11:00, or a link into GPU 0000:11:00: other bits in 16 results of 64, in 16 of 16 runs | do not use them; more findings")
	t.Setenv("CUDA_VISIBLE_DEVICES", "3,5")
	want(t, check("5"), result.Fail, "GPU 0000:15:00, or a link into GPU 0000:15:00: other bits")
	if !slices.Equal(seen, turns("3,5", "5,3")) {
		t.Errorf("turns %q", seen)
	}
	host := &Config{Run: says(t, 0, document(1))}
	want(t, certify(t, host, "{run: coll, id: host, with: {operations: [reduce], same_bits: true, device: cpu, ranks: 2}}")["host/reduce"], result.Pass, "1 run of 4 results")
}
