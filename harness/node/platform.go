package node

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// platform returns one check: of what was found before any measurement.
func (c *Config) platform(e *suite.Entry) ([]suite.Check, error) {
	if err := e.Decode(&struct{}{}); err != nil {
		return nil, err
	}
	if err := checkLimits(e, nil); err != nil {
		return nil, err
	}
	return []suite.Check{{
		ID: e.ID, Title: "the machine is one that the database knows, and the one that it should be",
		Run: func(context.Context, *suite.Env) result.Result { return c.recognised() },
	}}, nil
}

func (c *Config) recognised() result.Result {
	r := &c.Machine.Expect.Recognition
	seen := r.Name
	if len(r.Differences) > 0 {
		seen += ", but: " + strings.Join(r.Differences, "; ")
	}
	ports := 0
	for _, g := range r.NICs {
		ports += g.Count
	}
	missing, declare := c.missing()
	switch {
	case c.Platform != "" && r.Platform != c.Platform:
		return result.Failed("it should be %s, and is nearest to %s", c.Platform, cmp.Or(r.Platform, "none that is known")).
			WithRemedy("look at what harness show platform finds; if the machine is right, name its platform")
	case c.Ports != nil && *c.Ports != ports:
		return result.Failed("it should have %s, and has %d", words.Count(*c.Ports, "RDMA port"), ports).
			WithRemedy("look for the missing card on PCI and in the kernel's log, or give the right --ports")
	case len(missing) > 0:
		res := result.Failed("it should be %s, and has %s", c.Platform, strings.Join(missing, ", "))
		if c.Platform == "" {
			res = result.Result{Verdict: result.Warn, Reason: fmt.Sprintf("it is most like %s (%s), and has %s", r.Name, r.Platform, strings.Join(missing, ", "))}
		}
		return res.WithRemedy("look for the missing devices (harness show platform, lspci, dmesg); if this is a container or a virtual machine that was given a part of the machine, say so with " + strings.Join(declare, " "))
	case r.Platform != "":
		return result.Passed("%s", seen)
	case len(r.GPUs) == 0 && c.Machine.PCI == 0:
		return result.Skipped("a machine without GPUs is not a platform of the database: what is measured is judged only where a limit is known without one")
	case len(r.GPUs) == 0:
		return result.Errored("PCI has %s, and nothing is known of them: %s", words.Count(c.Machine.PCI, "GPU"), c.Machine.Why)
	}
	var names []string
	for _, g := range r.GPUs {
		names = append(names, fmt.Sprintf("%d × %s", g.Count, g.Name))
	}
	return result.Skipped("no platform of the database has %s: they are measured, and judged only where a figure is known", strings.Join(names, " and "))
}

// missing returns the devices that the platform has and the machine lacks, except where the
// required number was specified. declare are the flags that specify the present numbers.
func (c *Config) missing() (missing, declare []string) {
	for _, m := range c.Machine.Expect.Recognition.Missing {
		told, flag := c.GPUs, "--gpus"
		if m.What == platform.Ports {
			told, flag = c.Ports, "--ports"
		}
		if told == nil || *told != m.Have { // health reports a wrong number of GPUs
			missing, declare = append(missing, m.Text), append(declare, fmt.Sprintf("%s %d", flag, m.Have))
		}
	}
	return missing, declare
}
