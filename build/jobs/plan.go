package jobs

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A job is the input of a renderer: options and profile combined.
type job struct {
	Options
	profile  *Profile
	fabric   string
	slots    int // processes per node
	ranks    int
	vars     []Var    // for the ranks, in the order of the profile
	onMake   []Var    // for the container runtime
	command  []string // of a rank
	reasons  []string // of the variants
	devices  []string
	rdma     bool // the containers get RDMA adapters
	spread   bool
	domain   string // label of an NVLink domain; "": does not matter
	computed bool   // a compute domain is claimed
	cpus     int
	memory   string
	items    []Resource // resources of device plugins, without GPUs
	selector string
	networks string
}

const (
	inImage     = "/opt/assay/bin/harness"
	ncclTests   = "/opt/nccl-tests/build"
	defaultTime = 30 * time.Minute
	fabricSuite = "fabric"
)

// suiteTime is the job time of suites that may take longer than the default. It covers
// the suite's own limit and the time before and after it, since a job that is killed
// writes no results.
var suiteTime = map[string]time.Duration{fabricSuite: 75 * time.Minute, "full": time.Hour, "acceptance": 45 * time.Minute}

// overNodes reports whether a suite is one that all nodes of a job run together.
func overNodes(suite string) bool { return suite == fabricSuite || suite == "acceptance" }

// plan combines options and profile, or returns a *Refusal with all problems.
func plan(doc *Document, o Options) (*job, error) {
	p, err := doc.Profile(o.Profile)
	if err != nil {
		return nil, &Refusal{[]string{err.Error()}}
	}
	if problems := refusals(p, o); len(problems) > 0 {
		return nil, &Refusal{problems}
	}
	j := &job{Options: o, profile: p, fabric: p.Fabric, cpus: p.CPUs.Value, memory: p.Memory.Value, domain: p.Domain.Value}
	j.Run, j.Op = cmp.Or(o.Run, RunCertify), cmp.Or(o.Op, "all_reduce")
	j.GPUs, j.Nodes = cmp.Or(o.GPUs, p.GPUs.Value), o.nodes(p)
	j.slots = j.GPUs
	if j.certifies() { // one process sees all GPUs and adapters of its node
		j.slots, j.Suite = 1, cmp.Or(o.Suite, j.suite())
	}
	j.ranks = j.Nodes * j.slots
	j.Time = cmp.Or(o.Time, suiteTime[j.Suite], defaultTime)
	j.Site = cmp.Or(o.Site, p.Site)
	site := p.Sites[j.Site]
	j.selector, j.networks = cmp.Or(o.Selector, site.Selector.Value), cmp.Or(o.Networks, site.Networks.Value)
	j.domain = cmp.Or(site.Domain.Value, j.domain)
	j.items = p.Resources
	vars := j.fromSets(doc, nil, p.Sets)
	for _, name := range VariantNames {
		if slices.Contains(o.Variants, name) {
			vars = j.vary(doc, vars, name)
		}
	}
	if j.fabric != "roce" {
		j.networks = o.Networks
	}
	j.rdma = len(j.items) > 0 && (j.fabric == "infiniband" || j.fabric == "roce" || j.fabric == "efa")
	j.choose(vars)
	j.Name = cmp.Or(o.Name, j.defaultName())
	if no := nameRefusal(j.Scheduler, j.Name, j.Nodes); no != "" {
		return nil, &Refusal{[]string{no}}
	}
	j.command = j.argv()
	return j, nil
}

// nodes returns the job's number of nodes.
func (o Options) nodes(p *Profile) int {
	if o.Nodes > 0 {
		return o.Nodes
	}
	switch {
	case o.Scheduler == Hostfile:
		return len(o.Hosts)
	case o.Scheduler == Docker:
		return 1
	case slices.Contains(o.Variants, "multirack"):
		return p.Variants["multirack"].Nodes.Value
	case o.onSlurm() && p.Slurm.Nodes.known():
		return p.Slurm.Nodes.Value
	}
	return p.Nodes.Value
}

func (o Options) onSlurm() bool { return o.Scheduler == SlurmBare || o.Scheduler == SlurmEnroot }

// byNode reports whether nodes run by themselves, without ranks.
func (o Options) byNode() bool { return o.Scheduler == Kubernetes || o.Scheduler == Docker }

// certifies reports whether the job runs a suite rather than a benchmark.
func (j *job) certifies() bool { return j.Run == RunCertify }

// suite returns the default suite for the job's nodes.
func (j *job) suite() string {
	if j.byNode() || j.Nodes == 1 {
		return "node"
	}
	return fabricSuite
}

// apart reports whether there are several nodes and each writes its own certificate,
// rather than one certificate for all.
func (j *job) apart() bool { return j.certifies() && j.Nodes > 1 && !overNodes(j.Suite) }

// container reports whether the job runs in the image.
func (o Options) container() bool { return o.Scheduler != SlurmBare && o.Scheduler != Hostfile }

func (j *job) has(variant string) bool { return slices.Contains(j.Variants, variant) }

