package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/certificate"
)

func verifyCommand(out io.Writer) *cli.Command {
	var keys cli.StringSlice
	var subject string
	return &cli.Command{
		Name: "verify", Usage: "verify a signed certificate: its signature, its subject, and that it passed", ArgsUsage: "FILE",
		Description: "FILE is the DSSE envelope of a signed certificate. Exits 0 if one of the keys signed exactly these bytes, they are about\n" +
			"the subject, and the certificate's verdict is pass; 1 if not.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "key", Destination: &keys, Usage: "one of the public keys that may have signed it, by `KEY`: a PEM file, or a service's reference as for harness sign; again for further keys"},
			&cli.StringFlag{Name: "subject", Destination: &subject, Usage: "the image that it must be about, by `DIGEST` (sha256:…)"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usagef("verify wants one FILE, a signed certificate's envelope")
			}
			if len(keys.Value()) == 0 {
				return usagef("verify wants --key KEY, the public key of whom you trust: a signature alone says nothing")
			}
			return verify(c.Context, out, c.Args().First(), keys.Value(), subject)
		},
	}
}

func verify(ctx context.Context, out io.Writer, file string, keyNames []string, digest string) error {
	if digest != "" {
		if err := new(certificate.Statement).SetSubject("subject", digest); err != nil {
			return usagef("--subject: %w", err)
		}
	}
	keys, err := loadKeys(ctx, keyNames)
	if err != nil {
		return err
	}
	b, err := readCertificateFile(file)
	if err != nil {
		return err
	}
	d, err := openVerified(b, keys)
	if err != nil {
		return &statusError{exitFail, fmt.Errorf("%s: %w", file, err)}
	}
	if digest != "" {
		if err := d.statement.Verify(digest); err != nil {
			return &statusError{exitFail, fmt.Errorf("%s: %w", file, err)}
		}
	}
	return printVerified(out, file, d)
}

// printVerified says what verified, and fails for a certificate that is no pass.
func printVerified(out io.Writer, file string, d document) error {
	p := &d.statement.Predicate
	for _, id := range d.signature.Keys {
		fmt.Fprintf(out, "signed   by %s\n", id)
	}
	for _, s := range d.statement.Subject {
		fmt.Fprintf(out, "about    sha256:%s, %q\n", s.Digest["sha256"], s.Name)
	}
	count := certificate.Count(p.Results)
	_, err := fmt.Fprintf(out, "verdict  %s: suite %q, %d passed, %d warned, %d failed, %d skipped, %d could not be carried out\n", p.Verdict, p.Suite,
		count[certificate.Pass], count[certificate.Warn], count[certificate.Fail], count[certificate.Skip], count[certificate.Error])
	if err == nil && p.Verdict != certificate.Pass {
		err = &statusError{exitFail, fmt.Errorf("%s: it is what was signed, but its verdict is %s (harness report shows why)", file, p.Verdict)}
	}
	return err
}
