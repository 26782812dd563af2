package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/dcgm/health"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/suite"
)

// healthParams is what stands under "with" of health.
type healthParams struct {
	Window time.Duration `yaml:"window"` // for which error counters are watched
	Since  time.Duration `yaml:"since"`  // how far back the kernel's log counts
	Only   []string      `yaml:"only"`
	Skip   []string      `yaml:"skip"`
}

// health makes a check of each of harness health's, all from one run of it.
func (c *Config) health(e *suite.Entry) ([]suite.Check, error) {
	p := healthParams{Window: 500 * time.Millisecond, Since: 2 * time.Hour}
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if err := checkLimits(e, nil); err != nil {
		return nil, err
	}
	wanted, err := e.Select(p.Only, p.Skip, health.IDs())
	if err != nil {
		return nil, err
	}
	args := []string{"health", "-o", "json", "--window", p.Window.String(), "--since", p.Since.String()}
	if c.GPUs != nil {
		args = append(args, "--gpus", strconv.Itoa(*c.GPUs))
	}
	if c.Ports != nil {
		args = append(args, "--ports", strconv.Itoa(*c.Ports))
	}
	if p := c.surePlatform(); p != "" {
		args = append(args, "--hardware", p)
	}
	shared := new(once[health.Report])
	var out []suite.Check
	for _, id := range health.IDs() {
		if !wanted(id) {
			continue
		}
		out = append(out, suite.Check{
			// Not while something loads the GPUs, whose processes and temperatures it would see.
			ID: e.ID + "/" + id, Title: sentence(health.Title(id)), Uses: []string{useGPUs},
			Run: func(ctx context.Context, _ *suite.Env) result.Result {
				r, bad := shared.get(ctx, func(ctx context.Context) (*health.Report, *result.Result) {
					return report[health.Report](ctx, c.Run, args...)
				})
				if bad != nil {
					return *bad
				}
				return healthResult(r, id)
			},
		})
	}
	return out, nil
}

// surePlatform is the platform by which health judges: the one that was named, or
// one that the machine is in all that is known of it. One that is only the nearest
// would make what is different a fault.
func (c *Config) surePlatform() string {
	if r := &c.Machine.Expect.Recognition; c.Platform == "" && len(r.Differences) == 0 {
		return r.Platform
	}
	return c.Platform
}

// sentence makes a title what a certificate's titles are: without a capital, but
// for names such as PCIe.
func sentence(s string) string {
	if len(s) > 1 && s[1] >= 'a' && s[1] <= 'z' && !strings.HasPrefix(s, "Info") {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}

// healthResult is one check of a report.
func healthResult(r *health.Report, id string) result.Result {
	var objects []result.Object
	var worst result.Verdict
	remedy := ""
	for _, one := range r.Results {
		if one.ID != id {
			continue
		}
		o := result.Object{Name: one.Object.Name, ID: one.Object.UUID, Verdict: one.Verdict, Reason: one.Reason}
		if one.Number != nil && one.Unit != "" {
			o.Measured = &result.Measurement{Value: *one.Number, Unit: one.Unit}
			if one.Limit != nil {
				kind := result.AtMost
				if one.Least {
					kind = result.AtLeast
				}
				o.Measured.Limit = &result.Limit{Value: *one.Limit, Kind: kind, Source: one.Source}
			}
		} else if o.Reason == "" {
			o.Reason = one.Value
		}
		if w := result.Worst(o.Verdict, worst); w != worst {
			worst, remedy = w, one.Remedy
		}
		objects = append(objects, o)
	}
	if len(objects) == 0 {
		return result.Errored("the report of harness health has nothing about %s", id)
	}
	res := of(distinct(objects))
	res.Remedy = remedy
	if res.Verdict == result.Pass {
		res.Reason = values(objects)
	}
	if len(objects) == 1 && objects[0].ID == "" { // the node itself
		res.Objects, res.Measured, res.Reason = nil, objects[0].Measured, objects[0].Reason
	} else {
		res.Measured = speaking(id, objects)
	}
	return res
}

// distinct numbers objects that have one name: two findings about one device.
func distinct(objects []result.Object) []result.Object {
	type key struct{ name, peer, quantity string }
	seen := map[key]int{}
	for i := range objects {
		o := &objects[i]
		k := key{o.Name, o.Peer, o.Quantity}
		seen[k]++
		if n := seen[k]; n > 1 {
			o.Quantity = strings.TrimSpace(fmt.Sprintf("%s %d", o.Quantity, n))
		}
	}
	return objects
}

// values says what all objects have, or between what their values lie.
func values(objects []result.Object) string {
	var low, high *result.Measurement
	for _, o := range objects {
		m := o.Measured
		if m == nil {
			return reasons(objects)
		}
		if low == nil || m.Value < low.Value {
			low = m
		}
		if high == nil || m.Value > high.Value {
			high = m
		}
	}
	switch {
	case len(objects) == 1:
		return "" // it stands in the measurement
	case low.Value == high.Value:
		return fmt.Sprintf("%.4g %s, all %d", low.Value, low.Unit, len(objects))
	}
	return fmt.Sprintf("%.4g to %.4g %s", low.Value, high.Value, low.Unit)
}

// reasons says what all objects have in words.
func reasons(objects []result.Object) string {
	first := objects[0].Reason
	switch {
	case len(objects) == 1:
		return first
	case slices.ContainsFunc(objects, func(o result.Object) bool { return o.Reason != first }):
		return fmt.Sprintf("%s: %s; and %d more", objects[0].Name, first, len(objects)-1)
	case first == "":
		return ""
	}
	return fmt.Sprintf("%s, all %d", first, len(objects))
}
