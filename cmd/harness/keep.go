package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/dcgm/health"
	"github.com/assay-hpc/assay/harness/keep"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/site"
	"github.com/assay-hpc/assay/harness/site/kubernetes"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
)

type keepOptions struct {
	dir, thresholds, share, hardware    string
	ports                               *int
	observe                             bool
	slots                               kubernetes.Slots
	gpus                                int
	every, maxAge, retry, limit, settle time.Duration
	k                                   kubernetes.Options
	suite                               []string               // flags of certify
	identity                            string                 // digest of this machine's
	made                                *certificate.Statement // by the last certification
	stdout, stderr                      io.Writer
}

func keepCommand(out, errOut io.Writer) *cli.Command {
	o := keepOptions{stdout: out, stderr: errOut}
	return &cli.Command{
		Name: "keep", Usage: "keep this Kubernetes node certified, until it is stopped", ArgsUsage: "[-- CERTIFY-FLAG...]",
		Description: "Certifies the node when it is new, after a boot, a change of driver or GPUs or a reset of one, and when the certificate\n" +
			"is old, but only while no pod has its GPUs, and only some nodes at one time; in between it runs the checks that load\n" +
			"nothing. It marks the node as certify --kubernetes does. While it is certified, its label\n" +
			"assay-hpc.github.io/verdict is pending.\n" +
			"The flags after -- are those of certify, such as --suite quick --sign-key KEY --push REPO.\n" +
			"Exits 0 when it is stopped, 2 on wrong usage, 3 if it cannot begin.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Value: "/var/lib/assay", Destination: &o.dir, Usage: "write certificates, reports and metrics to `DIR`, and those of the checks without load to DIR/health"},
			&cli.IntFlag{Name: "gpus", Destination: &o.gpus, Usage: "the node must have `N` GPUs, 0 if it has none; must be given"},
			&cli.IntFlag{Name: "ports", Usage: "the node must have `N` RDMA ports that are up"},
			&cli.StringFlag{Name: "hardware", Destination: &o.hardware, Usage: "the node must be of the hardware profile `PROFILE`, such as hgx-h200"},
			&cli.StringFlag{Name: "thresholds", Destination: &o.thresholds, Usage: "judge checks without load by the site's limits in `FILE`"},
			&cli.DurationFlag{Name: "every", Value: 5 * time.Minute, Destination: &o.every, Usage: "look at the node every `TIME`"},
			&cli.BoolFlag{Name: "observe", Destination: &o.observe, Usage: "only look: say in the node's condition what is found, load nothing and withdraw nothing"},
			&cli.DurationFlag{Name: "max-age", Value: 7 * 24 * time.Hour, Destination: &o.maxAge, Usage: "certify again a node whose certificate is older than `TIME`, less up to a fifth; a free one from half of it on. One that is not free keeps its verdict up to twice TIME"},
			&cli.StringFlag{Name: "max-withdrawn", Value: "5%", Destination: &o.share, Usage: "certify at most `SHARE` of the nodes at one time, such as 5% or 3; one at least"},
			&cli.DurationFlag{Name: "retry", Value: time.Hour, Destination: &o.retry, Usage: "certify again `TIME` after a certificate that is not a pass"},
			&cli.DurationFlag{Name: "limit", Value: 15 * time.Minute, Destination: &o.limit, Usage: "end a certification after `TIME`"},
			&cli.DurationFlag{Name: "settle", Value: 15 * time.Second, Destination: &o.settle, Usage: "before a certification wait `TIME` for pods that are on their way"},
			&cli.StringFlag{Name: "kubernetes-node", Destination: &o.k.Node, Usage: "`NAME` of the node in Kubernetes (default: NODE_NAME)"},
			&cli.StringFlag{Name: "kubernetes-namespace", EnvVars: []string{"POD_NAMESPACE"}, Destination: &o.slots.Namespace, Usage: "`NAMESPACE` of the Leases with which the keepers of all nodes take turns (default: this pod's)"},
			&cli.StringFlag{Name: "daemonset", Value: "certify", Destination: &o.slots.DaemonSet, Usage: "`NAME` of the DaemonSet of the keepers, whose nodes are counted"},
			&cli.StringFlag{Name: "kubernetes-taint", Destination: &o.k.Taint, Usage: "on a failure taint the node with `EFFECT`: NoSchedule, PreferNoSchedule or NoExecute; on a pass remove the taint"},
		},
		Action: func(c *cli.Context) error {
			if !c.IsSet("gpus") {
				return exit.Usagef("keep needs --gpus N, how many GPUs this node should have: a node that lost its GPUs must not pass (%s)", findGPUs)
			}
			ports := c.Int("ports")
			o.ports = given(c, "ports", &ports)
			o.suite = c.Args().Slice()
			if err := o.check(c.Context); err != nil {
				return err
			}
			return o.run(c.Context)
		},
	}
}

