package health

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/nvml"
	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// Expect is what the caller knows of the node.
type Expect struct {
	Count    *int               // how many GPUs there are to be; nil is not said
	Ports    *int               // the same of ports of RDMA devices
	Platform *platform.Platform // nil is not said
	Since    time.Duration      // messages of the kernel that are older do not count; 0: all count
	DB       *platform.DB
	Rules    Rules
}

// A check looks at every GPU, or at the node, whose findings may be about
// several objects.
type check struct {
	id, title string
	want      string // what passes; %s stands for limit and unit
	least     bool   // the limit is the least that passes, and not the most
	remedy    string
	uses      part // of what the kernel tells; without it there is no judging
	gpu       func(e *env, g *gpuState) outcome
	node      func(e *env) []finding
}

// A part of what the kernel tells.
type part int

const (
	usesDevices part = 1 << iota
	usesSystem
	usesLog
)

// missing is why a part could not be read in time; nil if all could.
func (n *nodeState) missing(p part) error {
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

// env is what a check judges by.
type env struct {
	*State
	Expect
	rule rule // the check's
}

// An outcome is a check's word about one object. Without anything else it is
// a pass.
type outcome struct {
	verdict result.Verdict // "" until judged
	bad     bool           // the rule's severity decides
	soft    bool           // a warning at most
	value   string
	number  *float64
	want    string // instead of the check's
	source  string // instead of the rule's
	reason  string
	remedy  string // instead of the check's
}

type finding struct {
	object result.Object // its name, ID and address
	outcome
}

func good(value string) outcome { return outcome{value: value} }

func bad(value, format string, a ...any) outcome {
	return outcome{bad: true, value: value, reason: fmt.Sprintf(format, a...)}
}

func skipped(format string, a ...any) outcome {
	return outcome{verdict: result.Skip, reason: fmt.Sprintf(format, a...)}
}

// without is the outcome when a fact is not known.
func without(err error) outcome {
	if errors.Is(err, nvml.ErrNotSupported) || errors.Is(err, nvml.ErrNoPermission) {
		return skipped("%s", why(err))
	}
	return outcome{verdict: result.Error, reason: err.Error()}
}

// of makes a check of a fact about a GPU; where that is not known the outcome says why.
func of[T any](get func(*gpuState) sysfs.Fact[T], judge func(e *env, g *gpuState, v T) outcome) func(*env, *gpuState) outcome {
	return func(e *env, g *gpuState) outcome {
		f := get(g)
		if f.Err != nil {
			return without(f.Err)
		}
		return judge(e, g, f.Value)
	}
}

// node is the only finding, about the node as a whole.
func node(o outcome) []finding { return []finding{{result.Object{Name: theNode}, o}} }

// theNode is the name of the node as a whole.
const theNode = "node"

// atMost judges a number that the rule's limit bounds from above.
func (e *env) atMost(v float64, reason string) outcome {
	o := outcome{value: amount(v, e.rule.Unit), number: &v}
	if v > e.rule.limit() {
		o.bad, o.reason = true, reason
	}
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

// IDs are the IDs of all checks, in the order in which they are made.
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

// checks are all of them.
var checks = slices.Concat(identityChecks, memoryChecks, linkChecks, pcieChecks, powerChecks, useChecks, messageChecks, softwareChecks, networkChecks, systemChecks)

// Run makes the checks whose ID is wanted.
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
		return c.result(e.rule, node(outcome{verdict: result.Error, reason: missing.Error()}))
	case c.node != nil:
		return c.result(e.rule, c.node(e))
	case len(e.GPUs) == 0:
		return c.result(e.rule, node(e.noGPU()))
	}
	var found []finding
	for i := range e.GPUs {
		g := &e.GPUs[i]
		o := outcome{}
		if g.Err != nil && c.id != "gpu/answers" {
			o = outcome{verdict: result.Error, reason: g.Err.Error()}
		} else {
			o = c.gpu(e, g)
		}
		found = append(found, finding{g.object(), o})
	}
	return c.result(e.rule, found)
}

// noGPU is the outcome of a check of GPUs when there is none to look at. That
// is an error when PCI has some: they were not looked at.
func (e *env) noGPU() outcome {
	n := len(e.Node.Devices.Value.GPUs())
	if err := e.Node.missing(usesDevices); err != nil {
		return outcome{verdict: result.Error, reason: err.Error()}
	}
	switch err := e.Driver.Err; {
	case err != nil && n == 0 && absent(err):
		return skipped("there is no GPU on PCI")
	case errors.Is(err, ErrElsewhere):
		return skipped("%v", err)
	case err != nil:
		return outcome{verdict: result.Error, reason: fmt.Sprintf("PCI has %d GPUs, and they cannot be asked: %v", n, err)}
	case n > 0:
		return outcome{verdict: result.Error, reason: fmt.Sprintf("PCI has %d GPUs, the driver none", n)}
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

// result puts together what was found, what the rule says, and what the check
// is about.
func (c *check) result(r rule, found []finding) result.Result {
	var objects []result.Object
	var worst *finding
	for i := range found {
		f := &found[i]
		o := f.object
		o.Verdict, o.Reason = cmp.Or(f.verdict, f.judge(r.Severity)), f.reason
		if f.number != nil && r.Unit != "" {
			o.Measured = &result.Measurement{Value: *f.number, Unit: r.Unit}
			if r.Limit != nil && f.want == "" {
				o.Measured.Limit = &result.Limit{Value: *r.Limit, Kind: c.side(), Source: cmp.Or(f.source, r.Source)}
			}
		} else if o.Reason == "" {
			o.Reason = f.value
		}
		f.verdict = o.Verdict
		if worst == nil || f.verdict != worst.verdict && result.Worst(f.verdict, worst.verdict) == f.verdict {
			worst = f
		}
		objects = append(objects, o)
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

// side is on which side of its limit a value passes, and so which way it is better.
func (c *check) side() result.LimitKind {
	if c.least {
		return result.AtLeast
	}
	return result.AtMost
}

// wanted is what passes, and who says so.
func (c *check) wanted(r rule, f *finding) string {
	want := cmp.Or(f.want, c.want)
	if f.want == "" && r.Limit != nil {
		want = strings.ReplaceAll(want, "%s", amount(*r.Limit, r.Unit))
	}
	return fmt.Sprintf("%s (%s)", want, cmp.Or(f.source, r.Source))
}

func (o outcome) judge(s severity) result.Verdict {
	switch {
	case !o.bad, s == severityInfo:
		return result.Pass
	case s == severityWarn, o.soft:
		return result.Warn
	}
	return result.Fail
}

// model is what the hardware data base has of a GPU; nil is nothing.
func (e *env) model(g *gpuState) *platform.GPU {
	if e.DB == nil {
		return nil
	}
	_, m := e.DB.GPUByPCI(g.ID)
	return m
}

// device is the PCI function of a GPU, as the kernel describes it.
func (e *env) device(id sysfs.BusID) (sysfs.PCIDevice, bool) {
	for _, d := range e.Node.Devices.Value.PCI.Value {
		if d.BusID == id {
			return d, true
		}
	}
	return sysfs.PCIDevice{}, false
}
