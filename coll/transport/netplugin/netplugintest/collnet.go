//go:build cgo

package netplugintest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport/netplugin"
)

// RunCollNet runs the suite on a plugin's network that reduces, with all heads in this
// process, on device 0.
func RunCollNet(t *testing.T, entry string) {
	l, err := netplugin.Load(entry)
	check(t, err)
	n, err := l.CollNet(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, n.Close()) })
	t.Logf("%s, version %d, from %s", n.Name(), n.Version(), l.File())
	t.Run("properties", func(t *testing.T) { testCollProperties(t, n) })
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *netplugin.CollNet)
	}{
		{"reductions", testReductions},
		{"all reduce", testAllReduce},
		{"all gather", testAllGather},
		{"reduce scatter", testReduceScatter},
		{"requests", testCollRequests},
		{"groups", testGroups},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, n) })
	}
}

func testCollProperties(t *testing.T, n *netplugin.CollNet) {
	for d, p := range n.Devices() {
		t.Logf("device %d: %+v", d, p)
		for rule, ok := range map[string]bool{
			"a device has a name":                                                p.Name != "",
			"PtrSupport has no bits but 1, 2 and 4":                              p.PtrSupport&^7 == 0,
			"collectives can be of 4 MiB at least, 1 TiB at most (maxCollBytes)": p.MaxBytes >= 4<<20 && p.MaxBytes <= 1<<40,
		} {
			if !ok {
				broken(t, fmt.Sprintf("getProperties(%d)", d), "%s; it is %+v", rule, p)
			}
		}
	}
}

// exact contains the types in which the suite can write small whole numbers.
var exact = []elem.Type{elem.Int8, elem.Uint8, elem.Int32, elem.Uint32, elem.Int64, elem.Uint64, elem.Float16, elem.Float32, elem.Float64, elem.BFloat16}

var reductions = []elem.Op{elem.Sum, elem.Prod, elem.Max, elem.Min}

// some returns a reduction that the network supports.
func some(t *testing.T, n *netplugin.CollNet) (elem.Type, elem.Op) {
	t.Helper()
	for _, red := range reductions {
		for _, typ := range []elem.Type{elem.Float32, elem.Int32, elem.Float16, elem.BFloat16} {
			if n.Reduces(typ, red) {
				return typ, red
			}
		}
	}
	broken(t, "reduceSupport", "a network that reduces has a reduction, of float, int32, half or bfloat16")
	t.FailNow()
	return 0, 0
}

// A head is a head in this process. The first half of its memory is its input, the second
// half its result.
type head struct {
	g       *netplugin.CollGroup
	r       netplugin.Region
	in, out []byte
	mem     []byte
}

