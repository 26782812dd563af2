package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

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

// failed returns the checks by which this node failed, as far as the site knows. Without them it can be
// certified, and only not taken back.
func (o *siteOptions) failed(ctx context.Context) []string {
	checks, err := o.options().Failed(ctx)
	if err != nil {
		fmt.Fprintf(o.stderr, "harness: by which checks this node failed before is not known: %v\n", err)
	}
	return checks
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
