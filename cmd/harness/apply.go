package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
)

func applyCommand(errOut io.Writer) *cli.Command {
	o := siteOptions{stderr: errOut}
	var accept acceptOptions
	var src sourceOptions
	var keys cli.StringSlice
	return &cli.Command{
		Name: "apply", Usage: "drain or mark a node in Slurm or Kubernetes, by its certificate", ArgsUsage: "CERTIFICATE",
		Description: "CERTIFICATE is bare or signed: a file, - for stdin, REPO@sha256:… or REPO:TAG, or oci:DIR[:NAME|@sha256:…].\n" +
			"It must be about this machine, which is the node, or about the machine that --node-identity or --identity-of names; of a\n" +
			"suite that comes with the harness, or one that --suite-allowed names; and not older than --max-age. A pass takes back\n" +
			"only what was done before its checks began.\n" +
			"Exits 0 if the node is as the certificate requires, with any verdict; 1 if the certificate is not accepted;\n" +
			"2 on wrong usage; 3 if Slurm or Kubernetes could not be informed.",
		Flags: slices.Concat(o.flags(), []cli.Flag{
			&cli.StringSliceFlag{Name: "key", Destination: &keys, Usage: "act only on certificates that the public `KEY` signed, as for harness verify; may be repeated"},
		}, accept.flags(defaultMaxAge), src.flags()),
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.Usagef("apply wants one CERTIFICATE, bare or signed; not %s", strings.Join(c.Args().Slice(), " "))
			}
			if !o.named() {
				return exit.Usagef("apply wants --slurm or --kubernetes")
			}
			if err := o.validate(); err != nil {
				return err
			}
			keys, err := loadKeys(c.Context, keys.Value())
			if err != nil {
				return err
			}
			return o.apply(c.Context, c.Args().First(), &accept, &src, keys)
		},
	}
}

// apply acts on a stored certificate.
func (o *siteOptions) apply(ctx context.Context, where string, accept *acceptOptions, src *sourceOptions, keys []crypto.PublicKey) error {
	policy, err := accept.policy(ctx, src, keys)
	if err != nil {
		return err
	}
	if policy.Suites == nil {
		policy.Suites = suitesFor()
	}
	b, err := src.read(ctx, where)
	if err != nil {
		return err
	}
	st, _, err := certificate.Open(b, keys...)
	if err != nil { // before drivers are asked what this machine is
		return notRead(where, keys, err)
	}
	o.s.Vouched, o.k.Vouched = accept.vouched(), accept.vouched()
	if !accept.vouched() {
		id, err := node.AskIdentity(ctx, node.RunChild)
		if err != nil {
			return exit.With(exit.NotDone, fmt.Errorf("%w; --node-identity or --identity-of says which machine the certificate must be about", err))
		}
		policy.Node, o.k.Boot = certificate.NodeDigest(id.Node.Identity), id.Boot
		if n := st.Predicate.Node; n != nil && slices.Contains(id.Others, certificate.NodeDigest(n.Identity)) {
			policy.Node = certificate.NodeDigest(n.Identity) // made by a user who may not read the first
		}
	}
	adm, err := certificate.Admit(b, policy)
	switch {
	case errors.Is(err, attest.ErrSubject) && !accept.vouched():
		return exit.With(exit.Fail, fmt.Errorf("%s: %w, which is this one; of a node elsewhere --node-identity or --identity-of says which machine it is", where, err))
	case errors.Is(err, attest.ErrUse):
		return exit.With(exit.Fail, fmt.Errorf("%s: %w; allowed are suites about machines: %s (--suite-allowed)", where, err, strings.Join(policy.Suites, ", ")))
	case errors.Is(err, attest.ErrTime):
		return exit.With(exit.Fail, fmt.Errorf("%s: %w (--max-age); certify the machine again", where, err))
	case err != nil:
		return exit.With(exit.Fail, fmt.Errorf("%s: %w", where, err))
	}
	if err := o.act(ctx, adm); notAccepted(err) {
		return exit.With(exit.Fail, fmt.Errorf("%s: %w", where, err))
	} else if err != nil {
		return err
	}
	return nil
}