// flags are those of each certification: what keep itself was told, and some more.
func (o *keepOptions) flags(more ...string) []string {
	own := []string{"--gpus", strconv.Itoa(o.gpus)}
	if o.ports != nil {
		own = append(own, "--ports", strconv.Itoa(*o.ports))
	}
	if o.hardware != "" {
		own = append(own, "--hardware", o.hardware)
	}
	if o.thresholds != "" {
		own = append(own, "--thresholds", o.thresholds)
	}
	return append(own, more...)
}

// healthLimit limits the checks that load nothing.
const healthLimit = 2 * time.Minute

// check reports what is wrong with the flags, those of certify among them.
func (o *keepOptions) check(ctx context.Context) error {
	if o.every <= 0 || o.maxAge <= 0 || o.retry < 0 || o.limit <= 0 || o.settle < 0 || o.gpus < 0 {
		return exit.Usagef("keep: --every, --max-age and --limit must be more than 0, --gpus, --retry and --settle not less")
	}
	o.k.Node, o.k.Keep = cmp.Or(o.k.Node, os.Getenv("NODE_NAME")), &o.slots
	if _, err := keep.ParseShare(o.share); err != nil {
		return exit.Usagef("keep: --max-withdrawn: %w", err)
	}
	if err := o.k.Validate(); err != nil {
		return exit.Usagef("keep: %w", err)
	}
	for _, arg := range o.suite {
		switch name, _, _ := strings.Cut(arg, "="); name {
		case "--gpus", "--ports", "--hardware", "--thresholds", "-gpus", "-ports", "-hardware", "-thresholds":
			return exit.Usagef("keep: %s stands before --: it is for the checks without load, too", name)
		}
	}
	return checkCertifyFlags(ctx, "keep", o.flags(o.suite...))
}

