package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/assay-hpc/assay/harness/certificate"
)

// fabricSuite is the suite that several machines run together.
const fabricSuite = "fabric"

// silence has rank 0 alone write and tell.
func (o *certifyOptions) silence() {
	o.output, o.out, o.inventory, o.resume = "", "", "", false
	o.stdout, o.stderr = io.Discard, io.Discard
	o.push, o.baseline = pushOptions{}, baselineOptions{}
}

// ofAll makes one certificate of all machines', which are written beside it; nil
// on the others. A site is told by each machine what its own one means.
func (o *certifyOptions) ofAll(ctx context.Context, c *certification, own *certificate.Statement, dir *outputDir) (*certificate.Statement, error) {
	all, lost := c.fabric.gather(ctx, own)
	told := o.site.act(ctx, own)
	o.site = siteOptions{}
	if !c.first() {
		return nil, told
	}
	if told != nil {
		fmt.Fprintln(o.stderr, "harness:", told)
	}
	if lost != nil {
		fmt.Fprintln(o.stderr, "harness:", lost)
	}
	if dir != nil {
		if err := writeNodes(filepath.Join(dir.name, "nodes"), c.fabric.names, all); err != nil {
			return nil, err
		}
	}
	return c.fabric.merged(all, lost, c.together), nil
}

// writeNodes writes each machine's certificate under its name.
func writeNodes(dir string, names []string, all []*certificate.Statement) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return &statusError{exitNotDone, err}
	}
	for rank, st := range all {
		if st == nil {
			continue
		}
		b, err := st.Marshal()
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, strings.ReplaceAll(names[rank], "/", "_")+".json"), b); err != nil {
			return &statusError{exitNotDone, err}
		}
	}
	return nil
}
