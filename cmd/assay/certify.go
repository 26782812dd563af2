package main

import (
	"bytes"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/outfile"
)

type certifyFlags struct {
	common
	builderFlags
	form, certificate string
	trust             driver.CertifyOptions
}

func certifyCommand() *cli.Command {
	o := &certifyFlags{}
	return &cli.Command{
		Name: "certify", Usage: "certify any image",
		Description: "assay's own harness reads the image from outside, and runs its programs in containers of their own. What the image\n" +
			"claims about itself is not believed. With --target the image is compared with what the matrix and the lock declare\n" +
			"for that target.",
		ArgsUsage: "REF | oci:DIR[:TARGET|@DIGEST]",
		Flags: append(o.common.flags(
			&cli.StringFlag{Name: "out", Usage: "write the certificates, one JSON document a line, to `FILE`", Destination: &o.certificate},
			&cli.StringFlag{Name: "target", Usage: "compare the image with what the matrix and the lock declare for `TARGET` (default: no comparison)", Destination: &o.trust.Target},
			grammar.Format(&o.form, "text", "json"),
		), o.builderFlags.flags()...),
		Action: func(c *cli.Context) error { return o.asRoot(c, o.run) },
	}
}

func (o *certifyFlags) run(c *cli.Context) error {
	if c.NArg() != 1 {
		return exit.Usagef("certify wants one image: a reference such as ghcr.io/owner/assay:TAG, or oci:DIR")
	}
	if o.certificate != "" {
		if err := outfile.Check(o.certificate); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	w, err := o.open(c)
	if err != nil {
		return err
	}
	res, err := w.Certify(c.Context, c.Args().First(), o.trust, driver.BuildOptions{Builders: o.addrs(), Buildkitd: o.buildkitd, Progress: o.progress, Limits: o.limits})
	if err != nil {
		return err
	}
	if o.certificate != "" {
		if err := writeCertificates(o.certificate, res); err != nil {
			return err
		}
	}
	if o.form == "json" {
		if err := writeJSON(c.App.Writer, map[string]any{"schemaVersion": 1, "image": c.Args().First(), "platforms": res}); err != nil {
			return err
		}
	}
	failed, notDone := false, false
	for _, r := range res {
		if o.form == "text" {
			fmt.Fprintf(c.App.Writer, "%s %s %s\n", c.Args().First(), r.Platform, r.Digest)
			certificateText(c.App.Writer, r)
			if r.Error != "" {
				fmt.Fprintln(c.App.ErrWriter, "assay: "+r.Error)
			}
		}
		notDone = notDone || r.NotDone()
		failed = failed || r.Error != "" && !r.NotDone()
	}
	if failed {
		return exit.With(exit.Fail, nil)
	}
	if notDone {
		return exit.With(exit.NotDone, nil)
	}
	return nil
}

func writeCertificates(file string, res []driver.ImageResult) error {
	var b bytes.Buffer
	for _, r := range res {
		fmt.Fprintf(&b, "%s\n", r.Certificate)
	}
	return outfile.Write(file, b.Bytes())
}
