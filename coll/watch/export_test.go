package watch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/op"
)

// world makes the recorders of n ranks with a GPU each in this process.
func world(t *testing.T, n int) (all []*flight.Log) {
	for r := range n {
		l := flight.New("dp", r, r, slices.Repeat([]int{-1}, n))
		t.Cleanup(l.Close)
		all = append(all, l)
	}
	return all
}

// record adds a collective as the engine does.
func record(l *flight.Log, seq int, c op.Collective, t elem.Type, count, root int) {
	l.Add(&flight.Entry{Seq: uint32(seq), Sign: uint32(c)<<28 | uint32(t)<<24 | uint32(count), Count: int64(count), Peer: int32(root)})
}

// TestExportTorch: what is written in PyTorch's format is read again, and says the same. With
// ASSAY_FR_TRACE, PyTorch's source, its own analyser reads it, too.
func TestExportTorch(t *testing.T) {
	every := func(l *flight.Log) {
		for i, c := range []op.Collective{op.AllReduce, op.Broadcast, op.AllGather, op.ReduceScatter, op.AllToAll, op.Gather, op.Scatter} {
			record(l, i+1, c, elem.BFloat16, 100, 1)
		}
		l.Add(&flight.Entry{Seq: 7, P2P: 1, Peer: -1, Count: 2})
		l.Ended(8)
	}
	for _, c := range []struct {
		name   string
		rank   func(l *flight.Log, rank int)
		ranks  []int  // that are the reason
		text   string // of ours
		theirs []string
	}{
		{"right", func(*flight.Log, int) {}, nil, "all operations match and have completed, up to #7", []string{"Match"}},
		{"not called", func(l *flight.Log, rank int) {
			if rank != 2 {
				record(l, 8, op.AllReduce, elem.Float32, 64, -1)
			}
		}, []int{2}, "was not called by rank 2", []string{"missing ranks: {2}", "collective: nccl:all_reduce"}},
		{"another type", func(l *flight.Log, rank int) {
			record(l, 8, op.AllReduce, []elem.Type{elem.Float32, elem.Float64}[rank/3], 64, -1)
		}, []int{3}, "Double", []string{"Culprit rank 3", "COLLECTIVE_DTYPE_MISMATCH"}},
		{"another call", func(l *flight.Log, rank int) {
			record(l, 8, []op.Collective{op.AllReduce, op.AllGather}[rank%2*rank/3], elem.Float32, 64, -1)
		}, []int{3}, "_all_gather_base", []string{"Culprit rank 3", "COLLECTIVE_TYPE_MISMATCH"}},
		{"another count", func(l *flight.Log, rank int) { record(l, 8, op.AllReduce, elem.Float32, 64+rank/3, -1) }, []int{3}, "[65]", []string{"Culprit rank 3", "SIZE_OR_SYNTAX_MISMATCH"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for rank, l := range world(t, 4) {
				every(l)
				c.rank(l, rank)
			}
			dir := t.TempDir()
			files, err := ExportTorch(dir, []int{os.Getpid()}, "")
			if err != nil || len(files) != 4 || files[3] != filepath.Join(dir, "nccl_trace_rank_3") {
				t.Fatal(files, err)
			}
			dumps, err := ReadTorch([]string{dir})
			if err != nil || len(dumps) != 4 || len(dumps[0].Entries) < 7 || dumps[0].Groups["dp"].Ranks != "[0, 1, 2, 3]" {
				t.Fatal(dumps, err)
			}
			found := Torch(dumps)
			if len(found) != 1 || !slices.Equal(found[0].Ranks, c.ranks) || !strings.Contains(found[0].Text, c.text) {
				t.Errorf("%+v", found)
			}
			if source := os.Getenv("ASSAY_FR_TRACE"); source != "" {
				cmd := exec.Command("python3", "-m", "tools.flight_recorder.fr_trace", dir, "-p", "nccl_trace_rank_")
				cmd.Dir = source
				out, err := cmd.CombinedOutput()
				for _, want := range c.theirs {
					if c.ranks != nil && !strings.Contains(string(out), want) || err != nil {
						t.Errorf("%v: no %q in %s", err, want, out)
					}
				}
				if c.ranks == nil && strings.Contains(string(out), "Culprit") {
					t.Errorf("%s", out)
				}
			}
		})
	}
}

// TestExportRanks: the numbers in the job are those of the launcher, where it tells them.
func TestExportRanks(t *testing.T) {
	l, other := flight.New("tp", 1, 0, []int{4, 6}), flight.New("dp", 2, 0, []int{0, 2, 6})
	defer l.Close()
	defer other.Close()
	record(l, 1, op.AllReduce, elem.Float32, 64, -1)
	dir := t.TempDir()
	if files, err := ExportTorch(dir, []int{os.Getpid()}, ""); err != nil || len(files) != 1 || files[0] != filepath.Join(dir, "nccl_trace_rank_6") {
		t.Fatal(files, err)
	}
	dumps, err := ReadTorch([]string{dir})
	if err != nil || dumps[0].Groups["tp"].Ranks != "[4, 6]" || dumps[0].Groups["dp"].Ranks != "[0, 2, 6]" {
		t.Errorf("%+v, %v", dumps, err)
	}
	second := flight.New("tp", 1, 1, []int{4, 6})
	defer second.Close()
	if _, err := ExportTorch(dir, []int{os.Getpid()}, ""); err == nil || !strings.Contains(err.Error(), "rank 6 of its job and has 2 GPUs") {
		t.Error(err)
	}
}
