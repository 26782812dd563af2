// Package slurm takes a node out of Slurm's service when its certificate says
// that it failed, and back when it passes, through scontrol.
//
// It takes back no node but those that it took out itself, which it knows by
// their reason, and leaves a reason that others gave as it is. [Decide] has these
// rules; [Act] carries them out.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/site"
)

// A Context is what starts the harness on a node.
type Context string

// The contexts. In Prolog and Epilog the controller is asked nothing unless
// there is something to do: thousands of nodes may start one job together.
const (
	ByHand Context = "by-hand"
	Prolog Context = "prolog"
	Epilog Context = "epilog"
	Health Context = "health" // HealthCheckProgram
)

// Detect returns the context that Slurm's variables tell. Slurm tells a
// HealthCheckProgram nothing but the node's name.
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

// Options say what may be done.
type Options struct {
	Context Context
	Node    string // as Slurm calls it; "": as SLURMD_NODENAME, the certificate or the host's name say
	Resume  bool   // take back a node that we drained when all is well
	OnError bool   // drain it, too, when checks could not be carried out
}

// Validate reports what contradicts itself.
func (o Options) Validate() error {
	if o.Resume && o.Context == Prolog {
		return errors.New("a node that is drained starts no job, so a prolog cannot take it back: resume in the epilog, the health check or by hand")
	}
	return nil
}

// maxReason is how long a reason may be. Slurm has no limit of its own that is
// near; sinfo -R should fit a screen.
const maxReason = 200

// A Change is what is to be done about a node.
type Change struct {
	State  string // for scontrol: "drain", "undrain"; "": nothing
	Reason string // of a drain
	Note   string // what is to be said
}

// Decide returns what a certificate means for a node.
func Decide(st *certificate.Statement, n Node, o Options) Change {
	ours := strings.HasPrefix(n.Reason, site.Prefix)
	drained := n.Is("DRAIN")
	reason := site.Reason(st, maxReason)
	switch v := st.Predicate.Verdict; {
	case v == result.Pass && !drained:
		return Change{Note: fmt.Sprintf("node %s passed and is in service", n.Name)}
	case v == result.Pass && !ours:
		return Change{Note: fmt.Sprintf("node %s passed and stays drained: the reason is not ours: %q", n.Name, n.Reason)}
	case v == result.Pass && !o.Resume:
		return Change{Note: fmt.Sprintf("node %s passed and stays drained: %q; --slurm-resume takes it back", n.Name, n.Reason)}
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

// kept reports whether the node is out of service for a reason that must not be
// lost: somebody gave it. What slurmctld notes of a node that it lost is no such
// reason, and ends by itself.
func (n Node) kept() bool {
	if n.Reason == "" || strings.HasPrefix(n.Reason, site.Prefix) || !n.Is("DRAIN", "DOWN", "FAIL", "FUTURE") {
		return false
	}
	return n.Is("DRAIN") || !strings.HasPrefix(n.Reason, "Not responding") && !strings.HasPrefix(n.Reason, "Node unexpectedly rebooted")
}

// Args are what scontrol is given for the change.
func (c Change) Args(node string) []string {
	args := []string{"update", "nodename=" + node, "state=" + c.State}
	if c.Reason != "" {
		args = append(args, "reason="+c.Reason)
	}
	return args
}

// Act does what a certificate means for its node and returns what is to be said
// of it. Its error is a [*Denied] if this process has not the right.
func Act(ctx context.Context, s Scontrol, st *certificate.Statement, o Options) (string, error) {
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
	if o.Node == "" && !about(st, n) {
		return "", fmt.Errorf("the certificate is about %s, not about node %s (host %s); --slurm-node %s says that they are one", st.Predicate.Node.Name, n.Name, n.HostName, n.Name)
	}
	c := Decide(st, n, o)
	if c.State == "" {
		return c.Note, nil
	}
	return c.Note, s.update(ctx, c, n.Name)
}

// nodeName is the node's name: as it was given, as slurmd says, as the
// certificate says, this host's.
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

// about reports whether a certificate that names its machine was made on the
// node.
func about(st *certificate.Statement, n Node) bool {
	if st.Predicate.Node == nil {
		return true
	}
	host := short(st.Predicate.Node.Name)
	return strings.EqualFold(host, n.Name) || strings.EqualFold(host, short(n.HostName))
}
