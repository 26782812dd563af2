package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/exit"
)

func verifyCommand(out io.Writer) *cli.Command {
	var keys cli.StringSlice
	var subject string
	return &cli.Command{
		Name: "verify", Usage: "verify a certificate's signature, subject and verdict", ArgsUsage: "FILE",
		Description: "FILE is the DSSE envelope of a signed certificate. Exits 0 if one of the keys signed exactly these bytes, they are about\n" +
			"the subject, and the certificate's verdict is pass; 1 if not.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "key", Destination: &keys, Usage: "accept signatures by the public `KEY`, a PEM file or a service's reference as for harness sign; may be repeated"},
			&cli.StringFlag{Name: "subject", Destination: &subject, Usage: "require the image `DIGEST` (sha256:…) as the subject"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.Usagef("verify wants one FILE, a signed certificate's envelope")
			}
			if len(keys.Value()) == 0 {
				return exit.Usagef("verify wants --key KEY, a public key that you trust: a signature alone proves nothing")
			}
			return verify(c.Context, out, c.Args().First(), keys.Value(), subject)
		},
	}
}

func verify(ctx context.Context, out io.Writer, file string, keyNames []string, digest string) error {
	if digest != "" {
		if err := new(certificate.Statement).SetSubject("subject", digest); err != nil {
			return exit.Usagef("--subject: %w", err)
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
	st, a, err := certificate.Open(b, keys...)
	if err == nil && digest != "" {
		err = st.About(digest)
	}
	if err != nil {
		return exit.With(exit.Fail, fmt.Errorf("%s: %w", file, err))
	}
	if err := printVerified(out, st, a.KeyIDs); err != nil {
		return err
	}
	policy := attest.Policy{Keys: keys, Kinds: []attest.Kind{certificate.Kind}}
	if _, err := policy.Verify(b, digest, ""); err != nil {
		return exit.With(exit.Fail, fmt.Errorf("%s: it is what was signed, but %w (harness report shows why)", file, err))
	}
	return nil
}

// printVerified prints the keys, the subjects and the verdict of a certificate with a
// verified signature.
func printVerified(out io.Writer, st *certificate.Statement, keyIDs []string) error {
	p := &st.Predicate
	for _, id := range keyIDs {
		fmt.Fprintf(out, "signed   by %s\n", id)
	}
	for _, s := range st.Subject {
		fmt.Fprintf(out, "about    sha256:%s, %q\n", s.Digest["sha256"], s.Name)
	}
	count := result.Count(p.Results)
	_, err := fmt.Fprintf(out, "verdict  %s: suite %q, %d passed, %d warned, %d failed, %d skipped, %d could not be carried out\n", p.Verdict, p.Suite,
		count[result.Pass], count[result.Warn], count[result.Fail], count[result.Skip], count[result.Error])
	return err
}
