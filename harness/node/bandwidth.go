package node

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
	"github.com/assay-hpc/assay/perftest/membw"
)

// bandwidthParams are the parameters under "with" of bandwidth.
type bandwidthParams struct {
	Families []string `yaml:"families"` // none: all
	Size     string   `yaml:"size"`     // of one copy
	Samples  int      `yaml:"samples"`
	Copies   int      `yaml:"copies"` // per sample
}

// bandwidth returns one check per family, all from one run.
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
			return nil, e.Errorf("with: families: there is no %q; did you mean %q?", f, words.Nearest(f, membw.FamilyNames()))
		}
		args = append(args, "--only", f)
	}
	shared := new(once[membw.Report])
	var out []suite.Check
	for _, name := range p.Families {
		out = append(out, suite.Check{
			About: c.aboutBandwidth(p.Samples) / time.Duration(len(membw.FamilyNames())),
			ID:    e.ID + "/" + name, Title: membw.FamilyTitle(name), Uses: []string{useGPUs}, Timeout: 5 * time.Minute,
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

// bandwidthResult returns a family's result, compared with a limit of the suite.
func (c *Config) bandwidthResult(e *suite.Entry, r *membw.Report, name string) result.Result {
	res := r.Of(name)
	rule, ok := e.Limits[name]
	if !ok {
		return res
	}
	res = res.Held(rule, name, func(o *result.Object, of string) (float64, string) {
		if m := o.Measured; of == "peak" && !strings.HasSuffix(name, "_all") { // expected by the report itself; that of _all is what a single GPU reached
			return m.Expected, m.Source
		}
		for i := range r.GPUs {
			if g := &r.GPUs[i]; gpuName(g.Index) == o.Name {
				return c.known(figureOf[name], cmp.Or(g.Model, g.Name)).Of(of)
			}
		}
		return 0, ""
	})
	if res.Verdict.Bad() {
		res.Remedy = membw.Remedy
	}
	return res
}

// figureOf maps families to the names of figures in the database.
var figureOf = map[string]string{
	"host_to_device": "h2d", "host_to_device_all": "h2d", "device_to_host": "d2h", "device_to_host_all": "d2h",
	"local_ce": "local_copy", "peer_write_ce": "p2p_write", "peer_read_ce": "p2p_read",
}
