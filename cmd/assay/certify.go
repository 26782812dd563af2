package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/driver"
)

type certifyFlags struct {
	common
	builderFlags
	form, certificate string
}

func certifyCommand() *cli.Command {
	o := &certifyFlags{}
	return &cli.Command{
		Name: "certify", Usage: "run the harness inside an image, built by assay or not, without network",
		ArgsUsage: "REF | oci:DIR[:TARGET|@DIGEST]",
		Flags: append(o.common.flags(
			&cli.StringFlag{Name: "certificate", Usage: "write the certificates, one JSON document a line, to `FILE`", Destination: &o.certificate},
			outputFlag(&o.form, "text", "json"),
		), o.builderFlags.flags()...),
		Action: func(c *cli.Context) error { return o.run(c) },
	}
}

func (o *certifyFlags) run(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("certify wants one image: a reference such as ghcr.io/owner/assay:TAG, or oci:DIR")
	}
	w, err := o.open(c)
	if err != nil {
		return err
	}
	res, err := w.Certify(c.Context, c.Args().First(), driver.BuildOptions{Builders: o.addrs(), Buildkitd: o.buildkitd, Progress: o.progress, Limits: o.limits})
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
	failed := false
	for _, r := range res {
		if o.form == "text" {
			fmt.Fprintf(c.App.Writer, "%s %s %s\n", c.Args().First(), r.Platform, r.Digest)
			certificateText(c.App.Writer, r)
			if r.Error != "" {
				fmt.Fprintln(c.App.ErrWriter, "assay: "+r.Error)
			}
		}
		failed = failed || r.Error != ""
	}
	if failed {
		return &failedError{}
	}
	return nil
}

func writeCertificates(file string, res []driver.ImageResult) error {
	f, err := os.CreateTemp(".", ".certificate-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	for _, r := range res {
		if _, err := fmt.Fprintf(f, "%s\n", r.Certificate); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
