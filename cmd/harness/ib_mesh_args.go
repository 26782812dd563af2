package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/internal/nearest"
	"github.com/assay-hpc/assay/perftest/mesh"
	"github.com/assay-hpc/assay/perftest/probe"
)

// meshArgs are the arguments of "harness ib mesh".
type meshArgs struct {
	mesh mesh.Options
	tool string
	json bool
	html string
}

// A meshFlag is a flag that the tools do not have, or that has another meaning here.
type meshFlag struct {
	name string
	arg  string // name of the value; empty: takes none
	help string
	set  func(m *meshArgs, v string) error
}

var meshFlags = []meshFlag{
	{"tool", "TOOL", "what is measured: write_bw (default), read_bw, send_bw, write_lat, …", func(m *meshArgs, v string) error {
		m.tool = strings.TrimPrefix(v, "ib_")
		return nil
	}},
	{"pattern", "PATTERN", "all-pairs (default), rail, ring, bisection, loopback or self", func(m *meshArgs, v string) error {
		m.mesh.Pattern = mesh.Pattern(v)
		if slices.Contains(mesh.Patterns(), m.mesh.Pattern) {
			return nil
		}
		var names []string
		for _, p := range mesh.Patterns() {
			names = append(names, string(p))
		}
		return fmt.Errorf("there is no pattern %q; did you mean %q?", v, nearest.To(v, names))
	}},
	{"serial", "", "one pair at a time, instead of all that share no port", func(m *meshArgs, _ string) error {
		m.mesh.Serial = true
		return nil
	}},
	{"samples", "COUNT", "measure each pair so often, and take the median (default 3)", func(m *meshArgs, v string) (err error) {
		m.mesh.Samples, err = meshCount(v, 1000)
		return err
	}},
	{"limit", "SECONDS", "longest time for one measurement (default 60 and three times -D)", func(m *meshArgs, v string) error {
		n, err := meshCount(v, 86400)
		m.mesh.Limit = time.Duration(n) * time.Second
		return err
	}},
	{"hosts", "NAME,...", "show the hosts under these names, in the order of their ranks", func(m *meshArgs, v string) error {
		m.mesh.Names = strings.Split(v, ",")
		if slices.Contains(m.mesh.Names, "") {
			return fmt.Errorf("%q has an empty name", v)
		}
		return nil
	}},
	{"expect", "GBITS", "each port's rate, instead of what it says itself", func(m *meshArgs, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f > 0) || math.IsInf(f, 0) {
			return fmt.Errorf("%q is not a number above 0", v)
		}
		m.mesh.Expect = f
		return nil
	}},
	{"hardware", "PROFILE", "the rate of this platform's ports: dgx-a100, … (see harness predict)", func(m *meshArgs, v string) error {
		db, err := platform.Load()
		if err != nil {
			return err
		}
		p, err := db.Platform(v)
		switch {
		case err != nil:
			return err
		case p.NICs == nil || p.NICs.GbitEach.Value == 0:
			return fmt.Errorf("the rate of %s's ports is not known: use --expect", v)
		}
		m.mesh.Expect = p.NICs.GbitEach.Value
		return nil
	}},
	{"format", "FORMAT", "text (default) or json", func(m *meshArgs, v string) error {
		if v != "text" && v != "json" {
			return fmt.Errorf("it is text or json, not %q", v)
		}
		m.json = v == "json"
		return nil
	}},
	{"html", "FILE", "also write the matrix as a heat map", func(m *meshArgs, v string) error {
		m.html = v
		if v == "" {
			return fmt.Errorf("the file's name is empty")
		}
		return nil
	}},
}

func meshCount(v string, most int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q is no whole number from 1 to %d", v, most)
	}
	return n, nil
}

