// Package node provides the checks of suites that are about a machine. Each runs a command of the
// harness in its own process, so that a crash, a hang or a GPU's poisoned context affects only
// that check. The results are those of the command's JSON report; of coll, which reports
// figures alone, they are judged here.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// Resources of checks, so that they do not disturb one another.
const (
	useGPUs    = "gpus"
	useNetwork = "network"
	useHost    = "host" // its processors and memory
)

// Output is the output of a harness command, and its exit status.
type Output = fabric.Output

type runner = func(ctx context.Context, args ...string) (Output, error)

// A Config is the input of the checks.
type Config struct {
	// Run runs a command of the harness to completion; NAME=VALUE before the command are
	// environment variables. An error says that it could not be started, or was ended with the
	// context.
	Run runner
	// Machine describes the node.
	Machine machine.Facts
	// GPUs and Ports (of RDMA devices) are the required numbers; nil: not specified.
	GPUs, Ports *int
	// Limits are the site's limits of health's checks, for harness health --limits; "": none.
	Limits string
	// Platform is what the node must be, a key of the database; "": not specified.
	Platform string
	// Facts are the machine's versions and settings, by name.
	Facts map[string]string
	// Machines is how many are planned, where there is no Job yet; 0: this one.
	Machines int
	// Job is the set of machines that run the suite together; nil: only this one.
	Job Job
}

// Kinds are the kinds of checks that suite files can name.
func (c *Config) Kinds() []suite.Kind {
	return []suite.Kind{
		{Name: "platform", Usage: "the machine is recognised, and is the one that it should be", Make: c.platform},
		{Name: "health", Usage: "what harness health looks at, without load", Make: c.health},
		{Name: "diag", Usage: "tests of harness diag, which load the GPUs", Make: c.diag},
		{Name: "bandwidth", Usage: "copies between host and GPUs and among GPUs, as harness bandwidth measures them", Make: c.bandwidth},
		{Name: "coll", Usage: "collectives of harness coll: speed, and every result verified", Make: c.coll},
		{Name: "hunt", Usage: "which machine of several is slower than the rest, as harness hunt finds it", Make: c.hunt},
		{Name: "same", Usage: "all machines have the same versions and settings", Make: c.same},
		{Name: "topology", Usage: "the scheduler knows each machine's switch", Make: c.topology},
		{Name: "train", Usage: "a few steps of a real training job, as harness train runs them", Make: c.train},
		{Name: "variables", Usage: "what the variables of NCCL, UCX, libfabric and Open MPI that are set do on this node", Make: c.variables},
		{Name: "mesh", Usage: "RDMA between all ports, as harness ib mesh measures it", Make: c.mesh},
	}
}

// noGPUs returns the result of checks of GPUs if there are none to put load on. If there are some
// after all, that is not a skip.
func (c *Config) noGPUs() (result.Result, bool) {
	m := &c.Machine
	switch {
	case m.PCI == 0 && m.GPUs == 0 && (c.GPUs == nil || *c.GPUs == 0):
		return result.Skipped("there is no GPU on PCI"), true
	case !m.CUDA:
		return result.Errored("PCI has %s, and this harness has no code for GPUs", words.Count(m.PCI, "GPU")).WithRemedy("use the harness of a CUDA image"), true
	case m.GPUs == 0:
		return result.Errored("PCI has %s, and CUDA none: %s", words.Count(m.PCI, "GPU"), m.Why).WithRemedy("start the container with its GPUs (docker run --gpus all), on a host whose driver works"), true
	}
	return result.Result{}, false
}

// report runs a command and decodes its report, whatever the exit status is. If the command was
// killed, or its report cannot be read, the result describes the failure.
func report[T any](ctx context.Context, run runner, args ...string) (*T, *result.Result) {
	out, err := run(ctx, args...)
	text := strings.TrimSpace(out.Stderr)
	broke := func(format string, a ...any) (*T, *result.Result) {
		res := result.Errored("harness %s: %v", strings.Join(args, " "), fmt.Errorf(format, a...)).WithOutput(text)
		return nil, &res
	}
	if err != nil {
		return broke("%w", err)
	}
	doc := new(T)
	wrong := json.Unmarshal(out.Stdout, doc)
	switch {
	case out.Status < 0:
		return broke("it was killed")
	case wrong != nil && out.Status != 0:
		return broke("it ended with status %d%s", out.Status, telling(text))
	case wrong != nil:
		return broke("its report cannot be read: %w", wrong)
	}
	return doc, nil
}

// telling returns the line that explains a command's failure: the first line of a crash, or else
// the last line.
func telling(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIG") {
			return ": " + line
		}
		if line != "" {
			last = ": " + strings.TrimPrefix(line, "harness: ")
		}
	}
	return last
}

// once runs something for several checks, when the first of them needs it, and stores the result.
type once[T any] struct {
	mu   sync.Mutex
	done bool
	doc  *T
	bad  *result.Result
}

func (o *once[T]) get(ctx context.Context, make func(context.Context) (*T, *result.Result)) (*T, *result.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.done {
		o.doc, o.bad = make(ctx)
		// A result that was cut off is not reused: the next check has its own time limit.
		o.done = ctx.Err() == nil
	}
	return o.doc, o.bad
}

// known returns the database's figure of that name for a GPU model.
func (c *Config) known(name, gpu string) platform.Expected {
	for _, f := range c.Machine.Expect.Figures {
		if f.Name == name && f.GPU == gpu {
			return f
		}
	}
	return platform.Expected{}
}

// checkLimits refuses limits for figures that an entry does not measure.
func checkLimits(e *suite.Entry, figures []string) error {
	for _, name := range slices.Sorted(maps.Keys(e.Limits)) {
		switch {
		case len(figures) == 0:
			return e.Errorf("limits: %q: %s has no figures that limits could be given for", name, e.Run)
		case !slices.Contains(figures, name):
			return e.Errorf("limits: %q is not a figure of this check; did you mean %q?", name, words.Nearest(name, figures))
		}
	}
	return nil
}

// unmet are the limits of an entry that no test has measured yet.
type unmet struct {
	mu    sync.Mutex
	names map[string]bool
	tests int // that are still to run
}

func newUnmet(e *suite.Entry, tests int) *unmet {
	u := &unmet{names: map[string]bool{}, tests: tests}
	for name := range e.Limits {
		u.names[name] = true
	}
	return u
}

// after records what a test measured. The last test reports the limits that none has measured.
func (u *unmet) after(e *suite.Entry, measured []string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range measured {
		delete(u.names, name)
	}
	if u.tests--; u.tests > 0 || len(u.names) == 0 {
		return nil
	}
	return fmt.Errorf("%s: limits: nothing was measured that is called %q", e.Place(), slices.Sorted(maps.Keys(u.names)))
}
