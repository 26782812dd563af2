package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/harness/suite"
)

// platform makes one check: of what was found before anything is measured.
func (c *Config) platform(e *suite.Entry) ([]suite.Check, error) {
	if err := e.Decode(&struct{}{}); err != nil {
		return nil, err
	}
	if err := figures(e, nil); err != nil {
		return nil, err
	}
	return []suite.Check{{
		ID: e.ID, Title: "the machine is one that the data base knows, and the one that it should be",
		Run: func(context.Context, *suite.Env) suite.Result { return c.recognised() },
	}}, nil
}

func (c *Config) recognised() suite.Result {
	r := &c.Machine.Expect.Recognition
	seen := r.Name
	if len(r.Differences) > 0 {
		seen += ", but: " + strings.Join(r.Differences, "; ")
	}
	switch {
	case c.Platform != "" && r.Platform != c.Platform:
		return suite.Failed("it should be %s, and is nearest to %s", c.Platform, orNothing(r.Platform)).
			WithRemedy("look at what harness platform finds; if the machine is right, name its platform")
	case r.Platform != "":
		return suite.Passed("%s", seen)
	case len(r.GPUs) == 0 && c.Machine.PCI == 0:
		return suite.Skipped("a machine without GPUs is no platform of the data base: what is measured is judged only where a limit is known without one")
	case len(r.GPUs) == 0:
		return suite.Errored("PCI has %s, and nothing is known of them: %s", count(c.Machine.PCI, "GPU"), c.Machine.Why)
	}
	var names []string
	for _, g := range r.GPUs {
		names = append(names, fmt.Sprintf("%d × %s", g.Count, g.Name))
	}
	return suite.Skipped("no platform of the data base has %s: they are measured, and judged only where a figure is known", strings.Join(names, " and "))
}

func orNothing(s string) string {
	if s == "" {
		return "none that is known"
	}
	return s
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
