// Package slurm drains a node in Slurm, through scontrol, when its certificate says that it
// failed, and takes it back into service when it passes.
//
// It only takes back nodes that it drained itself, which it recognises by their reason, and by a
// certificate that measured what the reason names, harder than usual. It does not change a reason that
// others gave. [Decide] implements these rules; [Act] applies them.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/site"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// A Context is what started the harness on a node.
type Context string

// The contexts. In Prolog and Epilog the controller is not queried unless there is something to
// do: thousands of nodes may start one job at the same time.
const (
	ByHand Context = "by-hand"
	Prolog Context = "prolog"
	Epilog Context = "epilog"
	Health Context = "health" // HealthCheckProgram
)

// Detect returns the context according to Slurm's variables. It cannot detect Health: Slurm
// passes only the node's name to a HealthCheckProgram.
func Detect(getenv func(string) string) (Context, error) {
	switch s := getenv("SLURM_SCRIPT_CONTEXT"); s {
	case "":
		return ByHand, nil
	case "prolog_slurmd":
		return Prolog, nil
	case "epilog_slurmd":
		return Epilog, nil
	default:
		return "", fmt.Errorf("SLURM_SCRIPT_CONTEXT is %s: nodes are certified in Prolog and Epilog, which run as root on the node", s)
	}
}

// Options say what is allowed.
type Options struct {
	Context Context
	Node    string // Slurm's name; "": from SLURMD_NODENAME, the certificate or the host name
	Resume  bool   // take back a node that we drained when it passes
	OnError bool   // also drain it when checks could not be run
	// Vouched says that somebody said which machine the node is, so that this need not be the node.
	Vouched bool
}

// Validate reports contradictory options.
func (o Options) Validate() error {
	if o.Resume && o.Context == Prolog {
		return errors.New("a node that is drained starts no job, so a prolog cannot take it back: resume in the epilog, the health check or by hand")
	}
	return nil
}

// maxReason is the maximum length of a reason, but for the names of further checks at its end. Slurm's
// own limit is far larger; sinfo -R should fit on a screen.
const maxReason = 200

// A Change is a change of a node's state.
type Change struct {
	State  string // for scontrol: "drain", "undrain"; "": nothing
	Reason string // of a drain
	Note   string // a message for the user
}

// Decide returns the change that a certificate requires. A pass takes a node back only if it answers
// the checks by which the node failed ([site.Unanswered]), and its checks began after the node was
// drained: the error wraps [attest.ErrTime] if they did not.
func Decide(adm *certificate.Admitted, n Node, o Options) (Change, error) {
	c := decide(adm.Statement(), n, o)
	if c.State != "undrain" {
		return c, nil
	}
	if n.Since.IsZero() {
		return c, fmt.Errorf("%w: node %s stays drained: Slurm does not say since when; to take it back by hand: scontrol update nodename=%s state=undrain", attest.ErrTime, n.Name, n.Name)
	}
	drained := n.Since.Add(time.Second) // Slurm says the second in which it was
	if err := adm.Supersedes("the drain of node "+n.Name, drained); err != nil {
		return c, fmt.Errorf("node %s stays drained: %q: %w; certify it again", n.Name, n.Reason, err)
	}
	return c, nil
}

func decide(st *certificate.Statement, n Node, o Options) Change {
	ours := strings.HasPrefix(n.Reason, site.Prefix)
	drained := n.Is("DRAIN")
	failed, others := n.failed()
	reason := site.Mark(st, maxReason, site.Earlier(st, failed))
	switch v := st.Predicate.Verdict; {
	case v == result.Pass && !drained:
		return Change{Note: fmt.Sprintf("node %s passed and is in service", n.Name)}
	case v == result.Pass && !ours:
		return Change{Note: fmt.Sprintf("node %s passed and stays drained: the reason is not ours: %q", n.Name, n.Reason)}
	case v == result.Pass && !o.Resume:
		return Change{Note: fmt.Sprintf("node %s passed and stays drained: %q; --slurm-resume takes it back", n.Name, n.Reason)}
	case v == result.Pass && len(site.Unanswered(st, failed)) > 0:
		return Change{Note: fmt.Sprintf("node %s passed and stays drained: it failed by %s, which this certificate did not measure harder than usual; certify --after REASON does: %q",
			n.Name, strings.Join(site.Unanswered(st, failed), ", "), n.Reason)}
	case v == result.Pass && others && st.Predicate.Selected != nil:
		return Change{Note: fmt.Sprintf("node %s passed and stays drained: its reason does not name all checks that failed, and this certificate left some out (%s): %q", n.Name, st.Predicate.Selected, n.Reason)}
	case v == result.Pass:
		return Change{State: "undrain", Note: fmt.Sprintf("node %s passed and is taken back; it was drained: %q", n.Name, n.Reason)}
	case v != result.Fail && !o.OnError:
		return Change{Note: fmt.Sprintf("node %s is left as it is: %s", n.Name, strings.TrimPrefix(reason, site.Prefix))}
	case n.kept():
		return Change{Note: fmt.Sprintf("node %s did not pass and is out of service already, with a reason that is not ours: %q", n.Name, n.Reason)}
	case drained && n.Reason == reason:
		return Change{Note: fmt.Sprintf("node %s is drained already: %q", n.Name, reason)}
	}
	return Change{State: "drain", Reason: reason, Note: fmt.Sprintf("node %s is drained: %q", n.Name, reason)}
}

