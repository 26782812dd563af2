package choose

import (
	"io/fs"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

// TestTermsAreAll: ranks compare every field of an Env that they do not make
// one of.
func TestTermsAreAll(t *testing.T) {
	merged := map[string]bool{"Hosts": true, "Cores": true, "Unchecked": true, "Slot": true, "NetCost": true}
	plain := Env{}
	for i := range reflect.TypeFor[Env]().NumField() {
		f := reflect.TypeFor[Env]().Field(i)
		e := Env{}
		v := reflect.ValueOf(&e).Elem().Field(i)
		switch at := v.Addr().Interface().(type) {
		case *knob.Filter:
			*at = ring(t)
		case *Measured:
			at.file, at.sum = "file", "sum"
		case *[][]int:
			*at = [][]int{{1, 0}}
		case *Transport:
			at.Name = "net"
		case *knob.Verify:
			at.Some, at.Of = 1, 1000
		case *bool:
			*at = true
		case *string:
			*at = "text"
		case *int, *int64:
			v.SetInt(9)
		default:
			t.Fatalf("%s: what is a %v?", f.Name, f.Type)
		}
		if same := e.Sum() == plain.Sum(); same != merged[f.Name] {
			t.Errorf("the ranks compare Env.%s: %v; want %v", f.Name, !same, merged[f.Name])
		}
	}
}

// TestMerge: all ranks make the same of what they found.
func TestMerge(t *testing.T) {
	first := func(n int) (m [16]uint64) {
		for i := range n {
			m[i/64] |= 1 << (i % 64)
		}
		return m
	}
	for name, tt := range map[string]struct {
		all   []Found
		cores int
		hosts [][]int
	}{
		"one process":               {[]Found{{Process: 1, CPUs: first(8), Procs: 8}, {Process: 1, CPUs: first(8), Procs: 8}}, 8, [][]int{{0, 1}}},
		"a process that uses less":  {[]Found{{Process: 1, CPUs: first(8), Procs: 1}, {Process: 1, CPUs: first(8), Procs: 1}}, 1, [][]int{{0, 1}}},
		"processes that use less":   {[]Found{{Process: 1, CPUs: first(8), Procs: 1}, {Process: 2, CPUs: first(8), Procs: 2}}, 3, [][]int{{0, 1}}},
		"processes bound to one":    {[]Found{{Process: 1, CPUs: first(1), Procs: 1}, {Process: 2, CPUs: [16]uint64{2}, Procs: 1}}, 2, [][]int{{0, 1}}},
		"hosts":                     {[]Found{{Host: 5, Process: 1, CPUs: first(100), Procs: 100}, {Host: 6, Process: 1, CPUs: first(3), Procs: 3}, {Host: 5, Process: 2, CPUs: first(100), Procs: 100}}, 3, [][]int{{0, 2}, {1}}},
		"a host that does not tell": {[]Found{{Host: 5, CPUs: first(4), Procs: 4}, {Host: 6, Procs: 4}}, 0, [][]int{{0}, {1}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := Env{BuffSize: DefaultBuffSize}
			e.Merge(tt.all)
			if d := cmp.Diff(tt.hosts, e.Hosts); e.Cores != tt.cores || e.Unchecked || d != "" {
				t.Errorf("merge: %d processors, unchecked %v; want %d, false; hosts (-want +got):\n%s", e.Cores, e.Unchecked, tt.cores, d)
			}
			tt.all[len(tt.all)-1].Unchecked = true
			if e.Merge(tt.all); !e.Unchecked {
				t.Error("NCCL_CHECKS_DISABLE of the last rank makes no difference")
			}
		})
	}
}

// TestSlot: whatever NCCL_BUFFSIZE is, a message holds an element of each block
// that a step of any algorithm moves.
func TestSlot(t *testing.T) {
	uneven := make([]int, 65)
	for i := range uneven {
		uneven[i] = 2
	}
	uneven[64] = 64
	for _, tt := range []struct {
		name     string
		sizes    []int // ranks of each host
		buffSize int64
		want     int
	}{
		{"default", []int{8}, DefaultBuffSize, 128 << 10},
		{"default, network", []int{8, 8}, DefaultBuffSize, 512 << 10},
		{"small", []int{8}, 1 << 10, 4096},
		{"odd", []int{8}, 8 * 5000, 4992},
		{"many ranks", []int{1030}, 1 << 10, 8256},
		{"an uneven cluster", uneven, 1 << 10, 65 * 32 * 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var groups [][]int
			ranks := 0
			for _, n := range tt.sizes {
				var g []int
				for range n {
					g = append(g, ranks)
					ranks++
				}
				groups = append(groups, g)
			}
			e := &Env{Hosts: groups, BuffSize: tt.buffSize}
			got := e.slot()
			if got != tt.want {
				t.Errorf("slot = %d; want %d", got, tt.want)
			}
			for collective := range op.NumCollectives {
				for _, a := range schedule.Algorithms(collective) {
					s, err := schedule.New(collective, a, schedule.Options{Ranks: ranks, Groups: groups})
					if err == nil && 8*s.MaxSpan > got {
						t.Errorf("%v by %s moves %d blocks in a message of %d bytes", collective, a, s.MaxSpan, got)
					}
				}
			}
		})
	}
}

// ring is NCCL_ALGO=ring.
func ring(t *testing.T) knob.Filter {
	t.Helper()
	k, _, err := knob.Load([]string{"NCCL_ALGO=ring"}, func(string) ([]byte, error) { return nil, fs.ErrNotExist })
	if err != nil {
		t.Fatal(err)
	}
	return k.Algo
}
