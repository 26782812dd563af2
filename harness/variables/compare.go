package variables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// A Value is what a variable is set to, and where.
type Value struct {
	Value string `json:"value"`
	From  string `json:"from"`
}

// OfNCCL returns the variables of NCCL that an environment and NCCL's files set on the node below root.
func OfNCCL(root string, environ []string) (map[string]Value, error) {
	f, err := sysfs.Open(root)
	if err != nil {
		return nil, err
	}
	set := map[string]Value{}
	for _, s := range knob.AlreadySet(environ, f.Text).Set {
		if _, stronger := set[s.Name]; !stronger && strings.HasPrefix(s.Name, "NCCL_") && s.Value != "" && s.Unread == "" {
			set[s.Name] = Value{s.Value, s.From}
		}
	}
	return set, nil
}

// local are the variables, by the beginnings of their names, that machines of one job may set
// differently: they name what is on the machine, or what is logged.
var local = []string{
	"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_PKEY", "NCCL_OOB_NET_IFNAME", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE",
	"NCCL_HOSTID", "NCCL_CONF_FILE", "NCCL_DEBUG", "NCCL_NET_PLUGIN", "NCCL_TUNER_", "NCCL_PROFILER_", "NCCL_FASTRAK_", "NCCL_IGNORE_CPU_AFFINITY", "NCCL_PROXY_CPUSET", "NCCL_TESTS_", "NCCL_RAS_ADDR",
	"NCCL_MNNVL_UUID", "NCCL_MNNVL_CLIQUE_ID", "NCCL_HOME", "NCCL_ROOT", "NCCL_LIB", "NCCL_INCLUDE",
}

// Compare says which variables of NCCL the machines of a job set differently. of[i] are those of the
// machine names[i].
func Compare(names []string, of []map[string]Value) result.Result {
	all := map[string]bool{}
	for _, set := range of {
		for name := range set {
			all[name] = true
		}
	}
	r := result.Passed("%s, %s of NCCL's, all the same", words.Count(len(names), "machine"), words.Count(len(all), "variable"))
	var may []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text := different(name, names, of)
		switch {
		case text == "":
			continue
		case slices.ContainsFunc(local, func(p string) bool { return strings.HasPrefix(name, p) }):
			may = append(may, name)
			r.Objects = append(r.Objects, result.Object{Name: name, Verdict: result.Pass, Reason: text})
			continue
		}
		if !r.Verdict.Bad() {
			r = result.Result{Objects: r.Objects}
		}
		r.Add(result.Warn, name+": "+text, "set it to one value on all machines, or nowhere: in /etc/nccl.conf of each, or in the job's environment")
		r.Objects = append(r.Objects, result.Object{Name: name, Verdict: result.Warn, Reason: text})
	}
	if !r.Verdict.Bad() && len(may) > 0 {
		r.Reason = fmt.Sprintf("%s, %s of NCCL's; they may differ in %s", words.Count(len(names), "machine"), words.Count(len(all), "variable"), strings.Join(may, ", "))
	}
	return r
}

// different returns what machines set a variable to, the rarest value first; "" if all set the same.
func different(name string, names []string, of []map[string]Value) string {
	type group struct {
		value Value
		who   []string
	}
	var groups []group
	for i, set := range of {
		at := slices.IndexFunc(groups, func(g group) bool { return g.value.Value == set[name].Value })
		if at < 0 {
			groups, at = append(groups, group{value: set[name]}), len(groups)
		}
		groups[at].who = append(groups[at].who, names[i])
	}
	if len(groups) < 2 {
		return ""
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(len(a.who), len(b.who)) })
	var parts []string
	for _, g := range groups {
		who := strings.Join(g.who[:min(len(g.who), 3)], ", ")
		if more := len(g.who) - 3; more > 0 {
			who += fmt.Sprintf(" and %d more", more)
		}
		if g.value.Value == "" {
			parts = append(parts, "not set on "+who)
			continue
		}
		parts = append(parts, fmt.Sprintf("%s (%s) on %s", debug.Short(g.value.Value, shown), g.value.From, who))
	}
	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], fmt.Sprintf("and %s more", words.Count(more, "value")))
	}
	return strings.Join(parts, "; ")
}
