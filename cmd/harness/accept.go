package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/registry"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
)

// sourceOptions are the options of commands that read certificates from wherever they are.
type sourceOptions struct {
	insecure bool
	stdin    io.Reader // nil: the process's
}

func (o *sourceOptions) flags() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{Name: "insecure", Destination: &o.insecure, Usage: "use plain HTTP to a registry (to localhost it always does)"}}
}

// read returns the certificate at a place, as stored.
func (o *sourceOptions) read(ctx context.Context, where string) ([]byte, error) {
	in := o.stdin
	if in == nil {
		in = os.Stdin
	}
	d, err := registry.Read(ctx, where, in, registryOptions(o.insecure))
	return d.Data, err
}

// defaultMaxAge is how old a certificate may be that decides about a node.
const defaultMaxAge = 7 * 24 * time.Hour

// acceptOptions say which certificates of machines are accepted.
type acceptOptions struct {
	suites   cli.StringSlice
	maxAge   time.Duration
	identity string // digest
	of       string // a certificate of the machine
}

func (o *acceptOptions) flags(maxAge time.Duration) []cli.Flag {
	age := "accept a certificate that was finished at most `TIME` ago, such as 48h"
	if maxAge == 0 {
		age += " (default: any)"
	}
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "suite-allowed", Destination: &o.suites, Usage: "accept certificates of the suite `NAME`; may be repeated"},
		&cli.DurationFlag{Name: "max-age", Value: maxAge, Destination: &o.maxAge, Usage: age},
		&cli.StringFlag{Name: "node-identity", Destination: &o.identity, Usage: "accept certificates of the machine whose identity has the `DIGEST` sha256:…, the subject of its certificates"},
		&cli.StringFlag{Name: "identity-of", Destination: &o.of, Usage: "accept certificates of the machine that the earlier `CERTIFICATE` is about"},
	}
}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// vouched reports whether the flags say which machine it is.
func (o *acceptOptions) vouched() bool { return o.identity != "" || o.of != "" }

// policy returns what the flags ask for. Keys also apply to the earlier certificate.
func (o *acceptOptions) policy(ctx context.Context, src *sourceOptions, keys []crypto.PublicKey) (attest.Policy, error) {
	p := attest.Policy{Keys: keys, Suites: o.suites.Value(), MaxAge: o.maxAge, Node: o.identity}
	if len(p.Suites) == 0 {
		p.Suites = nil
	}
	switch {
	case o.maxAge < 0:
		return p, exit.Usagef("--max-age %v is less than 0", o.maxAge)
	case o.identity != "" && o.of != "":
		return p, exit.Usagef("--node-identity and --identity-of say the same: give one of them")
	case o.identity != "" && !digestPattern.MatchString(o.identity):
		return p, exit.Usagef("--node-identity %q is not sha256: and 64 hex digits in lower case", o.identity)
	case o.of == "":
		return p, nil
	}
	b, err := src.read(ctx, o.of)
	if err != nil {
		return p, fmt.Errorf("--identity-of: %w", err)
	}
	st, _, err := certificate.Open(b, keys...)
	switch {
	case err != nil && len(keys) > 0:
		return p, exit.With(exit.Fail, fmt.Errorf("--identity-of %s: %w", o.of, err))
	case err != nil:
		return p, exit.Usagef("--identity-of %s: %w", o.of, err)
	case st.Predicate.Node == nil:
		return p, exit.Usagef("--identity-of %s: it is not about a machine", o.of)
	}
	p.Node = certificate.NodeDigest(st.Predicate.Node.Identity)
	return p, nil
}

// suitesFor returns the suites whose certificates decide about nodes: those that come with the
// harness, and the given ones, which may be files.
func suitesFor(more ...string) []string {
	suites := node.Names()
	for _, name := range more {
		if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
			name = suite.FileSuite(name)
		}
		suites = append(suites, name)
	}
	return suites
}

// notAccepted reports whether an error is a policy's, and not of something that could not be read
// or told.
func notAccepted(err error) bool {
	for _, kind := range []error{attest.ErrSignature, attest.ErrSubject, attest.ErrUse, attest.ErrTime} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
