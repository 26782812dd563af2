package node

import (
	"context"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/dcgm/health"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/result"
)

// healthParams are the parameters under "with" of health.
type healthParams struct {
	Window time.Duration `yaml:"window"` // in which error counters are watched
	Since  time.Duration `yaml:"since"`  // how far back the kernel's log is read
	Only   []string      `yaml:"only"`
	Skip   []string      `yaml:"skip"`
	// A site has one file of limits, for all commands.
	Thresholds yaml.Node `yaml:"thresholds"`
}

// health returns the checks of harness health, all from one run of it.
func (c *Config) health(e *suite.Entry) ([]suite.Check, error) {
	p := healthParams{Window: 500 * time.Millisecond, Since: 2 * time.Hour}
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if len(e.Limits) > 0 || p.Thresholds.Kind != 0 {
		return nil, e.Errorf("limits of health's checks are in the site's file, which all commands read: certify --thresholds FILE (docs/health.md has its form)")
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
	if c.Limits != "" {
		args = append(args, "--limits", c.Limits)
	}
	shared := new(once[result.Report])
	var out []suite.Check
	for _, id := range health.IDs() {
		if !wanted(id) {
			continue
		}
		about := time.Duration(0)
		if len(out) == 0 {
			about = p.Window + 2*aboutProcess // of all
		}
		out = append(out, suite.Check{
			About: about,
			// It must not run together with load on the GPUs: it would see its processes and
			// temperatures.
			ID: e.ID + "/" + id, Title: health.Title(id), Uses: []string{useGPUs},
			Run: func(ctx context.Context, _ *suite.Env) result.Result {
				r, bad := shared.get(ctx, func(ctx context.Context) (*result.Report, *result.Result) {
					return report[result.Report](ctx, c.Run, args...)
				})
				if bad != nil {
					return *bad
				}
				return r.Of(id)
			},
		})
	}
	return out, nil
}

// surePlatform returns the platform by which health judges: the one that was named, or one that
// the machine matches in everything that is known of it. With one that is only the nearest, every
// difference would count as a fault.
func (c *Config) surePlatform() string {
	if r := &c.Machine.Expect.Recognition; c.Platform == "" && len(r.Differences) == 0 {
		return r.Platform
	}
	return c.Platform
}
