package bootstrap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func env(list ...string) func(string) string {
	m := map[string]string{}
	for _, kv := range list {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = v
	}
	return func(k string) string { return m[k] }
}

var (
	// As mpirun 4.1.4 sets them on two hosts that mpirun's is none of.
	mpirunEnv = []string{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1",
		"OMPI_MCA_orte_hnp_uri=92143616.0;tcp://10.77.9.254:41567;tcp6://[fd00::2]:55235", "OMPI_MCA_orte_node_regex=vm,bsq[1:1-2]@0(3)",
		"OMPI_MCA_orte_precondition_transports=63b915669c18baef-a4519facbbf88fe8", "PMIX_RANK=1", "PMIX_NAMESPACE=92143617"}
	// As srun 22.05 does.
	srunEnv = []string{"SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=8", "SLURM_STEP_ID=2", "SLURM_JOB_ID=77", "SLURM_LOCALID=1",
		"SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_STEP_NODELIST=n[1-2]"}
	torchEnv = []string{"RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=node0", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=r"}
	hydraEnv = []string{"PMI_RANK=1", "PMI_SIZE=4", "PMI_FD=9", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4"}
)

func TestDetect(t *testing.T) {
	plus := func(a []string, more ...string) []string { return append(slices.Clone(a), more...) }
	for _, tt := range []struct {
		name string
		env  []string
		want string // String of the World, or part of the error
	}{
		{"nothing", nil, "rank 0 of 1 (none)"},
		{"mpirun", mpirunEnv, "rank 1 of 2 (mpirun, 0 of 1 on this host)"},
		{"mpirun in a slurm job", plus(mpirunEnv, srunEnv...), "rank 1 of 2 (mpirun, 0 of 1 on this host)"},
		{"srun", srunEnv, "rank 3 of 4 (slurm, 1 of 2 on this host)"},
		{"srun with pmi2", plus(srunEnv, "PMI_RANK=3", "PMI_SIZE=4", "PMI_FD=5"), "rank 3 of 4 (slurm, 1 of 2 on this host)"},
		{"srun with pmix", plus(srunEnv, "PMIX_RANK=3"), "rank 3 of 4 (slurm, 1 of 2 on this host)"},
		{"a batch script", []string{"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=7"}, "rank 0 of 1 (none)"},
		{"torchrun", torchEnv, "rank 5 of 8 (torchrun, 1 of 4 on this host)"},
		{"torchrun under srun", plus(torchEnv, srunEnv...), "rank 5 of 8 (torchrun, 1 of 4 on this host)"},
		{"torch variables under mpirun", plus(mpirunEnv, "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a"), "rank 1 of 2 (mpirun, 0 of 1 on this host)"},
		{"RANK alone", []string{"RANK=admiral"}, "rank 0 of 1 (none)"},
		{"hydra", hydraEnv, "rank 1 of 4 (hydra, 1 of 4 on this host)"},

		{"no size", []string{"OMPI_COMM_WORLD_RANK=1"}, "OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not"},
		{"no rank", []string{"PMI_SIZE=1"}, "PMI_SIZE is set but PMI_RANK is not"},
		{"rank too high", []string{"RANK=4", "WORLD_SIZE=4", "LOCAL_RANK=0", "MASTER_ADDR=a"}, "RANK=4 does not fit WORLD_SIZE=4"},
		{"local rank too high", plus(torchEnv[2:3:3], "RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=a", "LOCAL_WORLD_SIZE=1"), "LOCAL_RANK=1 does not fit LOCAL_WORLD_SIZE=1"},
		{"no number", []string{"RANK=x", "WORLD_SIZE=4", "MASTER_ADDR=a"}, `RANK="x" is not a number`},
		{"negative", []string{"RANK=-1", "WORLD_SIZE=4", "MASTER_ADDR=a"}, `RANK="-1" is not a number`},
		{"torch without master", []string{"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1"}, "MASTER_ADDR is not set"},
		{"two launchers", plus(srunEnv, "PMIX_RANK=1"), "SLURM_PROCID=3 but PMIX_RANK=1: two launchers disagree"},
		{"two sizes", plus(srunEnv, "PMI_SIZE=9"), "SLURM_STEP_NUM_TASKS=4 but PMI_SIZE=9"},
		{"tasks per node", plus(srunEnv, "SLURM_STEP_TASKS_PER_NODE=4"), "SLURM_STEP_TASKS_PER_NODE=\"4\" has no node SLURM_NODEID=1"},
		{"bad tasks per node", plus(srunEnv, "SLURM_STEP_TASKS_PER_NODE=4(y2)"), "is not like 4(x3),2"},
		{"bad nodes", plus(srunEnv, "SLURM_STEP_NODELIST=n[1-"), "SLURM_STEP_NODELIST: host list"},
		{"pmix alone", []string{"PMIX_RANK=1", "PMIX_NAMESPACE=x"}, "PMIX_RANK=1, but neither"},
	} {
		w, err := Detect(env(tt.env...))
		got := w.String()
		if err != nil {
			got = err.Error()
		}
		if (err != nil || got != tt.want) && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

func TestDetectHosts(t *testing.T) {
	for _, tt := range []struct {
		env  []string
		want []string
	}{
		{mpirunEnv, []string{"vm", "bsq1", "bsq2", "10.77.9.254", "fd00::2"}},
		{srunEnv, []string{"n1", "n2"}},
		{torchEnv, []string{"node0"}},
	} {
		w, err := Detect(env(tt.env...))
		if err != nil || !cmp.Equal(w.hosts, tt.want) {
			t.Errorf("%v: hosts %v, %v; want %v", w, w.hosts, err, tt.want)
		}
	}
}

func TestUriHosts(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "x": "", "1.0;tcp://10.0.0.1,10.1.0.1:99": "10.0.0.1 10.1.0.1", "1.0;tcp6://[fd00::1]:9": "fd00::1", "1;usock;tcp://nonsense": "",
		"prterun-vm-14038@0.0;tcp://192.0.2.2,10.0.0.1:36379:64,24;tcp6://[fd00::2],[fd00::3]:51409:64,24": "192.0.2.2 10.0.0.1 fd00::2 fd00::3",
		"1.0;tcp://10.0.0.1":      "",
		"1.0;tcp6://[fd00::1":     "",
		"1.0;tcp6://]:9;tcp://:9": "",
	} {
		if got := strings.Join(uriHosts(in), " "); got != want {
			t.Errorf("uriHosts(%q) = %q; want %q", in, got, want)
		}
	}
}

func TestPrteHost(t *testing.T) {
	for in, want := range map[string]string{
		"prterun-vm-14038@1": "vm", "prterun-node-1.example-7@1": "node-1.example", "prte-dvm-9@12": "dvm", "92143617": "", "slurm.pmix.77.2": "", "x@1": "", "": "",
	} {
		if got := prteHost(in); got != want {
			t.Errorf("prteHost(%q) = %q; want %q", in, got, want)
		}
	}
}

func TestFirstWorker(t *testing.T) {
	t.Parallel()
	const known = "127.0.0.1\tlocalhost\nfe00::0\tip6-mcastprefix\n10.244.1.7\tbig-worker-12.big.team.svc.cluster.local\tbig-worker-12\n"
	for in, want := range map[string]string{
		"big-worker-12":       "big-worker-0.big.team.svc.cluster.local big-worker-0.big",
		"a-worker-1-worker-3": "a-worker-1-worker-0.a-worker-1",
		"big-launcher":        "",
		"big-worker-x":        "",
		"node17":              "",
	} {
		if got := strings.Join(firstWorker(in, known), " "); got != want {
			t.Errorf("firstWorker(%q) = %q; want %q", in, got, want)
		}
	}
}

// The processes above this one are seen, and only whole arguments count.
func TestAncestors(t *testing.T) {
	all := ancestors()
	if len(all) == 0 || len(all[0]) == 0 || all[0][0] == "" {
		t.Errorf("ancestors: %q", all)
	}
	args := []string{"prted", "--prtemca", prteMpirun, "u;tcp://10.0.0.1:9:24", "--prtemca"}
	if got := argument(args, prteMpirun); got != args[3] {
		t.Errorf("argument: %q", got)
	}
	if got := argument(args[:3], prteMpirun) + argument(args, "hnp"); got != "" {
		t.Errorf("argument: %q; want none", got)
	}
}

func TestGraph(t *testing.T) {
	for n := 1; n <= 200; n++ {
		most := 0
		for r := range n {
			for _, p := range neighbours(r, n) {
				if !slices.Contains(neighbours(p, n), r) {
					t.Errorf("of %d, %d is %d's neighbour but not the other way round", n, p, r)
				}
			}
			most = max(most, len(neighbours(r, n)))
			below := 1
			for _, c := range children(r, n) {
				if parent(c) != r {
					t.Errorf("parent(%d) = %d; want %d", c, parent(c), r)
				}
				below += subtree(c, n)
			}
			if subtree(r, n) != below {
				t.Errorf("subtree(%d, %d) = %d; want %d", r, n, subtree(r, n), below)
			}
		}
		if most > fanout+3 || subtree(0, n) != n {
			t.Errorf("of %d: %d links, tree of %d", n, most, subtree(0, n))
		}
	}
}

func TestRankList(t *testing.T) {
	for want, in := range map[string][]int{"": nil, "3": {3}, "0-2,5": {0, 1, 2, 5}, "1,3": {1, 3}} {
		if got := rankList(in); got != want {
			t.Errorf("rankList(%v) = %q; want %q", in, got, want)
		}
	}
	var odd []int
	for i := range 100 {
		odd = append(odd, 2*i)
	}
	if got := rankList(odd); !strings.HasSuffix(got, ",38,…") {
		t.Errorf("rankList of many = %q", got)
	}
}

func ExampleDetect() {
	w, err := Detect(env("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "MASTER_ADDR=node0"))
	fmt.Println(w, err)
	// Output: rank 1 of 2 (torchrun) <nil>
}
