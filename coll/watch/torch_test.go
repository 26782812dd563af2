package watch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// dumper defines what PyTorch's recorder writes: dump(rank, groups, entries), and calls of a program.
const dumper = `
import pickle, sys
def entry(group, seq, name, size, state="completed", dtype="Float", p2p=0, line=88):
    return {"record_id": seq, "pg_id": 0, "process_group": group, "collective_seq_id": seq, "p2p_seq_id": p2p, "op_id": seq,
        "profiling_name": "nccl:" + name, "time_created_ns": 1700000000000000000 + seq, "duration_ms": None,
        "input_sizes": [size], "input_dtypes": [dtype], "output_sizes": [size], "output_dtypes": [dtype], "state": state,
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": state == "completed", "timeout_ms": 600000, "is_p2p": p2p > 0,
        "frames": [{"name": "all_reduce", "filename": "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py", "line": 2000},
                   {"name": "step", "filename": "train.py", "line": line}]}
def dump(rank, entries, groups={"0": ("default_pg", [0, 1, 2, 3])}):
    config = {k: {"name": k, "desc": d, "ranks": str(r)} for k, (d, r) in groups.items()}
    with open("nccl_trace_rank_%d" % rank, "wb") as f:
        pickle.dump({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries, "nccl_comm_state": {}}, f, 2)
D = ("0", "default_pg")
`

