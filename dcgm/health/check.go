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

// An Object is what a check looked at.
type Object struct {
	Kind string `json:"kind"` // node, gpu, port, device, pci, nvswitch
	Name string `json:"name"` // "GPU 3", "mlx5_0/1", "0000:16:00.0"
	UUID string `json:"uuid,omitempty"`
	Bus  string `json:"bus,omitempty"`
}

// A Result is a check's outcome for one object.
type Result struct {
	ID      string         `json:"id"`
	Title   string         `json:"title"` // what a pass says
	Object  Object         `json:"object"`
	Verdict result.Verdict `json:"verdict"`
	Value   string         `json:"value,omitempty"`  // what was found
	Number  *float64       `json:"number,omitempty"` // the same, when it is a number, in Unit
	Limit   *float64       `json:"limit,omitempty"`
	Least   bool           `json:"at_least,omitempty"` // of Limit: what is below fails
	Unit    string         `json:"unit,omitempty"`
	// Threshold is what passes, in words, and Source says who wants it so.
	Threshold string   `json:"threshold"`
	Source    string   `json:"source"`
	Severity  severity `json:"severity"` // of not passing
	Reason    string   `json:"reason,omitempty"`
	Remedy    string   `json:"remedy,omitempty"` // with warn and fail
}

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
	object Object
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
func node(o outcome) []finding { return []finding{{Object{Kind: "node", Name: "node"}, o}} }

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
func Run(s *State, x Expect, wanted func(id string) bool) []Result {
	var out []Result
	for _, c := range checks {
		if wanted(c.id) {
			out = append(out, c.run(&env{State: s, Expect: x, rule: x.Rules[c.id]})...)
		}
	}
	return out
}

func (c *check) run(e *env) []Result {
	var found []finding
	switch missing := e.Node.missing(c.uses); {
	case missing != nil:
		found = node(outcome{verdict: result.Error, reason: missing.Error()})
	case c.node != nil:
		found = c.node(e)
	case len(e.GPUs) == 0:
		found = []finding{{Object{Kind: "gpu", Name: "GPUs"}, e.noGPU()}}
	default:
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
	}
	out := make([]Result, len(found))
	for i, f := range found {
		out[i] = c.result(e.rule, f)
	}
	return out
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

func (g *gpuState) object() Object {
	o := Object{Kind: "gpu", Name: fmt.Sprintf("GPU %d", g.Index), UUID: g.UUID}
	if g.Err == nil {
		o.Bus = g.Bus.String()
	}
	return o
}

// result puts together what was found, what the rule says, and what the check
// is about.
func (c *check) result(r rule, f finding) Result {
	out := Result{
		ID: c.id, Title: c.title, Object: f.object, Verdict: f.verdict, Value: f.value, Number: f.number,
		Limit: r.Limit, Least: f.number != nil && result.BetterOf(c.id, "", r.Unit, "") == result.Higher, Unit: r.Unit, Threshold: c.want, Source: cmp.Or(f.source, r.Source), Severity: r.Severity, Reason: f.reason,
	}
	if f.want != "" {
		out.Threshold, out.Limit = f.want, nil
	} else if r.Limit != nil {
		out.Threshold = strings.ReplaceAll(c.want, "%s", amount(*r.Limit, r.Unit))
	}
	out.Verdict = cmp.Or(out.Verdict, f.judge(r.Severity))
	if out.Verdict == result.Warn || out.Verdict == result.Fail {
		out.Remedy = cmp.Or(f.remedy, c.remedy)
	}
	return out
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
