package perf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/internal/getopt"
)

// A flag is one option. Those of nccl-tests have a letter, ours do not.
type flag struct {
	short byte
	long  string
	arg   string // description of the value in the usage; empty: no value
	help  string
	set   func(c *Config, v string) error
}

func intFlag(p func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error { *p(c) = parseInt(v); return nil }
}

// countFlag is for flags of ours with a number of at least 1.
func countFlag(name string, p func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 1 {
			return fmt.Errorf("--%s is a whole number, at least 1, not %q", name, v)
		}
		*p(c) = int(n)
		return nil
	}
}

func boolFlag(p func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error { *p(c) = parseInt(v) != 0; return nil }
}

// sizeFlag names the flag in the error as nccl-tests does.
func sizeFlag(name string, p func(*Config) *int64) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := ParseSize(v)
		if err != nil {
			return &UsageError{Text: fmt.Sprintf("invalid size specified for '%s'", name), Status: 255}
		}
		*p(c) = n
		return nil
	}
}

// gpuFlag is for a flag that has no meaning on host memory. It notes that the flag was used,
// unless the value is 0, which requests nothing, and stores the number where p says, if that is
// not nil.
func gpuFlag(flag string, p func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n := parseInt(v)
		if n != 0 {
			c.notes = append(c.notes, flag)
		}
		if p != nil {
			*p(c) = n
		}
		return nil
	}
}