// vary applies a variant to the plan.
func (j *job) vary(doc *Document, vars []Var, name string) []Var {
	v := j.profile.Variants[name]
	vars = j.fromSets(doc, vars, v.Sets)
	vars = slices.DeleteFunc(vars, func(x Var) bool { return slices.Contains(v.Drop, x.Name) })
	j.reasons = append(j.reasons, "--"+name+": "+v.Why)
	j.devices = append(j.devices, v.Devices...)
	j.fabric = cmp.Or(v.Fabric, j.fabric)
	j.spread = j.spread || v.Spread
	j.computed = j.computed || v.ComputeDomain
	j.cpus, j.memory = cmp.Or(v.CPUs.Value, j.cpus), cmp.Or(v.Memory.Value, j.memory)
	if v.NoRDMA {
		j.items = nil
	}
	return vars
}

// fromSets adds the sets' variables for this launcher. A later variable replaces an
// earlier one of the same name.
func (j *job) fromSets(doc *Document, vars []Var, names []string) []Var {
	launcher := "mpi"
	if j.onSlurm() {
		launcher = "slurm"
	}
	for _, name := range names {
		for _, v := range doc.Sets[name] {
			if len(v.In) == 0 || slices.Contains(v.In, launcher) {
				vars = set(vars, v)
			}
		}
	}
	return vars
}

func set(vars []Var, v Var) []Var {
	if i := slices.IndexFunc(vars, func(x Var) bool { return x.Name == v.Name }); i >= 0 {
		vars[i] = v
		return vars
	}
	return append(vars, v)
}

// mpiOnly matches variables of MPI and of the layers below it.
var mpiOnly = regexp.MustCompile(`^(UCX|OMPI|PMIX|PRTE)_`)

// choose selects the variables that this job sets, and adds the user's.
func (j *job) choose(vars []Var) {
	bench := !j.certifies() && j.Op == "all_reduce"
	for _, v := range vars {
		switch {
		case !j.NoExec && !v.Intent, v.Only == "bench" && !bench:
		case j.Scheduler == JobSet && mpiOnly.MatchString(v.Name): // there is no MPI
		case v.At == "container":
			if j.container() {
				j.onMake = append(j.onMake, v)
			}
		default:
			j.vars = append(j.vars, v)
		}
	}
	for _, v := range j.Env {
		j.vars = set(j.vars, v)
	}
}

// argv returns the command of a rank, or of a node where nodes run by themselves.
func (j *job) argv() []string {
	harness := inImage
	if !j.container() {
		harness = cmp.Or(j.Harness, "harness")
	}
	var argv []string
	if !j.NoExec {
		argv = append(argv, harness, "exec", "--")
	}
	switch j.Run {
	case RunColl:
		argv = append(argv, harness, "coll", j.Op)
	case RunNCCL:
		argv = append(argv, ncclTests+"/"+j.Op+"_perf")
	default:
		return append(argv, harness, "certify", "--suite", j.Suite)
	}
	lo, hi := "8", "16G"
	if j.Run == RunNCCL {
		lo, hi = "512M", "8G"
	}
	ranks := 1
	if j.byNode() {
		ranks = j.GPUs
	}
	return append(argv, "-b", cmp.Or(j.Min, lo), "-e", cmp.Or(j.Max, hi), "-f", strconv.Itoa(cmp.Or(j.Factor, 2)), "-g", strconv.Itoa(ranks))
}

// defaultName is built from profile, variants, run and size, so that two jobs of one
// namespace do not share a name.
func (j *job) defaultName() string {
	parts := []string{"assay", j.Profile}
	for _, v := range VariantNames {
		if j.has(v) {
			parts = append(parts, strings.ReplaceAll(v, "-", ""))
		}
	}
	switch j.Run { // Kubernetes limits the length of names
	case RunColl:
		parts = append(parts, "coll")
	case RunNCCL:
		parts = append(parts, "nccl")
	}
	if j.Op != "all_reduce" {
		parts = append(parts, strings.ReplaceAll(j.Op, "_", ""))
	}
	if j.DaemonSet {
		return strings.Join(append(parts, "nodes"), "-")
	}
	if j.Scheduler == Kubernetes {
		parts = append(parts, "nodes")
	}
	return strings.Join(append(parts, fmt.Sprintf("%dx%d", j.Nodes, j.GPUs)), "-")
}

// title describes the job in one line.
func (j *job) title() string {
	if j.DaemonSet {
		return j.profile.Title + "; every node that the selector matches"
	}
	nodes := "nodes"
	if j.Nodes == 1 {
		nodes = "node"
	}
	return fmt.Sprintf("%s; %d %s of %d GPUs", j.profile.Title, j.Nodes, nodes, j.GPUs)
}

// remarks returns the comment lines at the top of every file.
func (j *job) remarks() []string {
	out := []string{j.title() + ".", "Written by assay jobs render for profile " + j.Profile + "; render it again rather than edit it."}
	for _, r := range j.reasons {
		out = append(out, r+".")
	}
	if !j.NoExec {
		out = append(out, "On each node harness exec sets the variables of NCCL, UCX and libfabric that suit it.")
	}
	return out
}

// results says where a certification's results are.
func (j *job) results(dir string) string {
	switch {
	case j.apart():
		return "Certificates and reports go to " + dir + ", NODE/ for each node."
	case !overNodes(j.Suite) || j.Nodes == 1:
		return "Certificate and reports go to " + dir + "."
	}
	return "The cluster's certificate and reports go to " + dir + ", each node's certificate to nodes/ in it."
}

// reason returns the comment for a variable.
func (v Var) reason() string {
	if v.Source == "" {
		return cmp.Or(v.Why, "asked for with --env")
	}
	return v.Why + " [" + v.Source + "]"
}
