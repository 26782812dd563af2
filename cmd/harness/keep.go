package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/keep"
	"github.com/assay-hpc/assay/harness/machine"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/site/kubernetes"
	"github.com/assay-hpc/assay/internal/exit"
)

type keepOptions struct {
	dir                                 string
	gpus                                int
	every, maxAge, retry, limit, settle time.Duration
	k                                   kubernetes.Options
	suite                               []string // flags of certify
	stdout, stderr                      io.Writer
}

func keepCommand(out, errOut io.Writer) *cli.Command {
	o := keepOptions{stdout: out, stderr: errOut}
	return &cli.Command{
		Name: "keep", Usage: "keep this Kubernetes node certified, until it is stopped", ArgsUsage: "[-- CERTIFY-FLAG...]",
		Description: "Certifies the node when it is new, after a boot, a change of driver or GPUs or a reset of one, and when the certificate\n" +
			"is old, but only while no pod has its GPUs; in between it runs the checks that load nothing. It marks the node as\n" +
			"certify --kubernetes does. While a node waits, its label assay-hpc.github.io/verdict is pending.\n" +
			"The flags after -- are those of certify, such as --suite quick --sign-key KEY --push REPO.\n" +
			"Exits 0 when it is stopped, 2 on wrong usage, 3 if it cannot begin.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Value: "/var/lib/assay", Destination: &o.dir, Usage: "write certificates, reports and metrics to `DIR`, and those of the checks without load to DIR/health"},
			&cli.IntFlag{Name: "gpus", Value: 1, Destination: &o.gpus, Usage: "the node must show at least `N` GPUs"},
			&cli.DurationFlag{Name: "every", Value: 5 * time.Minute, Destination: &o.every, Usage: "look at the node every `TIME`"},
			&cli.DurationFlag{Name: "max-age", Value: 7 * 24 * time.Hour, Destination: &o.maxAge, Usage: "a certificate older than `TIME` is not valid; from half of it on the node is certified again when it is free"},
			&cli.DurationFlag{Name: "retry", Value: time.Hour, Destination: &o.retry, Usage: "certify again `TIME` after a certificate that is not a pass"},
			&cli.DurationFlag{Name: "limit", Value: 15 * time.Minute, Destination: &o.limit, Usage: "end a certification after `TIME`"},
			&cli.DurationFlag{Name: "settle", Value: 15 * time.Second, Destination: &o.settle, Usage: "before a certification wait `TIME` for pods that are on their way"},
			&cli.StringFlag{Name: "kubernetes-node", Destination: &o.k.Node, Usage: "`NAME` of the node in Kubernetes (default: NODE_NAME)"},
			&cli.StringFlag{Name: "kubernetes-taint", Destination: &o.k.Taint, Usage: "on a failure taint the node with `EFFECT`: NoSchedule, PreferNoSchedule or NoExecute; on a pass remove the taint"},
		},
		Action: func(c *cli.Context) error {
			o.suite = c.Args().Slice()
			if err := o.check(c.Context); err != nil {
				return err
			}
			return o.run(c.Context)
		},
	}
}

// healthLimit limits the checks that load nothing.
const healthLimit = 2 * time.Minute

// check reports what is wrong with the flags, those of certify among them.
func (o *keepOptions) check(ctx context.Context) error {
	if o.every <= 0 || o.maxAge <= 0 || o.retry < 0 || o.limit <= 0 || o.settle < 0 || o.gpus < 0 {
		return exit.Usagef("keep: --every, --max-age and --limit must be more than 0, --gpus, --retry and --settle not less")
	}
	o.k.Node, o.k.Pods = cmp.Or(o.k.Node, os.Getenv("NODE_NAME")), true
	if err := o.k.Validate(); err != nil {
		return exit.Usagef("keep: %w", err)
	}
	return checkCertifyFlags(ctx, "keep", o.suite)
}

// checkCertifyFlags reports what is wrong with flags for certify that another command passes on.
func checkCertifyFlags(ctx context.Context, command string, flags []string) error {
	for _, arg := range flags {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch name {
		case "out", "format", "o", "resume", "list", "show", "kubernetes", "kubernetes-node", "kubernetes-taint":
			return exit.Usagef("%s: --%s after -- is for %s to say; leave it out", command, name, command)
		}
	}
	out, err := node.RunChild(ctx, append([]string{"certify", "--list"}, flags...)...)
	switch {
	case err != nil:
		return err
	case out.Status != 0:
		return exit.With(out.Status, fmt.Errorf("%s: certify %s: %s", command, strings.Join(flags, " "), strings.TrimSpace(out.Stderr)))
	}
	return nil
}

