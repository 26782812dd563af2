package watch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/pickle"
)

// torchVersion is that of the format: PyTorch 2.6.
const torchVersion = "2.5"

// ExportTorch writes what the recorders of the given processes, or of all, contain in the format of
// PyTorch's flight recorder: nccl_trace_rank_N in a directory, for each rank of the job. It returns
// the files, also where others could not be written. Sends and Recvs are left out, of which the recorder has numbers only.
func ExportTorch(dir string, pids []int, job string) (files []string, err error) {
	all := map[int][]flight.Snapshot{}
	if err := recorders(pids, job, func(pid int, found []flight.Snapshot) { all[pid] = found }); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	ranks := map[int]int{} // the process by rank
	var errs []error
	for _, pid := range slices.Sorted(maps.Keys(all)) {
		devices := map[int][]flight.Snapshot{}
		for _, s := range all[pid] {
			devices[s.Device] = append(devices[s.Device], s)
		}
		for _, of := range devices {
			rank, err := jobRank(of, len(devices))
			other, twice := ranks[rank]
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("process %d: %w", pid, err))
				continue
			case twice:
				errs = append(errs, fmt.Errorf("process %d is rank %d, as %d: name the processes of one job, or its --job", pid, rank, other))
				continue
			}
			ranks[rank] = pid
			name := filepath.Join(dir, fmt.Sprintf("nccl_trace_rank_%d", rank))
			b, err := pickle.Encode(torchDump(of))
			if err == nil {
				err = outfile.Write(name, b)
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return files, errors.Join(errs...)
}

// jobRank is the number in the job of a process, or of one of its devices if it has several.
func jobRank(of []flight.Snapshot, devices int) (int, error) {
	most := slices.MaxFunc(of, func(a, b flight.Snapshot) int { return a.Size - b.Size })
	switch own := jobsOf(most); {
	case own == nil:
		return most.Rank, nil
	case devices > 1:
		return 0, fmt.Errorf("it is rank %d of its job and has %d GPUs: PyTorch's format has one file for each rank", own[most.Rank], devices)
	default:
		return own[most.Rank], nil
	}
}

// jobsOf is the job's number of each rank of a communicator; nil: the launcher does not tell, or
// ranks share a process.
func jobsOf(s flight.Snapshot) []int {
	seen := map[int]bool{}
	for _, j := range s.Jobs {
		if j < 0 || seen[j] {
			return nil
		}
		seen[j] = true
	}
	return s.Jobs
}

// torchDump is the dump of one rank.
func torchDump(of []flight.Snapshot) any {
	type call struct {
		flight.Entry
		in   int // of
		done bool
	}
	var calls []call
	gone := int64(0) // calls that the rings have lost
	config, status := map[string]any{}, map[string]any{}
	names := make([]string, len(of))
	for i, s := range of {
		if names[i] = s.Name; config[s.Name] != nil {
			names[i] = fmt.Sprintf("%s#%d", s.Name, i)
		}
		members := jobsOf(s)
		if members == nil {
			for r := range s.Size {
				members = append(members, r)
			}
		}
		config[names[i]] = map[string]any{"name": names[i], "desc": s.Name, "ranks": strings.ReplaceAll(fmt.Sprint(members), " ", ", ")}
		lost := s.Calls - uint64(len(s.Last))
		gone += int64(lost)
		var last, ended int64
		for k, e := range s.Last {
			if e.P2P > 0 {
				continue
			}
			c := call{e, i, lost+uint64(k) < s.Ended}
			if last = int64(e.Seq); c.done {
				ended = last
			}
			calls = append(calls, c)
		}
		status[names[i]] = map[string]any{"last_enqueued_collective": last, "last_started_collective": ended, "last_completed_collective": ended}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return a.At.Compare(b.At) })
	entries := []any{}
	for k, c := range calls {
		s := &of[c.in]
		name, in, out, dtype := torchShape(c.Entry, s.Rank, s.Size)
		state := "scheduled"
		if c.done {
			state = "completed"
		}
		entries = append(entries, map[string]any{
			"record_id": gone + int64(k), "pg_id": int64(c.in), "process_group": []any{names[c.in], s.Name},
			"collective_seq_id": int64(c.Seq), "p2p_seq_id": int64(0), "op_id": int64(c.Seq), "is_p2p": false,
			"profiling_name": "nccl:" + name, "input_sizes": in, "output_sizes": out, "input_dtypes": []any{dtype}, "output_dtypes": []any{dtype},
			"state": state, "retired": c.done, "time_created_ns": c.At.UnixNano(), "time_discovered_started_ns": nil, "time_discovered_completed_ns": nil,
			"timeout_ms": int64(0), "frames": []any{},
		})
	}
	return map[string]any{"version": torchVersion, "comm_lib_version": "assay", "pg_config": config, "pg_status": status, "entries": entries}
}

// torchNames are PyTorch's names of collectives.
var torchNames = map[op.Collective]string{
	op.AllReduce: "all_reduce", op.Broadcast: "broadcast", op.Reduce: "reduce", op.AllGather: "_all_gather_base", op.ReduceScatter: "_reduce_scatter_base",
	op.AllToAll: "all_to_all", op.Gather: "gather", op.Scatter: "scatter",
}

// torchTypes are PyTorch's names of types.
var torchTypes = map[elem.Type]string{
	elem.Int8: "Char", elem.Uint8: "Byte", elem.Int32: "Int", elem.Uint32: "UInt32", elem.Int64: "Long", elem.Uint64: "UInt64", elem.Float16: "Half",
	elem.Float32: "Float", elem.Float64: "Double", elem.BFloat16: "BFloat16", elem.Float8E4M3: "Float8_e4m3fn", elem.Float8E5M2: "Float8_e5m2",
}

// torchShape returns the name, sizes and type of a collective as PyTorch records them at a rank.
func torchShape(e flight.Entry, rank, size int) (name string, in, out []any, dtype string) {
	c, t := op.Signed(e.Sign)
	ins, outs := c.Parts(rank, int(e.Peer), size)
	if c == op.Broadcast || c == op.Reduce { // PyTorch has one tensor for both
		ins, outs = 1, 1
	}
	sizes := func(parts int) []any {
		if parts == 0 {
			return []any{}
		}
		return []any{[]any{e.Count * int64(parts)}}
	}
	return torchNames[c], sizes(ins), sizes(outs), torchTypes[t]
}
