package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/internal/exit"
)

// silence disables the output of other ranks: only rank 0 writes and reports.
func (o *certifyOptions) silence() {
	o.output, o.out, o.inventory, o.resume = "", "", "", false
	o.stdout, o.stderr = io.Discard, io.Discard
	o.push, o.baseline = pushOptions{}, baselineOptions{}
}

// ofAll merges the certificates of all machines and the results of their joint checks
// into one certificate. Rank 0 returns it, and also writes each machine's certificate to
// a file; the other ranks return nil. Each machine informs the site about its own
// certificate.
func (o *certifyOptions) ofAll(ctx context.Context, c *certification, own *certificate.Statement, together []result.Result, dir *outputDir) (*certificate.Statement, error) {
	g, err := c.fabric.Gather(ctx, own)
	if err != nil {
		return nil, exit.With(exit.NotDone, fmt.Errorf("gathering the machines' certificates: %w", err))
	}
	told := o.site.act(ctx, own)
	o.site = siteOptions{}
	if !c.first() {
		return nil, told
	}
	if told != nil {
		fmt.Fprintln(o.stderr, "harness:", told)
	}
	if dir != nil {
		if err := writeNodes(filepath.Join(dir.name, "nodes"), c.fabric, g.Certificates); err != nil {
			return nil, err
		}
	}
	return c.fabric.Merge(g, together)
}

// writeNodes writes each machine's certificate under its name.
func writeNodes(dir string, f *fabric.Fabric, all []*certificate.Statement) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return exit.With(exit.NotDone, err)
	}
	for rank, st := range all {
		if st == nil {
			continue
		}
		b, err := st.Marshal()
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, fabric.FileName(f.Name(rank))+".json"), b); err != nil {
			return exit.With(exit.NotDone, err)
		}
	}
	return nil
}

// apart separates a machine's own results from those of checks that all machines run
// together.
func (c *certification) apart(all []result.Result) (own, together []result.Result) {
	for _, r := range all {
		if c.together(r.ID) {
			together = append(together, r)
		} else {
			own = append(own, r)
		}
	}
	return own, together
}