func (o *keepOptions) run(ctx context.Context) error {
	cluster, err := kubernetes.Connect()
	if err == nil {
		err = cluster.Check(ctx, o.k)
	}
	if err == nil {
		err = os.MkdirAll(o.dir, 0o755)
	}
	if err != nil {
		return exit.With(exit.NotDone, err)
	}
	k := keep.Keeper{
		Dir: o.dir, Suite: o.suite, GPUs: o.gpus, Every: o.every, MaxAge: o.maxAge, Retry: o.retry, Settle: o.settle,
		Site: keptSite{cluster, o}, Identify: identifyMachine, Now: time.Now, Note: o.note,
		Stored: func() (*certificate.Statement, error) { return storedIn(o.dir) },
		Certify: func(ctx context.Context) (*certificate.Statement, error) {
			return o.certify(ctx, o.limit, o.dir, o.suite...)
		},
		Health: func(ctx context.Context) (*certificate.Statement, error) {
			return o.certify(ctx, healthLimit, filepath.Join(o.dir, "health"), "--suite", "health")
		},
	}
	k.Run(ctx)
	return nil
}

func (o *keepOptions) note(format string, a ...any) {
	fmt.Fprintf(o.stderr, "harness: "+format+"\n", a...)
}

// identifyMachine reads the machine's state in a child process, so that this process does not
// keep the GPUs from being reset.
func identifyMachine(ctx context.Context) (keep.Machine, error) {
	ctx, stop := context.WithTimeoutCause(ctx, healthLimit, fmt.Errorf("no answer within %v", healthLimit))
	defer stop()
	out, err := node.RunChild(ctx, "identify")
	if err == nil && out.Status != 0 {
		err = fmt.Errorf("status %d: %s", out.Status, strings.TrimSpace(out.Stderr))
	}
	var id machine.Identity
	if err == nil {
		err = json.Unmarshal(out.Stdout, &id)
	}
	if err != nil {
		return keep.Machine{}, fmt.Errorf("asking what this machine is: %w", err)
	}
	m := keep.Machine{Boot: id.Boot, Driver: id.Node.Driver, GPUs: map[string]string{}, Energy: id.Energy}
	for _, g := range id.Node.GPUs {
		m.GPUs[cmp.Or(g.UUID, fmt.Sprintf("GPU %d", g.Index))] = g.Bus + " VBIOS " + g.VBIOS
	}
	return m, nil
}

// certify runs certify in a child process, and returns the certificate that it wrote.
func (o *keepOptions) certify(ctx context.Context, limit time.Duration, dir string, flags ...string) (*certificate.Statement, error) {
	st, out, err := certifyChild(ctx, limit, dir, flags...)
	if err != nil {
		return nil, err
	}
	if dir == o.dir || out.Status != exit.Pass {
		fmt.Fprintf(o.stdout, "%s", out.Stdout)
	}
	if out.Status == exit.NotDone && out.Stderr != "" {
		o.note("%s", strings.TrimSpace(out.Stderr)) // it was not pushed
	}
	return st, nil
}

// certifyChild runs certify in a child process, and returns the certificate that it wrote to a
// directory, and its output.
func certifyChild(ctx context.Context, limit time.Duration, dir string, flags ...string) (*certificate.Statement, node.Output, error) {
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("certify did not end within %v", limit))
	defer stop()
	earlier := storedBytes(dir)
	out, err := node.RunChild(ctx, append([]string{"certify", "--out", dir + "/"}, flags...)...)
	if err != nil {
		return nil, out, err
	}
	st, err := storedIn(dir)
	if err != nil || bytes.Equal(earlier, storedBytes(dir)) { // not by its time: the clock may have been set
		return nil, out, fmt.Errorf("certify made no certificate: status %d: %s", out.Status, strings.TrimSpace(out.Stderr))
	}
	return st, out, nil
}

// storedBytes returns the certificate of a directory as it is, nil if there is none.
func storedBytes(dir string) []byte {
	b, _ := certificate.ReadFile(filepath.Join(dir, storedName))
	return b
}

const storedName = "certificate.json"

func storedIn(dir string) (*certificate.Statement, error) {
	d, err := readDocument(filepath.Join(dir, storedName), nil)
	return d.Statement, err
}

// A keptSite is the Kubernetes node.
type keptSite struct {
	*kubernetes.Cluster
	o *keepOptions
}

func (s keptSite) Act(ctx context.Context, st *certificate.Statement) error {
	_, err := s.Cluster.Act(ctx, st, s.o.k)
	return err
}

func (s keptSite) Withdraw(ctx context.Context, why string) error {
	return s.Cluster.Withdraw(ctx, s.o.k, why)
}

func (s keptSite) Busy(ctx context.Context) ([]string, error) {
	return s.Cluster.Busy(ctx, s.o.k.Node)
}