// checkCertifyFlags reports what is wrong with flags for certify that another command passes on.
func checkCertifyFlags(ctx context.Context, command string, flags []string) error {
	for _, arg := range flags {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch name {
		case "out", "format", "o", "as", "after", "resume", "list", "show", "kubernetes", "kubernetes-node", "kubernetes-taint":
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
	o.slots.Namespace = cmp.Or(o.slots.Namespace, kubernetes.Namespace())
	cluster, err := kubernetes.Connect()
	if err == nil {
		o.slots.Cluster = cluster
		err = cluster.Check(ctx, o.k)
	}
	if err == nil {
		err = os.MkdirAll(o.dir, 0o755)
	}
	if err != nil {
		return exit.With(exit.NotDone, err)
	}
	share, err := keep.ParseShare(o.share)
	if err != nil {
		return err
	}
	k := keep.Keeper{
		Node: o.k.Node, Dir: o.dir, Suite: o.flags(o.suite...), GPUs: o.gpus, Every: o.every, MaxAge: o.maxAge, Retry: o.retry, Settle: o.settle, Limit: o.limit,
		Share: share, Observe: o.observe, Limits: o.limits,
		Site: keptSite{cluster, o}, Slots: keptSlots{o.slots}, Identify: o.identifyMachine, Now: time.Now, Note: o.note,
		Stored: func() (*certificate.Statement, error) { return storedIn(o.dir) },
		Certify: func(ctx context.Context) (*certificate.Statement, error) {
			flags := o.flags(o.suite...)
			failed, err := cluster.Failed(ctx, o.k)
			if err != nil {
				return nil, err
			}
			if len(failed) > 0 {
				flags = append(flags, "--after", site.Name(failed))
			}
			st, err := o.certify(ctx, o.limit, o.dir, flags...)
			o.made = st
			return st, err
		},
		Health: func(ctx context.Context) (*certificate.Statement, error) {
			return o.certify(ctx, healthLimit, filepath.Join(o.dir, "health"), o.flags("--suite", "health")...)
		},
	}
	k.Run(ctx)
	return nil
}

// limits identifies the site's limits as they are now: the text by which a check would judge.
func (o *keepOptions) limits() (string, error) {
	if o.thresholds == "" {
		return "", nil
	}
	f, err := health.ReadSiteFile(o.thresholds)
	if err != nil {
		return "", fmt.Errorf("--thresholds: %w", err)
	}
	return f.SHA256, nil
}

func (o *keepOptions) note(format string, a ...any) {
	fmt.Fprintf(o.stderr, "harness: "+format+"\n", a...)
}

// identifyMachine reads the machine's state, and remembers which machine it is.
func (o *keepOptions) identifyMachine(ctx context.Context) (keep.Machine, error) {
	id, err := node.AskIdentity(ctx, node.RunChild)
	if err != nil {
		return keep.Machine{}, exit.With(exit.NotDone, err)
	}
	o.identity, o.k.Boot = certificate.NodeDigest(id.Node.Identity), id.Boot
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
	d, err := new(sourceOptions).document(context.Background(), filepath.Join(dir, storedName), nil)
	return d.Statement, err
}

// A keptSite is the Kubernetes node.
type keptSite struct {
	*kubernetes.Cluster
	o *keepOptions
}

func (s keptSite) Act(ctx context.Context, st *certificate.Statement, due string) error {
	doc, err := st.Marshal()
	if err != nil {
		return err
	}
	// How old its certificate may get is the keeper's to decide: a node at work may keep it for longer.
	adm, err := certificate.Admit(doc, attest.Policy{Node: s.o.identity, Suites: suitesFor(s.o.suites()...)})
	if err != nil {
		return err
	}
	k := s.o.k
	k.Fresh = st == s.o.made
	_, err = s.ActDue(ctx, adm, k, due)
	var later *kubernetes.Superseded
	if errors.As(err, &later) { // somebody applied another pass
		return nil
	}
	return err
}

// suites returns the suites that the flags of certify name.
func (o *keepOptions) suites() (names []string) {
	for i, arg := range o.suite {
		name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name != "suite" {
			continue
		}
		if !ok && i+1 < len(o.suite) {
			value = o.suite[i+1]
		}
		names = append(names, value)
	}
	return names
}

func (s keptSite) Withdraw(ctx context.Context, why string) error {
	return s.Cluster.Withdraw(ctx, s.o.k, why)
}

func (s keptSite) Void(ctx context.Context, why string) error {
	return s.Cluster.Void(ctx, s.o.k, why)
}

func (s keptSite) Observe(ctx context.Context, st *certificate.Statement, due string) error {
	return s.Cluster.Observe(ctx, st, s.o.k, due)
}

func (s keptSite) Busy(ctx context.Context) ([]string, error) {
	return s.Cluster.Busy(ctx, s.o.k.Node)
}

// keptSlots are the slots of all keepers.
type keptSlots struct{ kubernetes.Slots }

func (s keptSlots) List(ctx context.Context) (out []keep.Slot, err error) {
	list, err := s.Slots.List(ctx)
	for _, one := range list {
		out = append(out, keep.Slot(one))
	}
	return out, err
}

func (s keptSlots) Write(ctx context.Context, slot keep.Slot) (keep.Slot, error) {
	got, err := s.Slots.Write(ctx, kubernetes.Slot(slot))
	if errors.Is(err, kubernetes.ErrTaken) {
		err = keep.ErrTaken
	}
	return keep.Slot(got), err
}
