package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/assay-hpc/assay/internal/words"
)

var (
	sizeForm = regexp.MustCompile(`^[0-9]+[KMGT]?$`)
	envName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// Names become parts of file names, docker volumes and directives.
	plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]*$`)
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_.,:+-]+$`)
	// enroot and docker separate mounts with commas and colons.
	pathForm = regexp.MustCompile(`^[^\pC,:]+$`)
	lineForm = regexp.MustCompile(`^[^\pC]+$`)
	envForm  = regexp.MustCompile(`^[^\pC]*(\t[^\pC]*)*$`)
	// What registries, enroot and docker all accept.
	imageForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.:-]*(/[a-z0-9._-]+)+(:[A-Za-z0-9_.-]+)?(@sha256:[0-9a-f]{64})?$`)
	opForm    = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	suiteForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

// refusals returns all problems of these options, each with a remedy.
func refusals(p *Profile, o Options) []string {
	var out []string
	no := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !slices.Contains(Schedulers, o.Scheduler) {
		no("there is no scheduler %q; choose one of %s", o.Scheduler, strings.Join(Schedulers, ", "))
	}
	o.variantRefusals(p, no)
	o.runRefusals(no)
	o.valueRefusals(p, no)
	switch o.Scheduler {
	case MPIOperator, JobSet, Kubernetes:
		o.kubernetesRefusals(p, no)
	case Docker:
		if o.Nodes > 1 {
			no("--nodes %d: docker starts one node's container; several nodes are for slurm, mpi-operator or hostfile", o.Nodes)
		}
	case Hostfile:
		o.hostRefusals(no)
	}
	return out
}

func (o Options) variantRefusals(p *Profile, no func(string, ...any)) {
	for _, v := range o.Variants {
		if why, ok := p.Refuse[v]; ok {
			no("--%s: %s", v, why)
		} else if _, ok := p.Variants[v]; !ok {
			no("there is no variant %q; did you mean %q?", v, words.Nearest(v, VariantNames))
		}
	}
	has := func(v string) bool { return slices.Contains(o.Variants, v) }
	for _, pair := range [][3]string{
		{"no-ib", "sharp", "SHARP's reductions take place in InfiniBand switches"},
		{"no-ib", "gdrcopy", "GDRCopy helps transfers by RDMA adapters"},
		{"no-ib", "roce", "RoCE uses the same adapters and variables"},
		{"no-ib", "spectrum-x", "Spectrum-X is RoCE"},
	} {
		if has(pair[0]) && has(pair[1]) {
			no("--%s with --%s: %s; leave one out", pair[0], pair[1], pair[2])
		}
	}
	if has("dra") && o.Scheduler != MPIOperator && o.Scheduler != JobSet {
		no("--dra: a compute domain joins the pods of one job on Kubernetes; it needs --scheduler mpi-operator or jobset")
	}
	if _, ok := p.Variants["spectrum-x"]; ok && has("spectrum-x") && !has("roce") && p.Fabric == "infiniband" {
		no("--spectrum-x: Spectrum-X is Ethernet, and without --roce this job is for InfiniBand; add that")
	}
	if has("multirack") {
		switch o.Scheduler {
		case Kubernetes, Docker:
			no("--multirack: with %s nodes run by themselves, so racks make no difference", o.Scheduler)
		case Hostfile:
			no("--multirack: the list of hosts says where ranks run; name hosts of several racks instead")
		}
	}
}

func (o Options) runRefusals(no func(string, ...any)) {
	run := cmp.Or(o.Run, RunCertify)
	if !slices.Contains(Runs, run) {
		no("--run %q; want one of %s", o.Run, strings.Join(Runs, ", "))
	}
	if run == RunNCCL && o.Scheduler == JobSet {
		no("--run nccl-tests: NVIDIA's programs find each other by MPI alone, which a JobSet does not start; use --run coll, or --scheduler mpi-operator")
	}
	if run == RunCertify && (o.Min != "" || o.Max != "" || o.Factor != 0 || o.Op != "") {
		no("sizes and operation: a suite has its own; they are for --run coll and --run nccl-tests")
	}
	if run != RunCertify && o.Suite != "" {
		no("--suite: --run %s runs no suite", run)
	}
	if overNodes(o.Suite) && o.byNode() {
		no("--suite %s: with %s nodes run by themselves; several nodes together are for slurm, mpi-operator, jobset or hostfile", o.Suite, o.Scheduler)
	}
	if o.Suite != "" && !suiteForm.MatchString(o.Suite) {
		no("--suite %q is no suite's name: lower-case letters, digits, hyphens", o.Suite)
	}
	if o.Op != "" && !opForm.MatchString(o.Op) {
		no("--op %q is no operation's name, such as all_reduce", o.Op)
	}
	for _, s := range []struct{ flag, value string }{{"--min", o.Min}, {"--max", o.Max}} {
		if s.value != "" && !sizeForm.MatchString(s.value) {
			no("%s %q is not a size: write 8, 512M or 16G", s.flag, s.value)
		}
	}
	if o.Factor < 0 || o.Factor == 1 {
		no("--factor %d: sizes would not grow; write 2 or more", o.Factor)
	}
	if o.Profile == "generic" && o.NoExec && len(o.Env) == 0 {
		no("--no-exec: the profile generic fixes no variables; leave it out, or give them with --env")
	}
	if run != RunCertify && o.OutputDir != "" {
		no("--certificates is for certificates, and --run %s makes none", run)
	}
}

func (o Options) valueRefusals(p *Profile, no func(string, ...any)) {
	if o.Nodes < 0 || o.Nodes > 100000 {
		no("--nodes %d: write a number from 1 to 100000", o.Nodes)
	}
	if o.GPUs < 0 || o.GPUs > 64 {
		no("--gpus %d: write how many GPUs a node has", o.GPUs)
	}
	if o.Time < 0 || o.Time > 0 && o.Time < time.Minute {
		no("--time %s: write a minute or more", o.Time)
	}
	if o.container() && !imageForm.MatchString(o.Image) {
		no("--image %q is not an image's full reference: write REGISTRY/REPOSITORY:TAG", o.Image)
	}
	if _, ok := p.Sites[o.Site]; !ok && o.Site != "" && o.Site != "none" {
		no("--site %q: %s knows %s", o.Site, p.ID, strings.Join(append(slices.Sorted(maps.Keys(p.Sites)), "none"), ", "))
	}
	for _, v := range o.Env {
		if !envName.MatchString(v.Name) {
			no("--env: %q is not a variable's name", v.Name)
		}
		if !envForm.MatchString(v.Value) {
			no("--env %s: a value is one line, without control characters", v.Name)
		}
	}
	for _, s := range []struct {
		flag, value string
		form        *regexp.Regexp
		want        string
	}{
		{"--name", o.Name, plainName, "a letter or digit first, then letters, digits and _.+- only"},
		{"--partition", o.Partition, plainWord, "letters, digits and _.,:+- only"},
		{"--account", o.Account, plainWord, "letters, digits and _.,:+- only"},
		{"--certificates", o.OutputDir, pathForm, "a path here has no comma, colon or control character"},
		{"--image-dir", o.ImageDir, pathForm, "a path here has no comma, colon or control character"},
		{"--harness", o.Harness, pathForm, "a path here has no comma, colon or control character"},
		{"--networks", o.Networks, lineForm, "names on one line, separated by spaces"},
	} {
		if s.value != "" && !s.form.MatchString(s.value) {
			no("%s %q: %s", s.flag, s.value, s.want)
		}
	}
	if o.OutputDir != "" && !strings.HasPrefix(o.OutputDir, "/") {
		no("--certificates %q: write an absolute path; ranks start in other directories", o.OutputDir)
	}
	o.strayRefusals(no)
}

// strayRefusals refuses flags of another scheduler, which would have no effect: the user
// must notice that.
func (o Options) strayRefusals(no func(string, ...any)) {
	kube := o.Scheduler == MPIOperator || o.Scheduler == JobSet || o.Scheduler == Kubernetes
	for _, s := range []struct {
		flag string
		set  bool
		ok   bool
		who  string
	}{
		{"--partition", o.Partition != "", o.onSlurm(), "slurm"},
		{"--account", o.Account != "", o.onSlurm(), "slurm"},
		{"--segment", o.Segment != 0, o.onSlurm(), "slurm"},
		{"--image-dir", o.ImageDir != "", o.Scheduler == SlurmEnroot, SlurmEnroot},
		{"--harness", o.Harness != "", !o.container(), "slurm and hostfile: an image has its own"},
		{"--namespace", o.Namespace != "", kube, "Kubernetes"},
		{"--claim", o.Claim != "", kube, "Kubernetes"},
		{"--selector", o.Selector != "", kube, "Kubernetes"},
		{"--networks", o.Networks != "", kube, "Kubernetes"},
		{"--daemonset", o.DaemonSet, o.Scheduler == Kubernetes, Kubernetes},
		{"--hosts", len(o.Hosts) > 0, o.Scheduler == Hostfile, Hostfile},
	} {
		if s.set && !s.ok {
			no("%s is for %s", s.flag, s.who)
		}
	}
}

func (o Options) kubernetesRefusals(p *Profile, no func(string, ...any)) {
	for _, s := range []struct{ flag, value string }{{"--namespace", o.Namespace}, {"--claim", o.Claim}} {
		if s.value != "" && len(validation.IsDNS1123Label(s.value)) > 0 {
			no("%s %q is not a name on Kubernetes: lower-case letters, digits and hyphens, at most 63", s.flag, s.value)
		}
	}
	if o.Selector != "" {
		if _, _, err := parseSelector(o.Selector); err != nil {
			no("--selector %q: %v", o.Selector, err)
		}
	}
	if o.OutputDir != "" && o.Claim == "" {
		no("--certificates: a pod's files go with it; name a PersistentVolumeClaim with --claim")
	}
	if o.DaemonSet && o.Nodes > 0 {
		no("--nodes: a DaemonSet runs on every node that --selector matches")
	}
	site := p.Sites[cmp.Or(o.Site, p.Site)]
	if slices.Contains(o.Variants, "roce") && o.Networks == "" && !site.Networks.known() {
		no("--roce: pods reach the fabric through additional networks; name them with --networks or --site")
	}
	if o.DaemonSet && o.Selector == "" && !site.Selector.known() {
		no("--daemonset: it would run on every node of the cluster; say on which with --selector or --site")
	}
}

// nameRefusal says why the pods' names would be invalid, "" if they are valid.
func nameRefusal(scheduler, name string, nodes int) string {
	longest := fmt.Sprintf("%s-worker-%d", name, nodes-1)
	switch scheduler {
	case MPIOperator, Kubernetes:
	case JobSet: // JobSet's webhook checks the length including a pod's random suffix
		longest = fmt.Sprintf("%s-%s-0-%d-xxxxx", name, setNodes, nodes-1)
	default:
		return ""
	}
	if len(validation.IsDNS1035Label(longest)) == 0 {
		return ""
	}
	return fmt.Sprintf("--name: a pod would be called %s, but must begin with a letter, have lower-case letters, digits and hyphens, and at most 63 of them; give another", longest)
}

func (o Options) hostRefusals(no func(string, ...any)) {
	if len(o.Hosts) == 0 {
		no("--hosts: a hostfile names them: --hosts node01,node02 or --hosts 'node[01-08]'")
	}
	if o.Nodes > 0 && len(o.Hosts) > 0 && o.Nodes != len(o.Hosts) {
		no("--nodes %d, but --hosts names %d; leave --nodes out", o.Nodes, len(o.Hosts))
	}
	seen := map[string]bool{}
	for _, h := range o.Hosts {
		if seen[h] {
			no("--hosts: %s is there twice", h)
		}
		seen[h] = true
		if len(validation.IsDNS1123Subdomain(strings.ToLower(h))) > 0 {
			no("--hosts: %q is no host's name", h)
		}
	}
}

// parseSelector reads KEY=VALUE,VALUE.
func parseSelector(s string) (key string, values []string, err error) {
	key, list, ok := strings.Cut(s, "=")
	if !ok || list == "" {
		return "", nil, fmt.Errorf("write KEY=VALUE or KEY=VALUE,VALUE")
	}
	if errs := validation.IsQualifiedName(key); len(errs) > 0 {
		return "", nil, fmt.Errorf("%q is no label's name", key)
	}
	values = strings.Split(list, ",")
	for _, v := range values {
		if errs := validation.IsValidLabelValue(v); v == "" || len(errs) > 0 {
			return "", nil, fmt.Errorf("%q is no label's value", v)
		}
	}
	return key, values, nil
}
