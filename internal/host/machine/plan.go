package machine

import (
	"slices"

	"github.com/assay-hpc/assay/internal/host/netenv"
)

// Plan determines the variables that the node needs beside those that are set already (o.Env). peers
// are the job's other hosts. NCCL_TOPO_FILE changes the machine, unless its topology is from a file.
func (m *Machine) Plan(peers []netenv.Peer, o netenv.Options) (*netenv.Node, *netenv.Plan, error) {
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
