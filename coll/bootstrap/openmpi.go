package bootstrap

import (
	"bytes"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/hostlist"
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

// OpenMPI 5's mpirun sets the same for ranks, but says nothing of nodes or of itself, observed with 5.0.7.
// The job's name has the name of mpirun's host, and the daemon that started a process on another host has mpirun's
// addresses in its arguments. So rank 0 is found if it is on mpirun's host, or on the first worker of an MPIJob.
const (
	prteLaunched = "PRTE_LAUNCHED"
	prteMpirun   = "prte_hnp_uri"
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
	if e.has(prteLaunched) {
		for _, args := range ancestors() {
			w.hosts = append(w.hosts, uriHosts(argument(args, prteMpirun))...)
		}
		if host := prteHost(e.getenv("PMIX_NAMESPACE")); host != "" {
			w.hosts = append(w.hosts, host)
		}
		if name, err := os.Hostname(); err == nil {
			known, _ := os.ReadFile("/etc/hosts")
			w.hosts = append(w.hosts, firstWorker(name, string(known))...)
		}
		w.remedy = "OpenMPI 5 does not say where rank 0 is: start mpirun on the first host, or "
	}
	return true
}

// ancestors returns the arguments of the processes above this one, as far as it sees them.
func ancestors() (all [][]string) {
	const most = 16
	for pid := os.Getppid(); pid > 1 && len(all) < most; {
		dir := "/proc/" + strconv.Itoa(pid)
		args, err := os.ReadFile(dir + "/cmdline")
		if err != nil {
			break
		}
		all = append(all, strings.Split(strings.TrimRight(string(args), "\x00"), "\x00"))
		stat, _ := os.ReadFile(dir + "/stat") // PID (NAME) STATE PPID …; NAME may contain anything
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			break
		}
		pid, _ = strconv.Atoi(string(fields[1]))
	}
	return all
}

// argument returns what follows an argument.
func argument(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// prteHost returns the host in the name of a job, such as prterun-node-1-4711@1, or "".
func prteHost(namespace string) string {
	_, rest, ok := strings.Cut(namespace, "-")
	name, _, at := strings.Cut(rest, "@")
	i := strings.LastIndexByte(name, '-')
	if !ok || !at || i < 0 {
		return ""
	}
	return name[:i]
}

// firstWorker returns the names of the first worker of a Kubernetes MPIJob, whose workers the MPI Operator calls
// JOB-worker-N. name is a worker's own; /etc/hosts has the pod's full name as well. Without that, the pod's subdomain
// is the job's name.
func firstWorker(name, known string) (hosts []string) {
	const infix = "-worker-"
	i := strings.LastIndex(name, infix)
	if i < 0 {
		return nil
	}
	if _, err := strconv.ParseUint(name[i+len(infix):], 10, 32); err != nil {
		return nil
	}
	first := name[:i] + infix + "0"
	for _, word := range strings.Fields(known) {
		if domain, ok := strings.CutPrefix(word, name+"."); ok {
			hosts = append(hosts, first+"."+domain)
		}
	}
	return append(hosts, first+"."+name[:i])
}

// expandNodeRegex expands "vm,bsq[1:1-2]@0(3)": names, with the number of digits and
// ranges of numbers in brackets. The part after the @ does not matter here.
func expandNodeRegex(s string) ([]string, error) {
	s, _, _ = strings.Cut(s, "@")
	return hostlist.Expand(s, true)
}

// uriHosts returns the addresses in "123.0;tcp://10.0.0.1,10.1.0.1:999;tcp6://[fd00::1]:9". Behind a port there may
// be the lengths of the addresses' prefixes.
func uriHosts(uri string) []string {
	var out []string
	for part := range strings.SplitSeq(uri, ";") {
		scheme, rest, ok := strings.Cut(part, "://")
		if !ok || !strings.HasPrefix(scheme, "tcp") {
			continue
		}
		i := strings.LastIndexByte(rest, ']') + 1
		end := strings.IndexByte(rest[i:], ':')
		if end < 0 {
			continue
		}
		for host := range strings.SplitSeq(rest[:i+end], ",") {
			if host = strings.Trim(host, "[]"); net.ParseIP(host) != nil {
				out = append(out, host)
			}
		}
	}
	return out
}
