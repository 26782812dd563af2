package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/result"

	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/nearest"
	"github.com/assay-hpc/assay/perftest/membw"
)

// bandwidthParams is what stands under "with" of bandwidth.
type bandwidthParams struct {
	Families []string `yaml:"families"` // none: all
	Size     string   `yaml:"size"`     // of a copy
	Samples  int      `yaml:"samples"`
	Copies   int      `yaml:"copies"` // that a sample times
}

// bandwidth makes a check of each family, all from one run.
func (c *Config) bandwidth(e *suite.Entry) ([]suite.Check, error) {
	d := membw.Defaults()
	p := bandwidthParams{Families: membw.FamilyNames(), Size: "512M", Samples: d.Samples, Copies: d.Copies}
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if p.Samples < 1 || p.Copies < 1 {
		return nil, e.Errorf("with: samples and copies are 1 at least")
	}
	if err := checkLimits(e, p.Families); err != nil {
		return nil, err
	}
	args := []string{"bandwidth", "-o", "json", "--size", p.Size, "--samples", strconv.Itoa(p.Samples), "--copies", strconv.Itoa(p.Copies)}
	for _, f := range p.Families {
		if !slices.Contains(membw.FamilyNames(), f) {
			return nil, e.Errorf("with: families: there is no %q; did you mean %q?", f, nearest.To(f, membw.FamilyNames()))
		}
		args = append(args, "--only", f)
	}
	shared := new(once[membw.Report])
	var out []suite.Check
	for _, name := range p.Families {
		out = append(out, suite.Check{
			ID: e.ID + "/" + name, Title: "memory is copied fast enough: " + membw.FamilyTitle(name), Uses: []string{useGPUs}, Timeout: 5 * time.Minute,
			Run: func(ctx context.Context, _ *suite.Env) result.Result {
				if res, none := c.noGPUs(); none {
					return res
				}
				r, bad := shared.get(ctx, func(ctx context.Context) (*membw.Report, *result.Result) {
					return report[membw.Report](ctx, c.Run, args...)
				})
				if bad != nil {
					return *bad
				}
				return c.bandwidthResult(e, r, name)
			},
		})
	}
	return out, nil
}

// bandwidthResult is a family of a report.
func (c *Config) bandwidthResult(e *suite.Entry, r *membw.Report, name string) result.Result {
	i := slices.IndexFunc(r.Families, func(f membw.Family) bool { return f.Name == name })
	if i < 0 {
		return result.Skipped("it takes more GPUs than there are: %d", len(r.GPUs))
	}
	f := &r.Families[i]
	var objects []result.Object
	for _, one := range f.Cells {
		objects = append(objects, c.cell(e, r, f, one))
	}
	if len(objects) == 0 {
		return result.Skipped("it takes more GPUs than there are: %d", len(r.GPUs))
	}
	res := result.Sum(objects)
	res.Measured = result.Speaking(e.ID+"/"+name, objects)
	if res.Verdict == result.Fail || res.Verdict == result.Warn {
		res.Remedy = "compare the links' state and the counters of errors (harness health), and repeat without other work on the node"
		var said []string
		for _, finding := range r.Findings {
			if finding.Family == name {
				said = append(said, finding.Text)
			}
		}
		if len(said) > 0 && len(e.Limits) == 0 { // they name who is to blame
			res.Reason = strings.Join(said, "; ")
		}
	}
	if res.Verdict == result.Pass {
		res.Reason = result.Values(objects)
	}
	return res
}

// cell is a GPU or a pair.
func (cfg *Config) cell(e *suite.Entry, r *membw.Report, f *membw.Family, c membw.Cell) result.Object {
	o := result.Object{Reason: c.Reason}
	from, to := c.From, c.To
	if from == membw.Host {
		from = to
	}
	o.Name, o.ID = gpuName(from), r.GPUs[from].UUID
	if to != membw.Host && to != from {
		o.Peer = gpuName(to)
	}
	switch c.Verdict {
	case result.Skip:
		o.Verdict = result.Skip
		o.Reason = cmp.Or(o.Reason, "it is not possible here")
		return o
	default:
		o.Verdict = c.Verdict
	}
	if c.Value <= 0 { // it went wrong: the reason says how
		return o
	}
	o.Measured = measured(c.Value, f.Unit, c.Reference, "hardware data base")
	o.Measured.Spread = spread(c.Samples)
	limits := f.Limits
	if c.Limits != nil {
		limits = *c.Limits
	}
	if c.Reference > 0 {
		atLeast(o.Measured, limits.Pass*c.Reference, fmt.Sprintf("harness bandwidth: %.2f of the reference", limits.Pass))
	}
	gpu := r.GPUs[from]
	k := cfg.known(figureOf[f.Name], cmp.Or(gpu.Model, gpu.Name))
	if c.Reference > 0 && !strings.HasSuffix(f.Name, "_all") { // whose reference is what a GPU alone has reached
		k.Peak = &platform.Cited{Value: c.Reference, Source: "hardware data base"}
	}
	if rule, ok := e.Limits[f.Name]; ok {
		rule.Judge(f.Name, &o, k.Of)
	}
	return o
}

// figureOf is what the data base calls what families measure.
var figureOf = map[string]string{
	"host_to_device": "h2d", "host_to_device_all": "h2d", "device_to_host": "d2h", "device_to_host_all": "d2h",
	"local_ce": "local_copy", "peer_write_ce": "p2p_write", "peer_read_ce": "p2p_read",
}
