package machine

import (
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/internal/host/netenv"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// Plan determines the variables that the node needs beside those that are set already, in the
// environment and in NCCL's files. peers are the job's other hosts. NCCL_TOPO_FILE changes the
// machine, unless its topology is from a file.
func (m *Machine) Plan(environ []string, peers []netenv.Peer, o netenv.Options) (*netenv.Node, *netenv.Plan, error) {
	o.Env, o.Problems = alreadySet(environ, m.FS)
	if name := valueOf(o.Env, "NCCL_TOPO_FILE"); name != "" && m.o.File == "" {
		m.overlay(name)
	}
	node, err := m.Environment(valueOf(o.Env, "LD_LIBRARY_PATH"))
	if err != nil {
		return nil, nil, err
	}
	node.Peers = peers
	return node, netenv.Make(node, o), nil
}

func valueOf(env []netenv.Setting, name string) string {
	i := slices.IndexFunc(env, func(s netenv.Setting) bool { return s.Name == name && s.Unread == "" })
	if i < 0 {
		return ""
	}
	return env[i].Value
}

// alreadySet returns the settings from the environment and those that NCCL's files add, and what NCCL
// will not do of them. What only our engine does not do of them is not said: NCCL is the reader.
func alreadySet(environ []string, files sysfs.FS) (set []netenv.Setting, problems []string) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !slices.ContainsFunc(set, func(s netenv.Setting) bool { return s.Name == name }) { // getenv returns the first
			set = append(set, netenv.Setting{Name: name, Value: value, From: "environment"})
		}
	}
	read := func(name string) ([]byte, error) {
		text, err := files.Text(name)
		return []byte(text), err
	}
	k, warnings, err := knob.Load(environ, read)
	for _, s := range k.FromFiles() {
		set = append(set, netenv.Setting{Name: s.Name, Value: s.Value, From: s.From, Unread: s.Unread})
	}
	for _, w := range warnings {
		if w.Level == debug.Warn && !w.Ours {
			problems = append(problems, w.Message)
		}
	}
	if err != nil {
		problems = append(problems, strings.Split(err.Error(), "\n")...)
	}
	return set, problems
}