// meshRefused are the tools' flags that a mesh cannot use. They are refused if they
// change the configuration.
var meshRefused = []struct {
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
	{"--source_ip", "addresses are chosen: NCCL_SOCKET_IFNAME names the interface", func(c, _ *probe.Config) bool { return c.Source != "" }},
	{"--dlid", "each port has its own", func(c, _ *probe.Config) bool { return c.DLID != 0 }},
	{"-R, -z", "each device's ports are measured, and rdma_cm goes by address: use the tool itself", func(c, _ *probe.Config) bool { return c.ControlsByCM() }},
	{"--wait", "there is no wait: servers are started first", func(c, _ *probe.Config) bool { return c.Wait != 0 }},
	{"--wait_destroy", "it would hold up the mesh", func(c, _ *probe.Config) bool { return c.WaitDestroy != 0 }},
}

// parseMesh parses a mesh's own flags, and passes the others to the tool's parser. Its
// error is errIBHelp, or a mistake of the user.
func parseMesh(args []string) (*meshArgs, error) {
	m := &meshArgs{tool: "write_bw", mesh: mesh.Options{Pattern: mesh.AllPairs, Samples: 3}}
	rest, err := m.own(args)
	if err != nil {
		return nil, err
	}
	t, ok := probe.FindTool(m.tool)
	if !ok {
		return nil, fmt.Errorf("--tool: there is no tool %q; did you mean %q?", m.tool, nearest.To(m.tool, ibTools()))
	}
	without := probe.Default(t.Operation, t.Measure)
	without.IBPort = 0 // all
	p := &ibParser{tool: t, config: without, rest: rest}
	for len(p.rest) > 0 {
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	if len(p.operands) > 0 {
		return nil, fmt.Errorf("there is no argument %q: a launcher starts the other hosts' processes", p.operands[0])
	}
	return m, m.take(p.config, &without)
}

// own parses the mesh's flags, and returns the other arguments.
func (m *meshArgs) own(args []string) (rest []string, err error) {
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		name, value, has := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if now, ok := map[string]string{"output": "format", "platform": "hardware"}[name]; ok { // an earlier version's
			name = now
		}
		i := slices.IndexFunc(meshFlags, func(f meshFlag) bool { return strings.HasPrefix(a, "--") && f.name == name })
		if i < 0 {
			rest = append(rest, a)
			continue
		}
		f := meshFlags[i]
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
func (m *meshArgs) take(c probe.Config, without *probe.Config) error {
	for _, r := range meshRefused {
		if r.given(&c, without) {
			return fmt.Errorf("%s is not for a mesh: %s", r.flag, r.why)
		}
	}
	if c.Device != "" {
		m.mesh.Devices = strings.Split(c.Device, ",")
	}
	m.mesh.IBPort = c.IBPort
	c.Device, c.IBPort = "", max(c.IBPort, 1)
	if m.mesh.Limit == 0 {
		m.mesh.Limit = time.Minute + 3*c.Duration
	}
	m.mesh.Config = c
	return c.Check()
}

// meshUsage is the text of --help.
func meshUsage() string {
	var b strings.Builder
	b.WriteString("Usage: harness ib mesh [FLAG...]\n\nMeasures between all RDMA ports of a job that mpirun, srun or torchrun started with one process on each host, or of\nthis host alone, and names ports, paths and hosts that are slow.\n\nThe mesh:\n")
	for _, f := range meshFlags {
		head := strings.TrimSpace("      --" + f.name + " " + f.arg)
		fmt.Fprintf(&b, "%-34s  %s\n", "      "+head, f.help)
	}
	fmt.Fprintf(&b, "%-34s  %s\n", "  -d, --ib-dev NAME,...", "this process's devices (default all; those that are down are left out)")
	fmt.Fprintf(&b, "%-34s  %s\n", "  -i, --ib-port PORT", "of the devices this port alone")
	b.WriteString("\nEach measurement takes the tool's flags, such as -s, -n, -D, -q, -b, -x, -m and --report_gbits: harness ib TOOL --help.\nExit status: 0 passed, 1 something is slow or failed, 2 wrong usage, 3 could not run.\n")
	return b.String()
}

// meshFlagNames returns the flags for completion.
func meshFlagNames() (out []string) {
	for _, f := range meshFlags {
		out = append(out, "--"+f.name)
	}
	return out
}
