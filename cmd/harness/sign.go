package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os/signal"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/sign"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/words"
)

// keyUsage says how keys are named.
const keyUsage = "`KEY`: a PEM file, or a service's reference: hashivault://NAME, or what a program sigstore-kms-SCHEME on PATH serves, awskms://…"

// signOptions are the options of commands that can sign certificates.
type signOptions struct {
	key    string
	signer crypto.Signer // opened by check
}

func (o *signOptions) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "sign-key", Destination: &o.key, Usage: "sign the certificate (DSSE) with " + keyUsage},
	}
}

// check reports, before anything runs, whether the key can be read and signs. A signal
// that ends the program also ends the check.
func (o *signOptions) check() error {
	if o.key == "" {
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	defer stop()
	signer, err := sign.Open(ctx, o.key)
	if err == nil {
		err = sign.Check(signer)
	}
	if err != nil {
		return keyError(ctx, "the signing key", o.key, err)
	}
	o.signer = signer
	return nil
}

// sign returns a certificate in a signed envelope; it needs check to have passed.
func (o *signOptions) sign(ctx context.Context, doc []byte) (envelope []byte, err error) {
	if o.signer == nil {
		return nil, errors.New("there is no key to sign with")
	}
	if envelope, err = attest.Sign(attest.TypeStatement, doc, sign.With(ctx, o.signer)); err != nil {
		return nil, keyError(ctx, "the signing key", o.key, err)
	}
	return envelope, nil
}

// keyError gives an error its exit status. A file without a key is bad input; if a
// service does not answer, the command could not run.
func keyError(ctx context.Context, what, key string, err error) error {
	if ctx.Err() == nil && !sign.IsReference(key) {
		return exit.Usagef("%s: %w", what, err)
	}
	return exit.With(exit.NotDone, fmt.Errorf("%s: %w", what, err))
}

// loadKeys returns the public keys of files and references.
func loadKeys(ctx context.Context, named []string) (keys []crypto.PublicKey, err error) {
	for _, key := range named {
		k, err := sign.Public(ctx, key)
		if err != nil {
			return nil, keyError(ctx, "--key", key, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func signCommand(out io.Writer) *cli.Command {
	var o signOptions
	var to string
	var src sourceOptions
	return &cli.Command{
		Name: "sign", Usage: "sign a certificate", ArgsUsage: "CERTIFICATE",
		Description: "CERTIFICATE is a file, - for stdin, REPO@sha256:… or REPO:TAG, or oci:DIR[:NAME|@sha256:…]. What is written is its\n" +
			"DSSE envelope, which harness verify, report, apply, push and history read. The certificate's verdict does not matter: a signature says who made it.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "key", Destination: &o.key, Usage: "sign with " + keyUsage},
			&cli.StringFlag{Name: "out", Destination: &to, Usage: "write the envelope to `FILE` (default: stdout)"},
		}, src.flags()...),
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 || o.key == "" {
				return exit.Usagef("sign wants one CERTIFICATE, and --key KEY")
			}
			return o.run(c.Context, c.Args().First(), &src, to, out)
		},
	}
}

func (o *signOptions) run(ctx context.Context, file string, src *sourceOptions, to string, out io.Writer) error {
	b, err := src.read(ctx, file)
	if err != nil {
		return err
	}
	if attest.IsEnvelope(b) {
		return exit.Usagef("%s: it is signed already", file)
	}
	if _, err := certificate.Parse(b); err != nil {
		return exit.Usagef("%s: %w", file, err)
	}
	doc, err := certificate.Compact(b)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	envelope, err := o.sign(ctx, doc)
	if err != nil {
		return err
	}
	if to == "" {
		_, err = words.Raw(out).Write(envelope)
		return err
	}
	return outfile.Write(to, envelope)
}