// kept reports whether the node is out of service for a reason that must not be lost, because a
// user gave it, or drained it in slurm.conf, without a reason. slurmctld's reason for a node that it
// lost is not one of these, and ends by itself.
func (n Node) kept() bool {
	if n.Reason == "" {
		return n.Is("DRAIN")
	}
	if strings.HasPrefix(n.Reason, site.Prefix) || !n.Is("DRAIN", "DOWN", "FAIL", "FUTURE") {
		return false
	}
	return n.Is("DRAIN") || !strings.HasPrefix(n.Reason, "Not responding") && !strings.HasPrefix(n.Reason, "Node unexpectedly rebooted")
}

// failed returns the checks by which a node that assay drained failed, and whether there are others
// that are not known.
func (n Node) failed() (checks []string, others bool) {
	if !n.Is("DRAIN") {
		return nil, false
	}
	return site.Read(n.Reason)
}

// Failed returns the checks by which the node failed, if assay drained it and the options allow to
// take it back.
func Failed(ctx context.Context, s Scontrol, o Options) ([]string, error) {
	if !o.Resume {
		return nil, nil
	}
	name, err := nodeName(o.Node, new(certificate.Statement))
	if err != nil {
		return nil, err
	}
	n, err := s.Node(ctx, name)
	if err != nil {
		return nil, err
	}
	checks, _ := n.failed()
	return checks, nil
}

// Args are scontrol's arguments for the change.
func (c Change) Args(node string) []string {
	args := []string{"update", "nodename=" + node, "state=" + c.State}
	if c.Reason != "" {
		args = append(args, "reason="+c.Reason)
	}
	return args
}

// Act applies the certificate to its node and returns a message for the user. Its error is a
// [*Denied] if this process lacks the right.
func Act(ctx context.Context, s Scontrol, adm *certificate.Admitted, o Options) (string, error) {
	st := adm.Statement()
	if err := o.Validate(); err != nil {
		return "", err
	}
	quiet := o.Context == Prolog || o.Context == Epilog
	switch v := st.Predicate.Verdict; {
	case quiet && v == result.Pass && !o.Resume:
		return "", nil
	case quiet && v != result.Pass && v != result.Fail && !o.OnError:
		return "the node is left as it is: " + strings.TrimPrefix(site.Reason(st, maxReason), site.Prefix), nil
	}
	name, err := nodeName(o.Node, st)
	if err != nil {
		return "", err
	}
	n, err := s.Node(ctx, name)
	if err != nil {
		return "", err
	}
	switch {
	case !o.Vouched && !isThisNode(n):
		return "", fmt.Errorf("%w: node %s (host %s) is not this machine; run this there, or say with --node-identity or --identity-of which machine that node is", attest.ErrSubject, n.Name, n.HostName)
	case o.Vouched && o.Node == "" && !about(st, n):
		return "", fmt.Errorf("%w: the certificate is about %s, not about node %s (host %s); --slurm-node %s says that they are one", attest.ErrSubject, st.Predicate.Node.Name, n.Name, n.HostName, n.Name)
	}
	c, err := Decide(adm, n, o)
	if err != nil {
		return "", err
	}
	if c.State == "" {
		return c.Note, nil
	}
	return c.Note, s.update(ctx, c, n.Name)
}

// nodeName returns the node's name: the given one, or else slurmd's, the certificate's, or this
// host's.
func nodeName(given string, st *certificate.Statement) (string, error) {
	for _, name := range []string{given, os.Getenv("SLURMD_NODENAME")} {
		if name != "" {
			return name, nil
		}
	}
	if st.Predicate.Node != nil {
		return short(st.Predicate.Node.Name), nil
	}
	host, err := os.Hostname()
	return short(host), err
}

func short(host string) string {
	host, _, _ = strings.Cut(host, ".")
	return host
}

// about reports whether the certificate's machine has the node's name.
func about(st *certificate.Statement, n Node) bool { return n.called(st.Predicate.Node.Name) }

// isThisNode reports whether the node is this machine: slurmd said so, or the host has its name.
func isThisNode(n Node) bool {
	if name := os.Getenv("SLURMD_NODENAME"); name != "" {
		return name == n.Name
	}
	host, err := os.Hostname()
	return err == nil && n.called(host) || n.HostName == "localhost" // a cluster of one host
}

// called reports whether a host of that name is the node.
func (n Node) called(host string) bool {
	host = short(host)
	return strings.EqualFold(host, n.Name) || n.HostName != "" && strings.EqualFold(host, short(n.HostName))
}
