package image

import (
	"context"
	"slices"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// Name is the suite's name.
const Name = "image"

// kindParams are the parameters of image, under "with".
type kindParams struct {
	Only []string `yaml:"only"`
	Skip []string `yaml:"skip"`
}

// Kind offers the checks of the suite image to other suites: libraries that existed when the image
// was built may be missing here.
func Kind(env *suite.Env, cfg Config) suite.Kind {
	return suite.Kind{Name: Name, Usage: "checks of the suite image", Make: func(e *suite.Entry) ([]suite.Check, error) {
		var p kindParams
		if err := e.Decode(&p); err != nil {
			return nil, err
		}
		if cfg.Spec == nil && cfg.SpecErr == nil {
			return []suite.Check{{ID: e.ID, Title: "the image is what it declares", Run: func(context.Context, *suite.Env) result.Result {
				return result.Skipped("this is not an image of assay: there is no %s", certificate.SpecPath)
			}}}, nil
		}
		all, err := Suite(cfg).Checks(context.Background(), env)
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(all))
		for i, c := range all {
			ids[i] = c.ID
		}
		wanted, err := e.Select(p.Only, p.Skip, ids)
		if err != nil {
			return nil, err
		}
		return below(e.ID, all, wanted), nil
	}}
}

// below returns the wanted checks of a list, and those that they need, with name as a
// prefix of their ids.
func below(name string, all []suite.Check, wanted func(string) bool) (out []suite.Check) {
	in := map[string]bool{}
	for _, c := range slices.Backward(all) { // a needed check precedes those that need it
		if !in[c.ID] && !wanted(c.ID) {
			continue
		}
		in[c.ID] = true
		for _, n := range c.Needs {
			in[n] = true
		}
	}
	for _, c := range all {
		if !in[c.ID] {
			continue
		}
		c.ID = name + "/" + c.ID
		c.Needs = slices.Clone(c.Needs)
		for i := range c.Needs {
			c.Needs[i] = name + "/" + c.Needs[i]
		}
		out = append(out, c)
	}
	return out
}
