package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scontrol is the path of the program.
type Scontrol string

// places are the directories that are searched for scontrol after PATH: slurmd starts scripts
// without a PATH.
var places = []string{"/usr/bin", "/usr/local/bin", "/usr/sbin", "/opt/slurm/bin", "/usr/local/slurm/bin"}

// Find looks scontrol up in PATH and places.
func Find() (Scontrol, error) {
	if file, err := exec.LookPath("scontrol"); err == nil {
		return Scontrol(file), nil
	}
	for _, dir := range places {
		if file, err := exec.LookPath(dir + "/scontrol"); err == nil {
			return Scontrol(file), nil
		}
	}
	return "", fmt.Errorf("there is no scontrol in PATH or %s: install Slurm's client programs, in a container mount them with their configuration and munge's socket", strings.Join(places, ", "))
}

// limit is the timeout of scontrol. scontrol itself gives up on the controller after some ten
// seconds; a HealthCheckProgram has 60 for everything.
const limit = 20 * time.Second

// run returns scontrol's output. Its error contains scontrol's messages.
func (s Scontrol) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, string(s), args...)
	cmd.Env = append(os.Environ(), "TZ=UTC", "SLURM_TIME_FORMAT=standard") // of the times that it prints
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errOut, time.Second
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("scontrol %s: no answer within %v", args[0], limit)
	}
	said := strings.Join(strings.Fields(errOut.String()+" "+out.String()), " ")
	return "", fmt.Errorf("scontrol %s: %s", args[0], cmp.Or(said, err.Error()))
}

// A Node is what Slurm knows about a node.
type Node struct {
	Name     string
	HostName string
	State    []string  // base state first, then flags: IDLE, DRAIN
	Reason   string    // why it is out of service; "" if no reason was given
	Since    time.Time // when the reason was given; zero if that is not known
}

// Is reports whether the node's state and flags include one of these.
func (n Node) Is(states ...string) bool {
	return slices.ContainsFunc(n.State, func(s string) bool { return slices.Contains(states, s) })
}

// Node queries the controller about a node.
func (s Scontrol) Node(ctx context.Context, name string) (Node, error) {
	out, err := s.run(ctx, "show", "node", name)
	if err != nil {
		return Node{}, fmt.Errorf("node %s: %w; --slurm-node says what Slurm calls it", name, err)
	}
	n, err := parseNode(out)
	if err == nil && n.Name != name {
		err = fmt.Errorf("it says %q", n.Name)
	}
	if err != nil {
		return Node{}, fmt.Errorf("node %s: scontrol show node: %w", name, err)
	}
	return n, nil
}

var (
	nodeField = regexp.MustCompile(`(?m)^(?:\s*|.* )(NodeName|NodeHostName|State)=(\S+)`)
	// The reason has its own line, and ends with its author and time.
	nodeReason = regexp.MustCompile(`(?m)^\s*Reason=(.*?)(?: \[[^\[\]]*@([^\[\]]*)\])?$`)
)

// nodeMarks follow a state: "*" is a node that does not respond.
const nodeMarks = "*~#!%$@^-"

// parseNode reads the output of "scontrol show node NAME".
func parseNode(out string) (n Node, err error) {
	if m := nodeReason.FindStringSubmatchIndex(out); m != nil {
		n.Reason = strings.TrimSpace(out[m[2]:m[3]])
		if m[4] >= 0 {
			n.Since, _ = time.Parse("2006-01-02T15:04:05", out[m[4]:m[5]]) // else not known
		}
		out = out[:m[0]] // a reason may contain any text
	}
	for _, m := range nodeField.FindAllStringSubmatch(out, -1) {
		switch {
		case m[1] == "NodeName" && n.Name == "":
			n.Name = m[2]
		case m[1] == "NodeHostName" && n.HostName == "":
			n.HostName = m[2]
		case m[1] == "State" && n.State == nil:
			for s := range strings.SplitSeq(m[2], "+") {
				n.State = append(n.State, strings.TrimRight(s, nodeMarks))
			}
		}
	}
	if n.Name == "" || len(n.State) == 0 {
		return n, errors.New("no name or no state in what it printed")
	}
	return n, nil
}

// A Denied says that this process may not change a node.
type Denied struct {
	User    string // of this process
	Admin   string // SlurmUser
	Command string // to be run by an authorised user; "" if it is not known yet
}

func (d *Denied) Error() string {
	s := fmt.Sprintf("only root, SlurmUser (%s) and operators of Slurm's accounting may change nodes, and this is %s", d.Admin, d.User)
	if d.Command == "" {
		return s
	}
	return s + "; one of them can run: " + d.Command
}

// update changes a node.
func (s Scontrol) update(ctx context.Context, c Change, node string) error {
	args := c.Args(node)
	_, err := s.run(ctx, args...)
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	if strings.Contains(text, "invalid user id") || strings.Contains(text, "permission denied") {
		return fmt.Errorf("node %s could not be changed: %w", node, s.denied(ctx, "scontrol "+quote(args)))
	}
	return fmt.Errorf("node %s could not be changed: %w; to do it by hand: scontrol %s", node, err, quote(args))
}

func (s Scontrol) denied(ctx context.Context, command string) *Denied {
	d := &Denied{User: me(), Admin: "slurm", Command: command}
	if c, err := s.config(ctx); err == nil {
		d.Admin = c["SlurmUser"]
	}
	return d
}

func me() string {
	uid := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(uid); err == nil {
		return u.Username + "(" + uid + ")"
	}
	return "uid " + uid
}

var configLine = regexp.MustCompile(`(?m)^(\w+)\s*= (.*?)\s*$`)

// config returns the output of "scontrol show config".
func (s Scontrol) config(ctx context.Context) (map[string]string, error) {
	out, err := s.run(ctx, "show", "config")
	if err != nil {
		return nil, err
	}
	config := map[string]string{}
	for _, m := range configLine.FindAllStringSubmatch(out, -1) {
		config[m[1]] = m[2]
	}
	return config, nil
}

// Check reports in advance whether this process may change nodes: a [*Denied] if not. In a prolog
// or epilog, which must run as root, it does not query the controller.
func (s Scontrol) Check(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Context == Prolog || o.Context == Epilog {
		return nil
	}
	config, err := s.config(ctx)
	if err != nil {
		return err
	}
	if mayTry(config, strconv.Itoa(os.Geteuid())) {
		return nil
	}
	return s.denied(ctx, "")
}

// mayTry reports whether a user may change nodes, as far as is known: with accounting any user
// may be an operator, which only an attempt shows.
func mayTry(config map[string]string, uid string) bool {
	return uid == "0" || strings.HasSuffix(config["SlurmUser"], "("+uid+")") || strings.Contains(config["AccountingStorageType"], "slurmdbd")
}

// quote formats arguments for a shell.
func quote(args []string) string {
	var out []string
	for _, a := range args {
		if name, value, ok := strings.Cut(a, "="); ok && strings.ContainsFunc(value, special) {
			a = name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}

func special(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./:,", r))
}
