package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
)

type verifyOptions struct {
	keys                    cli.StringSlice
	subject, target, recipe string
	accept                  acceptOptions
	src                     sourceOptions
}

func verifyCommand(out io.Writer) *cli.Command {
	var o verifyOptions
	return &cli.Command{
		Name: "verify", Usage: "verify a certificate's signature, subject and verdict", ArgsUsage: "CERTIFICATE",
		Description: "CERTIFICATE is the DSSE envelope of a signed one: a file, - for stdin, REPO@sha256:… or REPO:TAG, or\n" +
			"oci:DIR[:NAME|@sha256:…]. Exits 0 if one of the keys signed exactly these bytes, they are about what the flags name, were\n" +
			"not made in the future, and the certificate's verdict is pass; 1 if not. Name what it is to be about: a key signs\n" +
			"certificates of many images and machines.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringSliceFlag{Name: "key", Destination: &o.keys, Usage: "accept signatures by the public `KEY`, a PEM file or a service's reference as for harness sign; may be repeated"},
			&cli.StringFlag{Name: "subject", Destination: &o.subject, Usage: "require the image or machine with the `DIGEST` (sha256:…) as the subject"},
			&cli.StringFlag{Name: "target", Destination: &o.target, Usage: "require the image's `TARGET`"},
			&cli.StringFlag{Name: "recipe", Destination: &o.recipe, Usage: "require a recipe whose hash begins with `HEX`, as a tag ends"},
		}, o.accept.flags(0), o.src.flags()),
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.Usagef("verify wants one CERTIFICATE, a signed one's envelope")
			}
			if len(o.keys.Value()) == 0 {
				return exit.Usagef("verify wants --key KEY, a public key that you trust: a signature alone proves nothing")
			}
			return o.run(c.Context, out, c.Args().First())
		},
	}
}

func (o *verifyOptions) run(ctx context.Context, out io.Writer, where string) error {
	if o.subject != "" {
		if err := new(certificate.Statement).SetSubject("subject", o.subject); err != nil {
			return exit.Usagef("--subject: %w", err)
		}
	}
	keys, err := loadKeys(ctx, o.keys.Value())
	if err != nil {
		return err
	}
	policy, err := o.accept.policy(ctx, &o.src, keys)
	if err != nil {
		return err
	}
	policy.Use, policy.Target, policy.Recipe = attest.Passing, o.target, o.recipe
	b, err := o.src.read(ctx, where)
	if err != nil {
		return err
	}
	st, a, err := certificate.Accept(b, o.subject, policy)
	if err != nil && (st == nil || errors.Is(err, attest.ErrSubject)) {
		return exit.With(exit.Fail, fmt.Errorf("%s: %w", where, err))
	}
	if err := printVerified(out, st, a.KeyIDs); err != nil {
		return err
	}
	if err != nil {
		return exit.With(exit.Fail, fmt.Errorf("%s: it is what was signed, but %w (harness report shows it)", where, err))
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
	_, err := fmt.Fprintf(out, "verdict  %s: suite %q, %d passed, %d warned, %d failed, %d skipped, %d could not run\n", p.Verdict, p.Suite,
		count[result.Pass], count[result.Warn], count[result.Fail], count[result.Skip], count[result.Error])
	return err
}
