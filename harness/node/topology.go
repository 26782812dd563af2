package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// topology returns one check: whether the scheduler knows the switch, or the block, of each machine.
func (c *Config) topology(e *suite.Entry) ([]suite.Check, error) {
	return c.compared(e, "the scheduler knows each machine's place in the network", func(*suite.Env) (any, *result.Result) {
		at, none := slurmPlace(os.Getenv)
		return at, none
	}, places)
}

// A place is a machine's place in Slurm's topology.
type place struct {
	Way  []string `json:"way"`  // switches or blocks from the root down
	Kind string   `json:"kind"` // SLURM_TOPOLOGY_ADDR_PATTERN: "switch.switch.node"
}

// slurmPlace reads what Slurm sets for a job's step: with topology/tree "root.leaf.node", with
// topology/block "block.node", and without a topology the node's name alone.
func slurmPlace(getenv func(string) string) (at place, none *result.Result) {
	if getenv("SLURM_JOB_ID") == "" {
		return at, ptr(result.Skipped("this is no job of Slurm"))
	}
	addr := getenv("SLURM_TOPOLOGY_ADDR")
	way := strings.Split(addr, ".")
	if addr == "" || len(way) < 2 {
		return at, ptr(result.Result{
			Verdict: result.Warn, Reason: "Slurm knows no topology: it may spread a job over the whole network",
			Remedy: "describe the switches in topology.conf (for NVLink domains: blocks), set TopologyPlugin in slurm.conf, and restart slurmctld",
		})
	}
	return place{way[:len(way)-1], getenv("SLURM_TOPOLOGY_ADDR_PATTERN")}, nil
}

// places compares the machines' places.
func places(names []string, stated []json.RawMessage) result.Result {
	leaves := map[string][]string{} // machines below each
	depth := map[int][]string{}
	kind := "leaf"
	for i, b := range stated {
		var at place
		if err := json.Unmarshal(b, &at); err != nil {
			return result.Errored("%s: %v", names[i], err)
		}
		leaf := at.Way[len(at.Way)-1]
		leaves[leaf] = append(leaves[leaf], names[i])
		depth[len(at.Way)] = append(depth[len(at.Way)], names[i])
		if strings.HasPrefix(at.Kind, "block") {
			kind = "block"
		}
	}
	kinds := map[string]string{"leaf": "leaves", "block": "blocks"}[kind]
	if len(leaves) == 1 {
		kinds = kind
	}
	res := result.Passed("%s below %d %s", words.Count(len(names), "machine"), len(leaves), kinds)
	for leaf, machines := range leaves {
		res.Objects = append(res.Objects, result.Object{Name: leaf, Quantity: "machines of the job", Verdict: result.Pass, Measured: &result.Measurement{Value: float64(len(machines)), Unit: "machines"}, Reason: some(machines)})
	}
	slices.SortFunc(res.Objects, func(a, b result.Object) int { return cmp.Compare(a.Name, b.Name) })
	if len(depth) > 1 {
		res.Verdict, res.Remedy = result.Warn, "put all machines below leaves of the same level in topology.conf"
		for levels, machines := range depth {
			if 2*len(machines) <= len(names) {
				res.Reason = fmt.Sprintf("%s: below %d levels, which others are not", some(machines), levels)
			}
		}
	}
	return res
}