// torchDumps writes dumps with Python, and returns their directory.
func torchDumps(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	dir := t.TempDir()
	cmd := exec.Command(path, "-c", dumper+program)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func TestTorch(t *testing.T) {
	for _, tt := range []struct{ name, program, want string }{
		{"all has completed", `
for r in range(4): dump(r, [entry(D, i, "all_reduce", [1000]) for i in range(1, 9)])`,
			"0 (default_pg) []: all operations match and have completed, up to #8"},
		{"a rank that does not come", `
for r in range(4): dump(r, [entry(D, i, "all_reduce", [1000]) for i in range(1, 5)] + ([entry(D, 5, "all_reduce", [7, 2], "started")] if r != 2 else []))`,
			"0 (default_pg) [2]: operation #5, all_reduce of Float [7×2], in which ranks 0-1 and 3 wait, called by step at train.py:88, was not called by rank 2 (its last is all_reduce, #4, completed, called by step at train.py:88)"},
		{"a rank that was never there", `
for r in range(3): dump(r, [entry(D, 1, "broadcast", [8], "scheduled")])
dump(3, [])`,
			"0 (default_pg) [3]: operation #1, broadcast of Float [8], in which ranks 0-2 wait, called by step at train.py:88, was not called by rank 3"},
		{"another shape, many operations ago", `
for r in range(4): dump(r, [entry(D, i, "all_reduce", [1001 if r == 1 and i == 7 else 1000], "completed" if i < 7 else "scheduled", line=i) for i in range(1, 60)])`,
			"0 (default_pg) [1]: operation #7 differs: rank 1 called all_reduce of Float [1001], called by step at train.py:7, where ranks 0 and 2-3 called all_reduce of Float [1000], called by step at train.py:7"},
		{"another type and another operation", `
for r in range(4): dump(r, [entry(D, 1, "all_reduce", [8], "started", "Half" if r == 0 else "Float") if r < 3 else entry(D, 1, "broadcast", [8], "started")])`,
			"0 (default_pg) [0 3]: operation #1 differs: rank 0 called all_reduce of Half [8], called by step at train.py:88, where ranks 1-2 called all_reduce of Float [8], called by step at train.py:88"},
		{"a rank without a dump", `
for r in (0, 1, 3): dump(r, [entry(D, 1, "all_reduce", [8], "started")])`,
			"0 (default_pg) [0 1 3]: operation #1, all_reduce of Float [8], was called by all with the same arguments, and has not completed on ranks 0-1 and 3, called by step at train.py:88; there is no dump of rank 2"},
		{"a Recv that waits", `
P = ("7", "pp")
for r in (0, 1): dump(r, [entry(P, 0, "send 0->1", [8], p2p=1)] if r == 0 else [entry(P, 0, "recv 1<-0", [8], p2p=1), entry(P, 0, "recv 1<-0", [8], "started", p2p=2)], {"7": ("pp", [0, 1])})`,
			"7 (pp) [1]: rank 1 waits in recv 1<-0 (of the group's ranks), number 2 of its Sends and Recvs, called by step at train.py:88"},
		{"two groups of one name", `
for r in range(4): dump(r, [entry(("5", "tp"), i, "all_reduce", [8], "completed" if r < 2 or i < 3 else "started") for i in range(1, 4 if r != 2 else 3)], {"5": ("tp", [0, 1] if r < 2 else [2, 3])})`,
			"5 (tp) [2]: operation #3, all_reduce of Float [8], in which rank 3 waits, called by step at train.py:88, was not called by rank 2 (its last is all_reduce, #2, completed, called by step at train.py:88)\n5 (tp) []: all operations match and have completed, up to #3"},
		{"a rank that waits in another group", `
T = ("1", "tp")
groups = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("tp", [0, 1, 2])}
for r in range(4): dump(r, [entry(D, 1, "all_reduce", [8], "started")] * (r < 3) + [entry(T, 1, "all_gather", [8], "started")] * (r < 2), groups if r < 3 else {"0": groups["0"]})`,
			"0 (default_pg) [3]: operation #1, all_reduce of Float [8], in which ranks 0-2 wait, called by step at train.py:88, was not called by rank 3\n1 (tp) []: operation #1, all_gather of Float, in which ranks 0-1 wait, called by step at train.py:88, was not called by rank 2; where it waits in another process group, that one has the reason"},
		{"another group behind one that differs", `
T = ("1", "tp")
groups = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("tp", [0, 1, 2, 3])}
for r in range(4): dump(r, [entry(D, 1, "all_reduce", [8 + r // 3], "started"), entry(T, 1, "all_to_all", [8 + r], "scheduled")], groups)`,
			"0 (default_pg) [3]: operation #1 differs: rank 3 called all_reduce of Float [9], called by step at train.py:88, where ranks 0-2 called all_reduce of Float [8], called by step at train.py:88\n1 (tp) []: operation #1, all_to_all of Float, was called by all with sizes [10] on rank 2, [11] on rank 3, [8] on rank 0, [9] on rank 1, and has not completed on ranks 0-3, called by step at train.py:88; another process group has the reason"},
		{"older operations are gone from a ring", `
for r in range(4): dump(r, [entry(D, i, "all_reduce", [8 if r or i > 50 else 9]) for i in range(1 if r else 90, 101)])`,
			"0 (default_pg) []: all operations match and have completed, up to #100"},
		{"sizes of all_to_all differ rightly", `
for r in range(4): dump(r, [entry(D, 1, "all_to_all", [8 + r])])`,
			"0 (default_pg) []: all operations match and have completed, up to #1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dumps, err := ReadTorch([]string{torchDumps(t, tt.program)})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range Torch(dumps) {
				got = append(got, fmt.Sprintf("%s %v: %s", f.Group, f.Ranks, f.Text))
			}
			if text := strings.Join(got, "\n"); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

// TestTorchFiles: what is no dump is named, and the others are read.
func TestTorchFiles(t *testing.T) {
	dir := torchDumps(t, `
for r in range(3): dump(r, [entry(D, 1, "all_reduce", [8])])
import json, os
json.dump(pickle.load(open("nccl_trace_rank_1", "rb")), open("trace_1.json", "w"))
os.remove("nccl_trace_rank_1")
class A:
    def __reduce__(self): return (os.system, ("true",))
pickle.dump(A(), open("evil_3", "wb"))
d = pickle.load(open("nccl_trace_rank_2", "rb"))
d["entries"].insert(0, {"process_group": 5})
pickle.dump(d, open("nccl_trace_rank_2", "wb"), 4)
pickle.dump({"a": 1}, open("other_4", "wb"))
`)
	if err := os.WriteFile(filepath.Join(dir, "cut_5"), []byte("\x80\x02}q"), 0o600); err != nil {
		t.Fatal(err)
	}
	dumps, err := ReadTorch([]string{dir, filepath.Join(dir, "absent_9"), filepath.Join(dir, "nccl_trace_rank_0")})
	var ranks []int
	for _, d := range dumps {
		ranks = append(ranks, d.Rank)
	}
	if fmt.Sprint(ranks) != "[0 1 2]" {
		t.Errorf("ranks %v", ranks)
	}
	for _, want := range []string{"evil_3: ", "functions to be called", "nccl_trace_rank_2: entry 0: ", "other_4: no dump", "cut_5: ", "ends too early", "absent_9: ", "nccl_trace_rank_0: of rank 0, as "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	var out bytes.Buffer
	WriteTorch(&out, dumps, Torch(dumps))
	if want := "3 dumps of PyTorch's flight recorder, 3 operations\nprocess group 0 (default_pg): all operations match and have completed, up to #1; there is no dump of rank 3\n"; out.String() != want {
		t.Errorf("got %q\nwant %q", out.String(), want)
	}
}
