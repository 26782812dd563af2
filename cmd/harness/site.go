package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/site/inform"
	"github.com/assay-hpc/assay/harness/site/kubernetes"
	"github.com/assay-hpc/assay/harness/site/slurm"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// siteOptions say which systems (Slurm, Kubernetes) are told what a certificate means for
// its node.
type siteOptions struct {
	slurm      slurmContext
	s          slurm.Options
	kubernetes bool
	k          kubernetes.Options
	stderr     io.Writer
}

// slurmContext is the value of --slurm. It is optional: without it the environment
// determines the context.
type slurmContext string

var slurmContexts = []slurm.Context{slurm.Prolog, slurm.Epilog, slurm.Health, slurm.ByHand}

func (c *slurmContext) String() string   { return string(*c) }
func (c *slurmContext) IsBoolFlag() bool { return true }

func (c *slurmContext) Set(s string) error {
	switch {
	case s == "true":
		*c = "auto"
	case s == "false":
		*c = ""
	case slices.Contains(slurmContexts, slurm.Context(s)):
		*c = slurmContext(s)
	default:
		return fmt.Errorf("it is prolog, epilog, health or by-hand, or alone: as Slurm's environment says")
	}
	return nil
}

func (o *siteOptions) flags() []cli.Flag {
	return []cli.Flag{
		&cli.GenericFlag{Name: "slurm", Value: &o.slurm, Usage: "drain this node in Slurm if the verdict is fail; --slurm=`CONTEXT` is prolog, epilog, health or by-hand, where the environment does not say it"},
		&cli.StringFlag{Name: "slurm-node", Destination: &o.s.Node, Usage: "`NAME` of the node in Slurm (default: SLURMD_NODENAME, the certificate's node, this host)"},
		&cli.BoolFlag{Name: "slurm-resume", Destination: &o.s.Resume, Usage: "on a pass resume the node, if assay drained it"},
		&cli.BoolFlag{Name: "slurm-on-error", Destination: &o.s.OnError, Usage: "also drain the node when checks could not run"},
		&cli.BoolFlag{Name: "kubernetes", Destination: &o.kubernetes, Usage: "set a condition, a label and an annotation of this node in Kubernetes"},
		&cli.StringFlag{Name: "kubernetes-node", Destination: &o.k.Node, Usage: "`NAME` of the node in Kubernetes (default: NODE_NAME)"},
		&cli.StringFlag{Name: "kubernetes-taint", Destination: &o.k.Taint, Usage: "on a failure taint the node with `EFFECT`: NoSchedule, PreferNoSchedule or NoExecute; on a pass remove the taint"},
	}
}

// named reports whether the flags name a system to inform.
func (o *siteOptions) named() bool { return o.slurm != "" || o.kubernetes }

// validate reports what is wrong with the flags, and completes them.
func (o *siteOptions) validate() error {
	switch {
	case o.slurm == "" && (o.s != slurm.Options{}):
		return exit.Usagef("--slurm-node, --slurm-resume and --slurm-on-error go with --slurm")
	case !o.kubernetes && (o.k != kubernetes.Options{}):
		return exit.Usagef("--kubernetes-node and --kubernetes-taint go with --kubernetes")
	}
	if o.slurm != "" {
		found, err := slurm.Detect(os.Getenv)
		if err == nil {
			o.s.Context = found
			if o.slurm != "auto" {
				o.s.Context = slurm.Context(o.slurm)
			}
			err = o.s.Validate()
		}
		if err != nil {
			return exit.Usagef("--slurm: %w", err)
		}
	}
	if o.kubernetes {
		if o.k.Node == "" {
			o.k.Node = os.Getenv("NODE_NAME")
		}
		if err := o.k.Validate(); err != nil {
			return exit.Usagef("--kubernetes: %w", err)
		}
	}
	return nil
}

// findGPUs is how a user finds out how many GPUs a node has.
const findGPUs = "on a node that is well, harness show platform lists them and nvidia-smi -L | wc -l counts them; a node without GPUs has 0"

// needGPUs refuses to tell a site of a node whose number of GPUs was not stated: one that lost all
// of them skips the checks of GPUs, passes, and would be put back.
func (o *siteOptions) needGPUs(gpus *int) error {
	if o.named() && gpus == nil {
		return exit.Usagef("--slurm and --kubernetes need --gpus N, how many GPUs this node should have: a node that lost its GPUs must not pass (%s)", findGPUs)
	}
	return nil
}

// options returns what the flags say, once validate has completed them.
func (o *siteOptions) options() (t inform.Options) {
	if o.slurm != "" {
		t.Slurm = &o.s
	}
	if o.kubernetes {
		t.Kubernetes = &o.k
	}
	return t
}

// check reports, before any check of a suite runs, what is missing for informing the site.
func (o *siteOptions) check(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := o.options().Check(ctx); err != nil {
		return exit.With(exit.NotDone, fmt.Errorf("%w\n(harness apply acts later on a certificate that is made without these flags)", err))
	}
	return nil
}

// act informs the site of what the certificate means, and prints what was done.
func (o *siteOptions) act(ctx context.Context, adm *certificate.Admitted) error {
	return o.options().Act(ctx, adm, func(whom, note string) { fmt.Fprintf(o.stderr, "%s: %s\n", whom, note) })
}

// actOn is act for the certificate that this process made of this machine, by a suite.
func (o *siteOptions) actOn(ctx context.Context, st *certificate.Statement) error {
	if !o.named() {
		return nil
	}
	doc, err := st.Marshal()
	if err != nil {
		return err
	}
	policy := attest.Policy{Suites: suitesFor(st.Predicate.Suite), MaxAge: defaultMaxAge}
	if n := st.Predicate.Node; n != nil {
		policy.Node = certificate.NodeDigest(n.Identity)
	}
	adm, err := certificate.Admit(doc, policy)
	if err != nil {
		return err
	}
	o.k.Boot = bootID()
	return o.act(ctx, adm)
}

// bootID returns the id of this machine's boot; "" if it is not known.
func bootID() string {
	fs, err := sysfs.Open("/")
	if err != nil {
		return ""
	}
	h, err := fs.Host()
	if err != nil {
		return ""
	}
	return h.BootID
}

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
		id, err := identify(ctx)
		if err != nil {
			return fmt.Errorf("%w; --node-identity or --identity-of says which machine the certificate must be about", err)
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
