package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/certify"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/outfile"
)

// silence disables the output of other ranks: only rank 0 writes and reports.
func (o *certifyOptions) silence(c *certify.Certification) {
	o.output, o.out, o.inventory = "", "", ""
	o.stdout, o.stderr, o.push = io.Discard, io.Discard, pushOptions{}
	c.Dir, c.Resume, c.Baseline = "", false, certify.Baseline{}
}

// ofAll merges the certificates of all machines and the results of their joint checks
// into one certificate. Rank 0 returns it, and also writes each machine's certificate to
// a file; the other ranks return nil. Each machine informs the site about its own
// certificate.
func (o *certifyOptions) ofAll(ctx context.Context, c *certify.Certification, own *certificate.Statement, joint []result.Result, dir *outfile.Dir) (*certificate.Statement, error) {
	g, err := c.Fabric.Gather(ctx, own)
	if err != nil {
		return nil, exit.With(exit.NotDone, fmt.Errorf("gathering the machines' certificates: %w", err))
	}
	told := o.site.act(ctx, own)
	o.site = siteOptions{}
	if !c.First() {
		return nil, told
	}
	if told != nil {
		fmt.Fprintln(o.stderr, "harness:", told)
	}
	if dir != nil {
		if err := c.Fabric.WriteCertificates(filepath.Join(dir.Name, "nodes"), g.Certificates); err != nil {
			return nil, err
		}
	}
	return c.Fabric.Merge(g, joint)
}
