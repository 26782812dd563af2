package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/registry"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/version"
)

// pushTimeout is the time limit for one certificate, with all attempts.
const pushTimeout = 3 * time.Minute

// pushOptions are the options of commands that can publish certificates.
type pushOptions struct {
	to       string
	insecure bool
	repo     *registry.Repository
}

const pushUsage = "`REPO` in a registry, or to an image in it, REPO@sha256:…; credentials are docker's"

func (o *pushOptions) flags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "push", Destination: &o.to, Usage: "push the certificate to " + pushUsage},
	}, o.registryFlags()...)
}

func (o *pushOptions) registryFlags() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{Name: "insecure", Destination: &o.insecure, Usage: "use plain HTTP to the registry (to localhost it always does)"}}
}

// open opens the repository to push to.
func (o *pushOptions) open() (err error) {
	if o.repo, err = registry.Open(o.to, registryOptions(o.insecure)); err != nil {
		return exit.Usagef("push: %w", err)
	}
	return nil
}

func registryOptions(insecure bool) registry.Options {
	return registry.Options{Insecure: insecure, UserAgent: "assay-harness/" + version.Get().Version}
}

// check reports, before anything runs, whether the registry would accept a push. A
// signal that ends the program also ends the check.
func (o *pushOptions) check() error {
	if o.to == "" {
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	defer stop()
	if err := o.open(); err != nil {
		return err
	}
	return o.within(ctx, o.repo.Check)
}

// push publishes a certificate or its envelope, and returns its reference. The caller
// has called check or open.
func (o *pushOptions) push(ctx context.Context, doc []byte, st *certificate.Statement) (ref string, err error) {
	if o.repo == nil {
		return "", errors.New("there is no registry to push to")
	}
	err = o.within(ctx, func(ctx context.Context) (err error) {
		ref, err = o.repo.Push(ctx, doc, st)
		return err
	})
	return ref, err
}

func (o *pushOptions) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pushTimeout, fmt.Errorf("it was not done within %v", pushTimeout))
	defer cancel()
	err := f(ctx)
	if errors.Is(err, registry.ErrSubject) || errors.Is(err, attest.ErrSubject) {
		return exit.With(exit.Usage, err)
	}
	return err
}

func pushCommand(out io.Writer) *cli.Command {
	var o pushOptions
	return &cli.Command{
		Name: "push", Usage: "publish certificates in a registry", ArgsUsage: "FILE... REPO[@sha256:…]",
		Description: "FILE is a certificate, or the envelope of a signed one. Into REPO@sha256:… it goes as a referrer of that image, which it\n" +
			"must be about; into REPO goes a machine's, under the tag node-NAME-TIME. Prints each one's reference, which harness verify,\n" +
			"report, apply, sign and history take. What is there is not sent again. Credentials are docker's: \"docker login\", or DOCKER_CONFIG.",
		Flags: o.registryFlags(),
		Action: func(c *cli.Context) error {
			args := c.Args().Slice()
			if len(args) < 2 {
				return exit.Usagef("push wants FILE... and REPO or REPO@sha256:…")
			}
			o.to = args[len(args)-1]
			return o.run(c.Context, out, args[:len(args)-1])
		},
	}
}

// run reads all files before it pushes any.
func (o *pushOptions) run(ctx context.Context, out io.Writer, files []string) error {
	if strings.HasSuffix(o.to, ".json") {
		return exit.Usagef("the last argument is the repository, not a file: %q", o.to)
	}
	if err := o.open(); err != nil {
		return err
	}
	type item struct {
		doc []byte
		st  *certificate.Statement
	}
	var items []item
	for _, f := range files {
		b, err := readCertificateFile(f)
		if err != nil {
			return err
		}
		it := item{doc: b}
		if it.st, _, err = certificate.Open(b); err == nil && !attest.IsEnvelope(b) {
			it.doc, err = certificate.Compact(b) // the digest must not depend on the indentation
		}
		if err != nil {
			return exit.Usagef("%s: %w", f, err)
		}
		items = append(items, it)
	}
	for i, it := range items {
		ref, err := o.push(ctx, it.doc, it.st)
		if err != nil {
			return fmt.Errorf("%s: %w", files[i], err)
		}
		if _, err := fmt.Fprintln(out, ref); err != nil {
			return err
		}
	}
	return nil
}
