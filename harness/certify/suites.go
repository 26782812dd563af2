package certify

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/words"
)

// Chosen returns the requested suite, or the one that fits the machine.
func (o *Options) Chosen() string {
	switch {
	case o.Suite != "":
		return o.Suite
	case o.Root != "/":
		return image.Name
	case o.aboutMachine(): // also where nothing of it is left
		return "node"
	}
	fs, err := sysfs.Open("/")
	if err != nil {
		return image.Name
	}
	rdma, _ := fs.RDMADevices()
	if machine.PCIGPUs(fs) > 0 || len(rdma) > 0 {
		return "node"
	}
	return image.Name
}

// suiteFile loads a suite from a file, or one that comes with the harness.
func suiteFile(name string) (*suite.File, error) {
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" {
		r, err := infile.OpenArgument(name)
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
		all := append(node.Names(), image.Name)
		return nil, exit.Usagef("there is no suite %q; the nearest is %q (all: %s; or a file NAME.yaml)", name, words.Nearest(name, all), strings.Join(all, ", "))
	}
	return node.Load(name)
}
