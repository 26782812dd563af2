package mesh

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/words"
	"github.com/assay-hpc/assay/perftest/probe"
)

// Args are the arguments of "harness ib mesh".
type Args struct {
	Options Options
	JSON    bool
	HTML    string // name of the file for the heat map; "": none

	tool string
	rate func(platform string) (gbits float64, err error)
}

// A flag is a flag that the tools do not have, or that has another meaning here.
type flag struct {
	name string
	arg  string // name of the value; empty: takes none
	help string
	set  func(m *Args, v string) error
}

var flags = []flag{
	{"tool", "TOOL", "what is measured: write_bw (default), read_bw, send_bw, write_lat, …", func(m *Args, v string) error {
		m.tool = strings.TrimPrefix(v, "ib_")
		return nil
	}},
	{"pattern", "PATTERN", "all-pairs (default), rail, ring, bisection, loopback or self", func(m *Args, v string) error {
		m.Options.Pattern = Pattern(v)
		if slices.Contains(Patterns(), m.Options.Pattern) {
			return nil
		}
		var names []string
		for _, p := range Patterns() {
			names = append(names, string(p))
		}
		return fmt.Errorf("there is no pattern %q; did you mean %q?", v, words.Nearest(v, names))
	}},
	{"serial", "", "one pair at a time, instead of all that share no port", func(m *Args, _ string) error {
		m.Options.Serial = true
		return nil
	}},
	{"samples", "COUNT", "measure each pair so often, and take the median (default 3)", func(m *Args, v string) (err error) {
		m.Options.Samples, err = count(v, 1000)
		return err
	}},
	{"limit", "SECONDS", "longest time for one measurement (default 60 and three times -D)", func(m *Args, v string) error {
		n, err := count(v, 86400)
		m.Options.Limit = time.Duration(n) * time.Second
		return err
	}},
	{"hosts", "NAME,...", "show the hosts under these names, in the order of their ranks", func(m *Args, v string) error {
		m.Options.Names = strings.Split(v, ",")
		if slices.Contains(m.Options.Names, "") {
			return fmt.Errorf("%q has an empty name", v)
		}
		return nil
	}},
	{"expect", "GBITS", "each port's rate, instead of what it says itself", func(m *Args, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f > 0) || math.IsInf(f, 0) {
			return fmt.Errorf("%q is not a number above 0", v)
		}
		m.Options.Expect = f
		return nil
	}},
	{"hardware", "PROFILE", "the rate of this platform's ports: dgx-a100, … (see harness predict)", func(m *Args, v string) error {
		rate, err := m.rate(v)
		m.Options.Expect = rate
		return err
	}},
	{"format", "FORMAT", "text (default) or json", func(m *Args, v string) error {
		if v != "text" && v != "json" {
			return fmt.Errorf("it is text or json, not %q", v)
		}
		m.JSON = v == "json"
		return nil
	}},
	{"html", "FILE", "also write the matrix as a heat map", func(m *Args, v string) error {
		m.HTML = v
		if v == "" {
			return fmt.Errorf("the file's name is empty")
		}
		return nil
	}},
}

func count(v string, most int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q is no whole number from 1 to %d", v, most)
	}
	return n, nil
}

// refused are the tools' flags that a mesh cannot use. They are refused if they
// change the configuration.
var refused = []struct {
	flag, why string
	given     func(c, without *probe.Config) bool
}{
	{"-p", "ports are chosen", func(c, w *probe.Config) bool { return c.Port != w.Port }},
	{"-a", "each pair is measured with one size: give -s", func(c, _ *probe.Config) bool { return c.All }},
	{"--run_infinitely", "a mesh ends", func(c, _ *probe.Config) bool { return c.Endless }},
	{"--reversed", "both directions are measured", func(c, _ *probe.Config) bool { return c.Reversed }},
	{"--report-both", "both directions of -b are shown always", func(c, _ *probe.Config) bool { return c.ReportBoth }},
	{"-H, -U, --histogram", "the matrix has no room for it: use the tool itself", func(c, _ *probe.Config) bool { return c.Sorted || c.Unsorted || c.Histogram }},
	{"-W", "the counters that tell of errors and congestion are shown always", func(c, _ *probe.Config) bool { return len(c.Counters) > 0 }},
	{"-w, -y", "the verdict compares with the ports' rate: use --expect", func(c, _ *probe.Config) bool { return c.LimitBW > 0 || c.LimitRate > 0 }},
	{"--out_json", "use --output json", func(c, _ *probe.Config) bool { return c.JSONFile != "" }},
	{"--cpu_util", "pairs measured at once share the processors", func(c, _ *probe.Config) bool { return c.CPUUtil }},
	{"--bind_source_ip", "addresses are chosen: NCCL_SOCKET_IFNAME names the interface", func(c, _ *probe.Config) bool { return c.Source != "" }},
	{"--dlid", "each port has its own", func(c, _ *probe.Config) bool { return c.DLID != 0 }},
	{"-R, -z", "each device's ports are measured, and rdma_cm goes by address: use the tool itself", func(c, _ *probe.Config) bool { return c.ControlsByCM() }},
	{"--wait", "there is no wait: servers are started first", func(c, _ *probe.Config) bool { return c.Wait != 0 }},
	{"--wait_destroy", "it would hold up the mesh", func(c, _ *probe.Config) bool { return c.WaitDestroy != 0 }},
}

