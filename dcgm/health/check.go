package health

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// Expect contains what the caller knows about the node.
type Expect struct {
	Count    *int               // expected number of GPUs; nil: not given
	Ports    *int               // expected number of ports of RDMA devices; nil: not given
	Platform *platform.Platform // nil: not given
	Since    time.Duration      // older kernel messages are ignored; 0: none are
	DB       *platform.DB
	Rules    Rules
}

// A check examines every GPU, or the node. Outcomes of a node check may be about several objects.
type check struct {
	id, title string
	want      string // what passes; %s is replaced with limit and unit
	least     bool   // the limit is a minimum, not a maximum
	remedy    string
	uses      kernelData // of the kernel's data; without these parts there is no verdict
	gpu       func(e *env, g *gpuState) outcome
	node      func(e *env) []outcome
}

// A kernelData of the kernel's data.
type kernelData int

const (
	usesDevices kernelData = 1 << iota
	usesSystem
	usesLog
)

// missing returns why a part could not be read in time; nil if all could.
func (n *nodeState) missing(p kernelData) error {
	switch {
	case p&usesDevices != 0 && n.Devices.Err != nil:
		return fmt.Errorf("reading /sys: %w", n.Devices.Err)
	case p&usesSystem != 0 && n.System.Err != nil:
		return fmt.Errorf("reading /proc: %w", n.System.Err)
	case p&usesLog != 0 && errors.Is(n.Log.Err, errNoAnswer):
		return fmt.Errorf("reading the kernel's log: %w", n.Log.Err)
	}
	return nil
}

// env contains the input of a check.
type env struct {
	*State
	Expect
	rule rule // of the check
}

// An outcome is a check's judgement of one object. The zero value is a pass.
type outcome struct {
	result.Object        // without a verdict until judged
	bad           bool   // failed; the rule's severity decides the verdict
	soft          bool   // a warning at most
	want          string // replaces the check's
	source        string // replaces the rule's
	remedy        string // replaces the check's
}

// because is an outcome with a reason.
func because(v result.Verdict, format string, a ...any) outcome {
	return outcome{Object: result.Object{Verdict: v, Reason: fmt.Sprintf(format, a...)}}
}

func good(what string) outcome { return because("", "%s", what) }

func bad(format string, a ...any) outcome {
	o := because("", format, a...)
	o.bad = true
	return o
}

func skipped(format string, a ...any) outcome { return because(result.Skip, format, a...) }

func errored(format string, a ...any) outcome { return because(result.Error, format, a...) }

// on sets the object: its name, ID and address.
func (o outcome) on(object result.Object) outcome {
	o.Name, o.ID, o.Bus = object.Name, object.ID, object.Bus
	return o
}

// without is the outcome if a fact is not known.
func without(err error) outcome {
	if errors.Is(err, nvml.ErrNotSupported) || errors.Is(err, nvml.ErrNoPermission) {
		return skipped("%s", why(err))
	}
	return errored("%v", err)
}

// of makes a check of a fact about a GPU. If the fact is not known, the outcome gives the reason.
func of[T any](get func(*gpuState) sysfs.Fact[T], judge func(e *env, g *gpuState, v T) outcome) func(*env, *gpuState) outcome {
	return func(e *env, g *gpuState) outcome {
		f := get(g)
		if f.Err != nil {
			return without(f.Err)
		}
		return judge(e, g, f.Value)
	}
}

// node returns a single outcome, about the node as a whole.
func node(o outcome) []outcome { return []outcome{o.on(result.Object{Name: theNode})} }

// theNode is the name of the node as a whole.
const theNode = "node"

// atMost judges a number with the rule's limit as its maximum.
func (e *env) atMost(v float64, reason string) outcome {
	return e.measured(v, v <= e.rule.limit(), reason)
}

// measured is the outcome for a number, with the reason if it does not pass.
func (e *env) measured(v float64, passes bool, reason string) outcome {
	o := good("")
	if !passes {
		o = bad("%s", reason)
	}
	o.Measured = &result.Measurement{Value: v, Unit: e.rule.Unit}
	return o
}

func amount(v float64, unit string) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if v != float64(int64(v)) {
		s = strconv.FormatFloat(v, 'g', 4, 64)
	}
	if unit != "" {
		s += " " + unit
	}
	return s
}

// IDs returns the IDs of all checks, in the order in which they run.
func IDs() []string {
	out := make([]string, len(checks))
	for i, c := range checks {
		out[i] = c.id
	}
	return out
}

// Title is the title of a check.
func Title(id string) string {
	for _, c := range checks {
		if c.id == id {
			return c.title
		}
	}
	return ""
}

// checks are all checks.
var checks = slices.Concat(identityChecks, memoryChecks, linkChecks, pcieChecks, powerChecks, useChecks, messageChecks, softwareChecks, networkChecks, systemChecks)