// flags are those of nccl-tests in the order of its usage text, then ours.
var flags = []flag{
	{'t', "nthreads", "num threads", "host threads per process", intFlag(func(c *Config) *int { return &c.Threads })},
	{'g', "ngpus", "ranks per thread", "ranks (GPUs) per thread", intFlag(func(c *Config) *int { return &c.GPUs })},
	{'b', "minbytes", "size", "first size, such as 8, 64K, 1M, 0.5G", sizeFlag("minbytes", func(c *Config) *int64 { return &c.MinBytes })},
	{'e', "maxbytes", "size", "last size; also how large the buffers are", sizeFlag("maxbytes", func(c *Config) *int64 { return &c.MaxBytes })},
	{'i', "stepbytes", "size", "what is added from one size to the next", sizeFlag("stepBytes", func(c *Config) *int64 { return &c.StepBytes })},
	{'f', "stepfactor", "factor", "what a size is multiplied by to get the next; wins over -i when above 1", intFlag(func(c *Config) *int { return &c.StepFactor })},
	{'n', "iters", "count", "timed iterations", intFlag(func(c *Config) *int { return &c.Iters })},
	{'m', "agg_iters", "count", "operations grouped into one iteration", intFlag(func(c *Config) *int { return &c.AggIters })},
	{'w', "warmup_iters", "count", "warm-up operations per size", intFlag(func(c *Config) *int { return &c.Warmup })},
	{'N', "run_cycles", "count", "repeat the sweep; 0 for ever", intFlag(func(c *Config) *int { return &c.Cycles })},
	{'p', "parallel_init", "0/1", "threads initialise communicators at the same time", boolFlag(func(c *Config) *bool { return &c.ParallelInit })},
	{'c', "check", "rounds", "rounds of verification; 0 for none", intFlag(func(c *Config) *int { return &c.Check })},
	{'o', "op", "sum/prod/max/min/avg/mulsum/all", "reduction", setOp},
	{'d', "datatype", "type/all", "element type", setType},
	{'r', "root", "root", "root rank; -1 for all", intFlag(func(c *Config) *int { return &c.Root })},
	{'z', "blocking", "0/1/2/3", "1 wait and barrier after each operation, 2 wait only, 3 wait and untimed barrier after each iteration", intFlag(func(c *Config) *int { return &c.Blocking })},
	{'y', "stream_null", "0/1", "null stream; nothing on host memory", gpuFlag("-y", nil)},
	{'T', "timeout", "seconds", "abort when no operation completes for so long; 0 never", intFlag(func(c *Config) *int { return &c.Timeout })},
	{'G', "cudagraph", "launches", "record the iterations as a CUDA graph and launch that so often; nothing on host memory", gpuFlag("-G", func(c *Config) *int { return &c.Graph })},
	{'C', "report_cputime", "0/1", "time column shows the host's time to issue", boolFlag(func(c *Config) *bool { return &c.CPUTime })},
	{'S', "report_timestamps", "0/1", "local time at the end of each row", boolFlag(func(c *Config) *bool { return &c.Timestamps })},
	{'J', "output_file", "file.json", "write nccl-tests' JSON report", setJSONFile},
	{'a', "average", "0/1/2/3", "time of rank 0, or mean, min, max of all ranks", func(c *Config, v string) error { c.Average = Average(parseInt(v)); return nil }},
	{'R', "local_register", "0/1/2", "2 registers the buffers as symmetric windows, if the engine has such; nothing on host memory", gpuFlag("-R", func(c *Config) *int { return &c.Register })},
	{'x', "cta_policy", "0/1/2", "NCCL_CTA_POLICY, of our engine; nothing on host memory", gpuFlag("-x", func(c *Config) *int { return &c.CTAPolicy })},
	{'D', "device_implementation", "number", "kernels of the test's own; nothing on host memory", gpuFlag("-D", nil)},
	{'V', "device_cta_count", "count", "nothing on host memory", gpuFlag("-V", nil)},
	{'M', "memory", "0/1", "memory use in the footer", boolFlag(func(c *Config) *bool { return &c.Memory })},
	{'u', "unalign", "elements", "shift buffers by this many elements", intFlag(func(c *Config) *int { return &c.Unalign })},
	{'I', "per_iter_timing", "0/1", "time each iteration, with columns for it", boolFlag(func(c *Config) *bool { return &c.PerIter })},
	{'K', "per_iter_skip", "count", "leading iterations left out of -I's statistics", intFlag(func(c *Config) *int { return &c.PerIterSkip })},
	{'h', "help", "", "print this text", func(*Config, string) error { return getopt.ErrHelp }},

	{0, "shape", "RxC", "one tensor of this shape (rows x columns of -d): print its mean bandwidth", setShape},
	{0, "trials", "count", "how often --shape runs it", countFlag("trials", func(c *Config) *int { return &c.Trials })},
	{0, "split", "parts", "one large operation against this many small ones of the same total (--shape or -e)", countFlag("split", func(c *Config) *int { return &c.Split })},
	{0, "format", "text/json", "what stdout gets: the table or one JSON document", oneOf("format", func(c *Config) *string { return &c.Output }, "text", "json")},
	{0, "bench", "", "stdout gets Go benchmark lines, for benchstat", func(c *Config, _ string) error { c.Bench = true; return nil }},
	{0, "engine", "assay/nccl", "whose collectives run", oneOf("engine", func(c *Config) *string { return &c.Engine }, "assay", "nccl")},
	{0, "library", "file", "a libnccl.so.2, or its directory, whose collectives run; again, to compare several of them", func(c *Config, v string) error { c.Libraries = append(c.Libraries, v); return nil }},
	{0, "device", "cpu/gpu", "what a rank is; GPUs where there is a driver for them", oneOf("device", func(c *Config) *string { return &c.Device }, "cpu", "gpu")},
	{0, "slowest", "count", "below each row this many of the steps that took longest, with their ranks: iterations (on GPUs: their launches) and waits for the end", countFlag("slowest", func(c *Config) *int { return &c.Slowest })},
	{0, "batches", "count", "on GPUs, up to 4 MiB: this many times the iterations of -n, of which the median is shown (default 3; 1 as nccl-tests does)", countFlag("batches", func(c *Config) *int { return &c.Batches })},
	{0, "same-bits", "", "sums of data whose bits depend on the order of addition must have the bits of the ranks' order; runs with ASSAY_SAME_BITS=1", func(c *Config, _ string) error { c.SameBits = true; return nil }},
	{0, "inject-error", "rank", "", func(c *Config, v string) error { c.Inject = v; return nil }}, // for testing the checks
	{0, "min-time", "ms", "as many iterations as take so long, at most 2000, instead of -n", setMinTime},
	{0, "versus", "nccl/best/NAME=VALUE,...", "compare with another engine in the same run: NCCL, NCCL in its fastest mode, or our own with other variables", setVersus},
	{0, "graph", "off/on/both", "with --versus: eager launches, CUDA graphs, or both", oneOf("graph", func(c *Config) *string { return &c.Launch }, "off", "on", "both")},
	{0, "repeat", "count", "with --versus: repetitions, of which the median counts", countFlag("repeat", func(c *Config) *int { return &c.Repeat })},
}

