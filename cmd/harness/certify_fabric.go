package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/assay-hpc/assay/harness/certify"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/result"
)

// certifyAll makes the certificate of all machines, of their own certificates and the results of
// their joint checks. The first machine writes it, and each machine's certificate to a file; it is
// done by another if the first is lost. Each machine informs the site about its own certificate.
// before is what lastWritten returned when the run began.
func (o *certifyOptions) certifyAll(ctx context.Context, c *certify.Certification, own *certificate.Statement, joint []result.Result, dir *outfile.Dir, before time.Time) error {
	inform := sync.OnceValue(func() error { return o.site.actOn(ctx, own) })
	var all *certificate.Statement // nil unless this machine wrote it
	err := c.Fabric.Together(func() error {
		g, err := c.Fabric.Gather(ctx, own)
		if err != nil {
			return exit.With(exit.NotDone, fmt.Errorf("gathering the machines' certificates: %w", err))
		}
		told := inform()
		if g == nil {
			return nil
		}
		if told != nil {
			fmt.Fprintln(o.stderr, "harness:", told)
		}
		if all, err = c.Fabric.Merge(g, joint); err != nil {
			return err
		}
		if c.Fabric.Minority() && !o.lastWritten().Equal(before) {
			return exit.With(exit.NotDone, fmt.Errorf("nothing was written to %s: machines that this one cannot reach have written their certificate there", cmp.Or(o.Dir, o.out)))
		}
		if dir == nil && o.Dir != "" {
			if dir, err = outfile.OpenDir(o.Dir); err != nil {
				return outFailed(o.Dir, err)
			}
			defer dir.Close()
		}
		if dir != nil {
			if err := c.Fabric.WriteCertificates(filepath.Join(dir.Name, "nodes"), g.Certificates); err != nil {
				return err
			}
		}
		return o.publish(ctx, c, all, dir)
	})
	switch {
	case err != nil:
		return errors.Join(err, inform()) // a full disk must not keep a bad node in use
	case all == nil:
		c.Done() // the first machine has it all
		return inform()
	}
	c.Done()
	return c.Verdict(all)
}

// lastWritten returns when the certificate at the place where this one is to go was written; 0:
// there is none.
func (o *certifyOptions) lastWritten() time.Time {
	name := o.out
	if o.Dir != "" {
		name = filepath.Join(o.Dir, "certificate.json")
	}
	st, err := os.Stat(name)
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}