// Parse parses a mesh's own flags, and passes the others to the tool's parser. rate returns the
// rate of a platform's ports. The error is getopt.ErrHelp, or a mistake of the user.
func Parse(args []string, rate func(platform string) (gbits float64, err error)) (*Args, error) {
	m := &Args{tool: "write_bw", Options: Options{Pattern: AllPairs, Samples: 3}, rate: rate}
	rest, err := m.parseOwn(args)
	if err != nil {
		return nil, err
	}
	t, ok := probe.FindTool(m.tool)
	if !ok {
		return nil, fmt.Errorf("--tool: there is no tool %q; did you mean %q?", m.tool, words.Nearest(m.tool, probe.ToolNames()))
	}
	without := probe.Default(t.Operation, t.Measure)
	without.IBPort = 0 // all
	c, operands, err := t.ParseInto(without, rest)
	if err != nil {
		return nil, err
	}
	if len(operands) > 0 {
		return nil, fmt.Errorf("there is no argument %q: a launcher starts the other hosts' processes", operands[0])
	}
	return m, m.take(c, &without)
}

// parseOwn parses the mesh's flags, and returns the other arguments.
func (m *Args) parseOwn(args []string) (rest []string, err error) {
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		name, value, has := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if name == "output" {
			name = "format"
		}
		i := slices.IndexFunc(flags, func(f flag) bool { return strings.HasPrefix(a, "--") && f.name == name })
		if i < 0 {
			rest = append(rest, a)
			continue
		}
		f := flags[i]
		switch {
		case f.arg == "" && has:
			return nil, fmt.Errorf("--%s takes no value", f.name)
		case f.arg != "" && !has && len(args) == 0:
			return nil, fmt.Errorf("--%s needs a value", f.name)
		case f.arg != "" && !has:
			value, args = args[0], args[1:]
		}
		if err := f.set(m, value); err != nil {
			return nil, fmt.Errorf("--%s: %w", f.name, err)
		}
	}
	return rest, nil
}

// take checks the measurements' options and stores them.
func (m *Args) take(c probe.Config, without *probe.Config) error {
	for _, r := range refused {
		if r.given(&c, without) {
			return fmt.Errorf("%s is not for a mesh: %s", r.flag, r.why)
		}
	}
	if c.Device != "" {
		m.Options.Devices = strings.Split(c.Device, ",")
	}
	m.Options.IBPort = c.IBPort
	c.Device, c.IBPort = "", max(c.IBPort, 1)
	if m.Options.Limit == 0 {
		m.Options.Limit = time.Minute + 3*c.Duration
	}
	m.Options.Config = c
	return c.Check()
}

// Usage is the text of --help.
func Usage() string {
	var b strings.Builder
	b.WriteString("Usage: harness ib mesh [FLAG...]\n\nMeasures between all RDMA ports of a job that mpirun, srun or torchrun started with one process on each host, or of\nthis host alone, and names ports, paths and hosts that are slow.\n\nThe mesh:\n")
	for _, f := range flags {
		head := strings.TrimSpace("      --" + f.name + " " + f.arg)
		fmt.Fprintf(&b, "%-34s  %s\n", "      "+head, f.help)
	}
	fmt.Fprintf(&b, "%-34s  %s\n", "  -d, --ib-dev NAME,...", "this process's devices (default all; those that are down are left out)")
	fmt.Fprintf(&b, "%-34s  %s\n", "  -i, --ib-port PORT", "of the devices this port alone")
	b.WriteString("\nEach measurement takes the tool's flags, such as -s, -n, -D, -q, -b, -x, -m and --report_gbits: harness ib TOOL --help.\nExit status: 0 passed, 1 something is slow or failed, 2 wrong usage, 3 could not run.\n")
	return b.String()
}

// FlagNames returns the mesh's own flags, for completion.
func FlagNames() (out []string) {
	for _, f := range flags {
		out = append(out, "--"+f.name)
	}
	return out
}