// oneOf is for flags of ours that accept one of a few words.
func oneOf(name string, p func(*Config) *string, words ...string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("--%s is %s, not %q", name, strings.Join(words, " or "), v)
		}
		*p(c) = v
		return nil
	}
}

func setMinTime(c *Config, v string) error {
	ms, err := strconv.ParseFloat(v, 64)
	if err != nil || !(ms >= 0) || ms > 1e6 {
		return fmt.Errorf("--min-time is a number of milliseconds, such as 10, not %q", v)
	}
	c.MinTime = time.Duration(ms * float64(time.Millisecond))
	return nil
}

func setVersus(c *Config, v string) error {
	if v != "nccl" && v != Best && !strings.Contains(v, "=") {
		return fmt.Errorf("--versus is nccl, best or variables such as NCCL_ALGO=Ring, not %q", v)
	}
	c.Versus = v
	return nil
}

func setType(c *Config, v string) error {
	if v == "all" {
		c.Types = elem.Types
		return nil
	}
	t, ok := elem.ParseType(v)
	if !ok {
		c.messages = append(c.messages, fmt.Sprintf("invalid type %s, defaulting to float .. ", v))
		t = elem.Float32
	}
	c.Types = []elem.Type{t}
	return nil
}

func setOp(c *Config, v string) error {
	if v == "all" {
		c.Ops = Reductions
		return nil
	}
	for i, r := range Reductions {
		if r.Name == v {
			c.Ops = Reductions[i : i+1]
			return nil
		}
	}
	c.messages = append(c.messages, fmt.Sprintf("invalid op %s, defaulting to sum .. ", v))
	c.Ops = Reductions[:1]
	return nil
}

func setJSONFile(c *Config, v string) error {
	if !strings.HasSuffix(v, ".json") {
		c.messages = append(c.messages, fmt.Sprintf("# skipping json output; %s does not end in .json", v))
		return nil
	}
	c.JSONFile = v
	return nil
}

// setShape parses a shape such as 500000x2000: any number of dimensions, each at least 1.
func setShape(c *Config, v string) error {
	c.Shape = nil
	total := int64(1)
	for f := range strings.SplitSeq(v, "x") {
		d, err := strconv.ParseUint(f, 10, 30)
		if err != nil || d < 1 || total > (1<<50)/int64(d) {
			return fmt.Errorf("--shape is rows x columns, such as 500000x2000, not %q", v)
		}
		total *= int64(d)
		c.Shape = append(c.Shape, int64(d))
	}
	return nil
}

// Usage returns the text of -h for a program.
func Usage(program string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "USAGE: %s\n", program)
	for _, f := range flags {
		if f.help == "" {
			continue
		}
		head := "      --" + f.long
		if f.short != 0 {
			head = fmt.Sprintf("  -%c, --%s", f.short, f.long)
		}
		if f.arg != "" {
			head += " <" + f.arg + ">"
		}
		fmt.Fprintf(&b, "%s\n          %s\n", head, f.help)
	}
	b.WriteString("Sizes take G, M or K. Reductions apply to all_reduce, reduce and reduce_scatter, roots to broadcast, reduce, gather and scatter.\n")
	b.WriteString("Environment: NCCL_TESTS_SPLIT, NCCL_TESTS_SPLIT_MASK, NCCL_TESTS_MIN_BW.\n")
	return b.String()
}

// FlagNames returns all flags as they are typed, for a shell's completion.
func FlagNames() []string {
	var out []string
	for _, f := range flags {
		if f.help == "" {
			continue
		}
		if f.short != 0 {
			out = append(out, "-"+string(f.short))
		}
		out = append(out, "--"+f.long)
	}
	return out
}
