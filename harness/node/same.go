package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// same returns one check: whether all machines have the same versions and settings.
func (c *Config) same(e *suite.Entry) ([]suite.Check, error) {
	return c.compared(e, "all machines have the same versions and settings", c.ownFacts, differences)
}

// ownFacts returns the machine's facts, with NCCL's variables of nccl.conf and the partition keys of
// InfiniBand ports.
func (c *Config) ownFacts(env *suite.Env) (any, *result.Result) {
	tree, err := sysfs.Open("/")
	if err != nil {
		return nil, ptr(result.Errored("%v", err))
	}
	facts := maps.Clone(c.Facts)
	for _, s := range knob.AlreadySet(env.Environ, tree.Text).Set {
		if name := "$" + s.Name; strings.HasPrefix(s.Name, "NCCL_") && s.Unread == "" && facts[name] == "" && s.Value != "" {
			facts[name] = s.Value
		}
	}
	if keys := partitionKeys(tree); keys != "" {
		facts["partition keys"] = keys
	}
	return facts, nil
}

// partitionKeys returns the tables of all active InfiniBand ports, each with the number of its ports:
// "0x8005 0xffff on 8 ports". Two ports without a common key cannot connect.
func partitionKeys(tree sysfs.FS) string {
	devices, _ := tree.RDMADevices()
	ports := map[string]int{}
	for _, d := range devices {
		for _, p := range d.Ports {
			if p.LinkLayer != "InfiniBand" || p.State != "ACTIVE" {
				continue
			}
			keys, err := tree.PartitionKeys(d.Name, p.Number)
			table := "none"
			if err != nil {
				table = "unknown"
			} else if len(keys) > 0 {
				table = strings.Trim(fmt.Sprintf("%#04x", keys), "[]")
			}
			ports[table]++
		}
	}
	var out []string
	for _, table := range slices.Sorted(maps.Keys(ports)) {
		out = append(out, fmt.Sprintf("%s on %s", table, words.Count(ports[table], "port")))
	}
	return strings.Join(out, ", ")
}

// compared returns one check, in which the first machine judges what each machine states.
func (c *Config) compared(e *suite.Entry, title string, state func(*suite.Env) (any, *result.Result), judge func(names []string, stated []json.RawMessage) result.Result) ([]suite.Check, error) {
	if err := e.Decode(&struct{}{}); err != nil {
		return nil, err
	}
	if err := checkLimits(e, nil); err != nil {
		return nil, err
	}
	run := func(_ context.Context, env *suite.Env) result.Result {
		if res, alone := c.alone(); alone {
			return res
		}
		mine := word{Check: e.ID}
		value, own := state(env)
		if own != nil {
			mine.Verdict, mine.Reason, mine.Remedy = own.Verdict, own.Reason, own.Remedy
		}
		var err error
		if mine.State, err = json.Marshal(value); err != nil {
			return result.Errored("%v", err)
		}
		return *c.ask(mine, func(states []word, ranks []int) *result.Result {
			if res := c.judgeWords(states, ranks); res != nil {
				return res
			}
			var names []string
			var stated []json.RawMessage
			for i, w := range states {
				names, stated = append(names, c.Job.Name(ranks[i])), append(stated, w.State)
			}
			return ptr(judge(names, stated))
		})
	}
	return []suite.Check{{ID: e.ID, Title: title, Uses: []string{UseJob}, Run: run}}, nil
}

// local are the beginnings of the names of variables that machines of one job may set differently:
// they name what is on the machine, or what is logged there, or mpirun tells each rank by them.
var local = []string{
	"CUDA_VISIBLE_DEVICES", "NCCL_CONF_FILE", "NCCL_DEBUG", "NCCL_FASTRAK_", "NCCL_GRAPH_", "NCCL_HOME", "NCCL_HOSTID", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IB_PKEY",
	"NCCL_IGNORE_CPU_AFFINITY", "NCCL_MNNVL_", "NCCL_NET_PLUGIN", "NCCL_OOB_NET_IFNAME", "NCCL_PROFILER_", "NCCL_PROXY_CPUSET", "NCCL_RAS_ADDR", "NCCL_SOCKET_IFNAME", "NCCL_TESTS_",
	"NCCL_TOPO_", "NCCL_TUNER_", "OMPI_MCA_ess_", "OMPI_MCA_orte_", "UCX_NET_DEVICES",
}

// differences compares the facts of all machines. What most of them have is taken as right.
func differences(names []string, stated []json.RawMessage) result.Result {
	values := map[string]map[string][]string{} // machines, by fact and value
	all := make([]map[string]string, len(stated))
	for i, b := range stated {
		if err := json.Unmarshal(b, &all[i]); err != nil {
			return result.Errored("%s: %v", names[i], err)
		}
		for what := range all[i] {
			values[what] = map[string][]string{}
		}
	}
	maps.DeleteFunc(values, func(what string, _ map[string][]string) bool {
		name, variable := strings.CutPrefix(what, "$")
		return what == "names" || variable && slices.ContainsFunc(local, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	for i, facts := range all {
		for what, of := range values {
			of[facts[what]] = append(of[facts[what]], names[i])
		}
	}
	res := result.Passed("%d versions and settings, equal on %s", len(values), words.Count(len(names), "machine"))
	var differ []string
	for _, what := range slices.Sorted(maps.Keys(values)) {
		of := values[what]
		most := slices.MinFunc(slices.Collect(maps.Keys(of)), func(a, b string) int {
			return cmp.Or(len(of[b])-len(of[a]), strings.Compare(a, b))
		})
		for _, v := range slices.Sorted(maps.Keys(of)) {
			if v == most {
				continue
			}
			reason := fmt.Sprintf("%s %s on %s; %s on %s", what, cmp.Or(v, "missing"), some(of[v]), cmp.Or(most, "missing"), words.Count(len(of[most]), "machine"))
			res.Objects = append(res.Objects, result.Object{Name: some(of[v]), Quantity: what, Verdict: result.Warn, Reason: reason})
			differ = append(differ, reason)
		}
	}
	if len(differ) > 0 {
		res.Verdict, res.Reason = result.Warn, differ[0]
		if n := len(differ) - 1; n > 0 {
			res.Reason += fmt.Sprintf("; and %d more", n)
		}
		res.Remedy = "give all machines of the cluster the same image, driver, firmware and nccl.conf, and restart those that were updated"
	}
	return res
}
