package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/harness/machine"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/harness/sysfs"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/nearest"
)

// imageSuite is the suite that is about an image, not about the machine.
const imageSuite = "image"

// chosen returns the requested suite, or the one that fits the machine.
func (o *certifyOptions) chosen() string {
	switch {
	case o.suite != "":
		return o.suite
	case o.root != "/":
		return imageSuite
	}
	fs, err := sysfs.Open("/")
	if err != nil {
		return imageSuite
	}
	rdma, _ := fs.RDMADevices()
	if machine.PCIGPUs(fs) > 0 || len(rdma) > 0 {
		return "node"
	}
	return imageSuite
}

// aboutMachine loads a suite from a file, or one that comes with the harness.
func (o *certifyOptions) aboutMachine(name string, cfg *node.Config, images suite.Kind) (*suite.Suite, *suite.File, error) {
	f, err := o.suiteFile(name)
	if err != nil {
		return nil, nil, err
	}
	s := f.Suite(suite.FileSuite(name), append(cfg.Kinds(), images))
	return &s, f, nil
}

func (o *certifyOptions) suiteFile(name string) (*suite.File, error) {
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" {
		r, err := os.Open(name)
		if err != nil {
			return nil, exit.Usagef("--suite: %w", err)
		}
		defer r.Close()
		f, err := suite.ParseFile(name, r)
		if err != nil {
			return nil, exit.Usagef("--suite: %w", err)
		}
		return f, nil
	}
	if !slices.Contains(node.Names(), name) {
		all := append(node.Names(), imageSuite)
		return nil, exit.Usagef("there is no suite %q; the nearest is %q (all: %s; or a file NAME.yaml)", name, nearest.To(name, all), strings.Join(all, ", "))
	}
	return node.Load(name)
}

// config returns the configuration of the checks of the machine.
func (o *certifyOptions) config(id *machine.Identity) (*node.Config, error) {
	cfg := &node.Config{Run: runChild, Machine: id.Facts, Platform: o.platform}
	if o.counted {
		cfg.GPUs = &o.gpus
	}
	if o.countedPorts {
		cfg.Ports = &o.ports
	}
	db, err := platform.Load()
	if err != nil {
		return nil, err
	}
	if o.platform != "" {
		if _, err := db.Platform(o.platform); err != nil {
			return nil, exit.Usagef("--hardware: %w", err)
		}
	}
	return cfg, nil
}

// imageParams are the parameters of image, under "with".
type imageParams struct {
	Only []string `yaml:"only"`
	Skip []string `yaml:"skip"`
}

// imageKind offers the checks of the suite image to other suites: libraries that existed
// when the image was built may be missing here.
func imageKind(env *suite.Env, cfg image.Config) suite.Kind {
	return suite.Kind{Name: imageSuite, Usage: "checks of the suite image", Make: func(e *suite.Entry) ([]suite.Check, error) {
		var p imageParams
		if err := e.Decode(&p); err != nil {
			return nil, err
		}
		if cfg.Spec == nil && cfg.SpecErr == nil {
			return []suite.Check{{ID: e.ID, Title: "the image is what it declares", Run: func(context.Context, *suite.Env) result.Result {
				return result.Skipped("this is not an image of assay: there is no %s", certificate.SpecPath)
			}}}, nil
		}
		all, err := image.Suite(cfg).Checks(context.Background(), env)
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