// Run runs the checks with wanted IDs.
func Run(s *State, x Expect, wanted func(id string) bool) []result.Result {
	var out []result.Result
	for _, c := range checks {
		if wanted(c.id) {
			out = append(out, c.run(&env{State: s, Expect: x, rule: x.Rules[c.id]}))
		}
	}
	return out
}

func (c *check) run(e *env) result.Result {
	switch missing := e.Node.missing(c.uses); {
	case missing != nil:
		return c.result(e.rule, node(errored("%v", missing)))
	case c.node != nil:
		return c.result(e.rule, c.node(e))
	case len(e.GPUs) == 0:
		return c.result(e.rule, node(e.noGPU()))
	}
	var found []outcome
	for i := range e.GPUs {
		g := &e.GPUs[i]
		if g.Err != nil && c.id != "gpu/answers" {
			found = append(found, errored("%v", g.Err).on(g.object()))
		} else {
			found = append(found, c.gpu(e, g).on(g.object()))
		}
	}
	return c.result(e.rule, found)
}

// noGPU is the outcome of a check of GPUs if there is no GPU to examine. It is an error if PCI has
// GPUs, because they were not examined.
func (e *env) noGPU() outcome {
	n := len(e.Node.Devices.Value.GPUs())
	if err := e.Node.missing(usesDevices); err != nil {
		return errored("%v", err)
	}
	switch err := e.Driver.Err; {
	case err != nil && n == 0 && absent(err):
		return skipped("there is no GPU on PCI")
	case errors.Is(err, ErrElsewhere):
		return skipped("%v", err)
	case err != nil:
		return errored("PCI has %d GPUs, and they cannot be asked: %v", n, err)
	case n > 0:
		return errored("PCI has %d GPUs, the driver none", n)
	}
	return skipped("there is no GPU: neither PCI nor the driver has one")
}

func (g *gpuState) object() result.Object {
	o := result.Object{Name: fmt.Sprintf("GPU %d", g.Index), ID: g.UUID}
	if g.Err == nil {
		o.Bus = g.Bus.String()
	}
	return o
}

// result builds the result of a check from its outcomes and its rule.
func (c *check) result(r rule, found []outcome) result.Result {
	var objects []result.Object
	var worst *outcome
	for i := range found {
		o := &found[i]
		o.Verdict = cmp.Or(o.Verdict, o.judge(r.Severity))
		if o.Measured != nil && r.Limit != nil {
			o.Measured.Limit = &result.Limit{Value: *r.Limit, Kind: c.side(), Source: r.Source}
		}
		if worst == nil || o.Verdict != worst.Verdict && result.Worst(o.Verdict, worst.Verdict) == o.Verdict {
			worst = o
		}
		objects = append(objects, o.Object)
	}
	res := result.Sum(result.Distinct(objects))
	if res.Verdict == result.Pass {
		res.Reason = result.Values(objects)
	}
	if len(objects) == 1 && objects[0].Name == theNode {
		res.Objects, res.Measured, res.Reason = nil, objects[0].Measured, objects[0].Reason
	} else {
		res.Measured = result.Speaking(c.id, objects)
	}
	if res.Verdict.Bad() {
		res.Wanted, res.Remedy = c.wanted(r, worst), cmp.Or(worst.remedy, c.remedy)
	}
	res.ID, res.Title = c.id, c.title
	return res
}

// side is the side of the limit on which a value passes, and so the direction that is better.
func (c *check) side() result.LimitKind {
	if c.least {
		return result.AtLeast
	}
	return result.AtMost
}

// wanted describes what passes, with the source.
func (c *check) wanted(r rule, o *outcome) string {
	want := cmp.Or(o.want, c.want)
	if o.want == "" && r.Limit != nil {
		want = strings.ReplaceAll(want, "%s", amount(*r.Limit, r.Unit))
	}
	return fmt.Sprintf("%s (%s)", want, cmp.Or(o.source, r.Source))
}

func (o *outcome) judge(s severity) result.Verdict {
	switch {
	case !o.bad, s == severityInfo:
		return result.Pass
	case s == severityWarn, o.soft:
		return result.Warn
	}
	return result.Fail
}

// model is the GPU's entry in the hardware database; nil if there is none.
func (e *env) model(g *gpuState) *platform.GPU {
	if e.DB == nil {
		return nil
	}
	_, m := e.DB.GPUByPCI(g.ID)
	return m
}

// device returns the PCI function of a GPU, as the kernel describes it.
func (e *env) device(id sysfs.BusID) (sysfs.PCIDevice, bool) {
	for _, d := range e.Node.Devices.Value.PCI.Value {
		if d.BusID == id {
			return d, true
		}
	}
	return sysfs.PCIDevice{}, false
}
