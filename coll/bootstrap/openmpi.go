package bootstrap

import (
	"net"
	"strings"
)

// What OpenMPI 4.1's mpirun sets, observed with version 4.1.4: ranks as
// OMPI_COMM_WORLD_*; a token of 128 random bits that all processes of the job have
// (orte_precondition_transports); the address of mpirun itself (orte_hnp_uri); and, on
// more than one node, the nodes' names, mpirun's own first (orte_node_regex). A
// Kubernetes MPIJob is mpirun over ssh, and looks the same.
const (
	ompiRank      = "OMPI_COMM_WORLD_RANK"
	ompiSize      = "OMPI_COMM_WORLD_SIZE"
	ompiLocalRank = "OMPI_COMM_WORLD_LOCAL_RANK"
	ompiLocalSize = "OMPI_COMM_WORLD_LOCAL_SIZE"
	ompiToken     = "OMPI_MCA_orte_precondition_transports"
	ompiMpirun    = "OMPI_MCA_orte_hnp_uri"
	ompiNodes     = "OMPI_MCA_orte_node_regex"
)

// maxHosts is how many nodes are tried for rank 0: it is on the first node that has any
// rank, so a few are enough.
const maxHosts = 4

func detectOpenMPI(e *environment, w *World) bool {
	if !e.has(ompiRank) && !e.has(ompiSize) {
		return false
	}
	w.Rank, w.Size = e.place(ompiRank, ompiSize)
	e.localPlace(w, ompiLocalRank, ompiLocalSize)
	e.same(ompiRank, w.Rank, "PMIX_RANK")
	w.job = "mpirun " + e.getenv("PMIX_NAMESPACE")
	if token := e.getenv(ompiToken); token != "" {
		w.secret, w.secretVar = []byte(token), ompiToken
	}
	if nodes, err := expandNodeRegex(e.getenv(ompiNodes)); err == nil {
		w.hosts = nodes[:min(len(nodes), maxHosts)]
	}
	w.hosts = append(w.hosts, uriHosts(e.getenv(ompiMpirun))...)
	return true
}

// expandNodeRegex expands "vm,bsq[1:1-2]@0(3)": names, with the number of digits and
// ranges of numbers in brackets. The part after the @ does not matter here.
func expandNodeRegex(s string) ([]string, error) {
	s, _, _ = strings.Cut(s, "@")
	return expandHosts(s, true)
}

// uriHosts returns the addresses in "123.0;tcp://10.0.0.1,10.1.0.1:999;tcp6://[fd00::1]:9".
func uriHosts(uri string) []string {
	var out []string
	for part := range strings.SplitSeq(uri, ";") {
		scheme, rest, ok := strings.Cut(part, "://")
		if !ok || !strings.HasPrefix(scheme, "tcp") {
			continue
		}
		i := strings.LastIndex(rest, ":")
		if i < 0 {
			continue
		}
		for host := range strings.SplitSeq(rest[:i], ",") {
			if host = strings.Trim(host, "[]"); net.ParseIP(host) != nil {
				out = append(out, host)
			}
		}
	}
	return out
}