// group connects heads, each with size bytes of input and of result.
func group(t *testing.T, n *netplugin.CollNet, heads, size int) []*head {
	t.Helper()
	var listeners []*netplugin.CollListener
	var handles [][netplugin.HandleSize]byte
	for range heads {
		l, err := n.Listen(0)
		check(t, err)
		listeners, handles = append(listeners, l), append(handles, l.Handle)
	}
	all, errs := make([]*head, heads), make(chan error, heads)
	for i, l := range listeners {
		all[i] = &head{}
		go func() {
			var err error
			all[i].g, err = l.Connect(handles, i)
			errs <- err
		}()
	}
	late := time.After(patience)
	for range heads {
		select {
		case err := <-errs:
			check(t, err)
		case <-late:
			t.Fatalf("connect: heads are not connected within %v", patience)
		}
	}
	for i, h := range all {
		check(t, listeners[i].Close())
		var err error
		h.mem, err = unix.Mmap(-1, 0, 2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		check(t, err)
		h.in, h.out = h.mem[:size], h.mem[size:]
		h.r, err = h.g.Register(h.mem)
		check(t, err)
	}
	t.Cleanup(func() {
		for _, h := range all {
			if t.Failed() {
				return // requests may still be pending
			}
			check(t, h.g.Deregister(h.r))
			check(t, h.g.Close())
			check(t, unix.Munmap(h.mem))
		}
	})
	return all
}

// runJobs lets all heads do the same jobs, which differ only in their memory. All are started
// before the first test; the last one is tested first.
func runJobs(t *testing.T, heads []*head, jobs func(h *head, k int) netplugin.Job, count int) {
	t.Helper()
	type state struct {
		q    []netplugin.Request
		done map[int]bool
	}
	states := make([]state, len(heads))
	for i := range states {
		states[i].done = map[int]bool{}
	}
	p := &pair{t: t}
	p.until(fmt.Sprintf("%d collectives", count), func() bool {
		all := true
		for i, h := range heads {
			s := &states[i]
			soon(t, "a collective or test", func() error {
				for len(s.q) < count {
					q, ok, err := h.g.Begin(jobs(h, len(s.q)), h.r)
					if err != nil || !ok {
						all = false
						return err
					}
					s.q = append(s.q, q)
				}
				for k := count - 1; k >= 0; k-- {
					if s.done[k] {
						continue
					}
					done, err := h.g.Test(s.q[k])
					if err != nil {
						return err
					}
					s.done[k] = done
					all = all && done
				}
				return nil
			})
		}
		return all
	})
}

// put writes a small number as an element.
func put(typ elem.Type, b []byte, v int) {
	switch typ {
	case elem.Float32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
	case elem.Float64:
		binary.LittleEndian.PutUint64(b, math.Float64bits(float64(v)))
	case elem.Float16, elem.BFloat16:
		one := uint16(0x3c00)
		if typ == elem.BFloat16 {
			one = 0x3f80
		}
		binary.LittleEndian.PutUint16(b, one)
		elem.Scale(typ, b, b, float64(v))
	default:
		var wide [8]byte
		binary.LittleEndian.PutUint64(wide[:], uint64(v))
		copy(b, wide[:typ.Size()])
	}
}

// give fills the heads' input with numbers from 1 to 4, and the rest of their memory with
// a pattern.
func give(heads []*head, typ elem.Type, size int) {
	for i, h := range heads {
		fill(h.mem, i)
		for at := 0; at < size; at += typ.Size() {
			put(typ, h.in[at:at+typ.Size()], 1+(at/typ.Size()*7+i*3)%4)
		}
	}
}

// reduced returns the expected reduction of the heads' input.
func reduced(heads []*head, typ elem.Type, red elem.Op, size int) []byte {
	want := bytes.Clone(heads[0].in[:size])
	for _, h := range heads[1:] {
		elem.Reduce(typ, red, want, want, h.in[:size])
	}
	return want
}

// one runs one collective and compares the results; want returns the expected result of
// head i.
func one(t *testing.T, heads []*head, do op.Collective, typ elem.Type, red elem.Op, from, to int, want func(i int) []byte) {
	t.Helper()
	var before, behind [][]byte
	for _, h := range heads {
		before, behind = append(before, bytes.Clone(h.in)), append(behind, bytes.Clone(h.out[to:]))
	}
	runJobs(t, heads, func(h *head, _ int) netplugin.Job {
		return netplugin.Job{Do: do, Type: typ, Op: red, From: h.in[:from], To: h.out[:to]}
	}, 1)
	for i, h := range heads {
		name := fmt.Sprintf("%v of %v %v, %d bytes, at head %d", do, red, typ, from, i)
		if !bytes.Equal(h.out[:to], want(i)) {
			broken(t, name, "the result is what is asked for")
		}
		if !bytes.Equal(h.in, before[i]) {
			broken(t, name, "what is given is not touched")
		}
		if !bytes.Equal(h.out[to:], behind[i]) {
			broken(t, name, "memory behind the result is not touched")
		}
	}
}

// allReduce fills the heads' input, runs one AllReduce on it, and compares.
func allReduce(t *testing.T, heads []*head, typ elem.Type, red elem.Op, size int) {
	t.Helper()
	give(heads, typ, size)
	want := reduced(heads, typ, red, size)
	one(t, heads, op.AllReduce, typ, red, size, size, func(int) []byte { return want })
}

// testReductions tests every reduction that the network claims to support.
func testReductions(t *testing.T, n *netplugin.CollNet) {
	some(t, n)
	const count = 1000
	heads := group(t, n, 3, count*8+64)
	for _, typ := range exact {
		for _, red := range reductions {
			if n.Reduces(typ, red) {
				allReduce(t, heads, typ, red, count*typ.Size())
			}
		}
	}
}

// testAllReduce tests AllReduce of many sizes.
func testAllReduce(t *testing.T, n *netplugin.CollNet) {
	const most = 4 << 20
	typ, red := some(t, n)
	heads := group(t, n, 2, most)
	for _, count := range []int{1, 2, 7, 64, 1000, 4097, 100_000, most / typ.Size()} {
		allReduce(t, heads, typ, red, count*typ.Size())
	}
}

func testAllGather(t *testing.T, n *netplugin.CollNet) {
	if !n.Does(op.AllGather) {
		t.Skip("the network has no iallgather")
	}
	heads := group(t, n, 3, 400_000)
	for _, size := range []int{1, 8, 1000, 100_001} {
		give(heads, elem.Uint8, size)
		var want []byte
		for _, h := range heads {
			want = append(want, h.in[:size]...)
		}
		one(t, heads, op.AllGather, elem.Uint8, elem.Sum, size, len(want), func(int) []byte { return want })
	}
}

func testReduceScatter(t *testing.T, n *netplugin.CollNet) {
	if !n.Does(op.ReduceScatter) {
		t.Skip("the network has no ireducescatter")
	}
	typ, red := some(t, n)
	heads := group(t, n, 3, 400_000*typ.Size())
	for _, count := range []int{1, 8, 1000, 100_001} {
		part := count * typ.Size()
		give(heads, typ, 3*part)
		want := reduced(heads, typ, red, 3*part)
		one(t, heads, op.ReduceScatter, typ, red, 3*part, part, func(i int) []byte { return want[i*part : (i+1)*part] })
	}
}

// testCollRequests: the number of requests that the interface promises can be pending at
// once, and be tested in any order.
func testCollRequests(t *testing.T, n *netplugin.CollNet) {
	typ, red := some(t, n)
	size := 500 * typ.Size()
	heads := group(t, n, 2, netplugin.MaxRequests*size)
	for range 3 {
		give(heads, typ, netplugin.MaxRequests*size)
		want := reduced(heads, typ, red, netplugin.MaxRequests*size)
		runJobs(t, heads, func(h *head, k int) netplugin.Job {
			return netplugin.Job{Do: op.AllReduce, Type: typ, Op: red, From: h.in[k*size:][:size], To: h.out[k*size:][:size]}
		}, netplugin.MaxRequests)
		for i, h := range heads {
			if !bytes.Equal(h.out, want) {
				broken(t, fmt.Sprintf("iallreduce at head %d", i), "each of %d requests has its own result", netplugin.MaxRequests)
			}
		}
	}
}

// testGroups: groups do not mix, and one group can be closed before another.
func testGroups(t *testing.T, n *netplugin.CollNet) {
	typ, red := some(t, n)
	size := 1000 * typ.Size()
	a := group(t, n, 2, size)
	t.Run("second", func(t *testing.T) {
		b := group(t, n, 3, size)
		for range 2 {
			allReduce(t, a, typ, red, size)
			allReduce(t, b, typ, red, size)
		}
	})
	allReduce(t, a, typ, red, size)
}
