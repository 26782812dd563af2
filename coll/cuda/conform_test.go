//go:build cuda && cgo

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/cuda/kernels"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// hosted has windows in the processor's memory.
func hosted(k *knob.Knobs) { k.P2PDisable = true }

// zeroCTAs has copy engines, and one kernel for what they cannot do.
func zeroCTAs(k *knob.Knobs) { k.CTAPolicy = choose.Zero }

// staged has none, and several lanes.
func staged(k *knob.Knobs) { k.P2PDisable, k.SHMDisable, k.MinChannels = true, true, 3 }

// places are the ways to put ranks onto so many devices.
func places(devices int) map[string]world {
	m := map[string]world{"one device, 2": spread(2, 1)}
	for n := 1; n <= min(devices, maxRanks); n++ {
		m[fmt.Sprintf("devices, %d", n)] = spread(n, n)
	}
	for name, set := range map[string]func(*knob.Knobs){"hosted": hosted, "staged": staged} {
		for _, n := range []int{2, min(max(2, devices), maxRanks)} {
			w := spread(n, devices)
			w.set = set
			m[fmt.Sprintf("%s, %d", name, n)] = w
		}
	}
	return m
}

// Windows are where settings allow them to be.
func TestWays(t *testing.T) {
	w := spread(2, gpuCount(t))
	for want, set := range map[string]func(*knob.Knobs){"hosted": hosted, "staged": staged} {
		w.set = set
		for _, g := range w.open(t) {
			if got := g.way(); got != want {
				t.Errorf("%s; want %s", got, want)
			}
		}
	}
}

// Where one rank cannot have a window in the processor's memory, all are
// staged.
func TestHostedRefused(t *testing.T) {
	w := spread(2, gpuCount(t))
	w.set = hosted
	t.Setenv("FAKE_NO_REGISTER", "1")
	all := w.open(t)
	if all[0].dev.info.Name != "emulator" {
		t.Skip("a real driver refuses nobody")
	}
	for _, g := range all {
		if got := g.way(); got != "staged" {
			t.Errorf("rank %d: %s", g.Rank(), got)
		}
	}
	exact(t, all, coll.Int32, coll.Sum, 1000)
}

func TestConformance(t *testing.T) {
	for name, w := range places(gpuCount(t)) {
		t.Run(name, func(t *testing.T) {
			colltest.Run(t, colltest.Options{Ranks: []int{w.ranks}, Edges: []int{2 << 10, 32 << 10, limit(9 << 20)}}, conformers(w))
		})
	}
}

// Every kernel does its collectives, whether it would be chosen or not.
func TestKernels(t *testing.T) {
	n := gpuCount(t)
	for k := noKernel + 1; k <= copies; k++ {
		if kernelTable[k].does == nil {
			continue
		}
		for _, shape := range []string{"1:32:128", "3:96:4096", "8:512:131072"} {
			t.Run(fmt.Sprintf("%v:%s", k, shape), func(t *testing.T) {
				t.Setenv("ASSAY_GPU_ALGO", fmt.Sprintf("%v:%s", k, shape))
				var only []op.Collective
				for c := range op.NumCollectives {
					if k.does(c) {
						only = append(only, c)
					}
				}
				w := spread(min(max(2, n), maxRanks), n)
				colltest.Run(t, colltest.Options{Ranks: []int{w.ranks}, Only: only}, conformers(w))
			})
		}
	}
}

// Results are what elem computes in the order of the ranks, bit for bit, by
// whatever kernel, and for random bits, too.
func TestExact(t *testing.T) {
	n := gpuCount(t)
	w := spread(min(max(2, n), maxRanks), n)
	all := w.open(t)
	for _, ty := range elem.Types {
		for _, op := range []elem.Op{elem.Sum, elem.Prod, elem.Max, elem.Min} {
			for _, bytes := range []int{8, 1000, 48 << 10, limit(600 << 10), limit(6 << 20)} {
				exact(t, all, ty, op, bytes/ty.Size())
			}
		}
	}
}

func exact(t *testing.T, all []*gpuRank, ty elem.Type, red elem.Op, count int) {
	t.Helper()
	n := len(all)
	share := count / n
	srcs := make([][]byte, n)
	rnd := rand.NewChaCha8([32]byte{byte(ty), byte(red)})
	for r := range srcs {
		srcs[r] = make([]byte, count*ty.Size())
		_, _ = rnd.Read(srcs[r]) // never fails
	}
	// inOrder is what comes out when a rank is the first, and the others follow.
	inOrder := make([][]byte, n)
	for first := range inOrder {
		inOrder[first] = make([]byte, count*ty.Size())
		colltest.Fold(ty, red, inOrder[first], slices.Concat(srcs[first:], srcs[:first]))
	}
	want := inOrder[0]
	each(t, all, func(g *gpuRank) error {
		got := make([]byte, len(want))
		if err := g.Do(&op.Op{Coll: op.AllReduce, Send: bytes.Clone(srcs[g.Rank()]), Recv: got, Count: count, Type: ty, Red: red}); err != nil {
			return err
		}
		reduced := want
		if g.byRing() {
			reduced = nil
			for per := partBytes(len(want), n); len(reduced) < len(want); {
				at := len(reduced)
				reduced = append(reduced, inOrder[at/per][at:min(at+per, len(want))]...)
			}
		}
		if err := differ("AllReduce", g, ty, red, got, reduced); err != nil {
			return err
		}
		scattered := make([]byte, share*ty.Size())
		if share > 0 {
			if err := g.Do(&op.Op{Coll: op.ReduceScatter, Send: bytes.Clone(srcs[g.Rank()])[:n*len(scattered)], Recv: scattered, Count: share, Type: ty, Red: red}); err != nil {
				return err
			}
			reduced := want
			if g.byRing() {
				reduced = inOrder[(g.Rank()+1)%n]
			}
			if err := differ("ReduceScatter", g, ty, red, scattered, reduced[g.Rank()*len(scattered):][:len(scattered)]); err != nil {
				return err
			}
		}
		root := n - 1
		clear(got)
		if err := g.Do(&op.Op{Coll: op.Reduce, Send: bytes.Clone(srcs[g.Rank()]), Recv: got, Count: count, Type: ty, Red: red, Root: root}); err != nil {
			return err
		}
		if g.Rank() != root {
			return nil
		}
		return differ("Reduce", g, ty, red, got, want)
	})
}

// byRing reports whether the last operation was done by a ring of copies. Among
// two it makes no difference who is the first.
func (g *gpuRank) byRing() bool { return strings.HasPrefix(g.Chosen(), "copy/") }

func differ(what string, g *gpuRank, ty elem.Type, op elem.Op, got, want []byte) error {
	for i := range want {
		if got[i] != want[i] {
			at := i / ty.Size() * ty.Size()
			return fmt.Errorf("rank %d, %s of %d %v with %v by %s: element %d is %x; want %x", g.Rank(), what, len(want)/ty.Size(), ty, op, g.Chosen(), i/ty.Size(), got[at:at+ty.Size()], want[at:at+ty.Size()])
		}
	}
	return nil
}

// Results are the same bits on all ranks and in 100 runs.
func TestRepeated(t *testing.T) {
	n := gpuCount(t)
	all := spread(min(max(2, n), maxRanks), n).open(t)
	for _, ty := range []elem.Type{elem.Float32, elem.BFloat16} {
		for _, bytes := range []int{1000, limit(100_000), limit(1_000_000), limit(8_000_000)} {
			count := bytes / ty.Size()
			srcs := make([][]byte, len(all))
			for r := range srcs {
				srcs[r] = make([]byte, count*ty.Size())
				_, _ = rand.NewChaCha8([32]byte{byte(r), byte(ty)}).Read(srcs[r]) // never fails
			}
			var first []byte
			for i := range 100 {
				results := make([][]byte, len(all))
				each(t, all, func(g *gpuRank) error {
					results[g.Rank()] = make([]byte, count*ty.Size())
					return g.Do(&op.Op{Coll: op.AllReduce, Send: srcs[g.Rank()], Recv: results[g.Rank()], Count: count, Type: ty})
				})
				if first == nil {
					first = results[0]
				}
				for r, b := range results {
					if !slices.Equal(b, first) {
						t.Fatalf("%d of %v: rank %d of run %d has other bits than rank 0 of the first", count, ty, r, i)
					}
				}
			}
		}
	}
}

// oneOf are the bits of 1, by type.
var oneOf = map[coll.Type]uint64{
	elem.Int8: 1, elem.Uint8: 1, elem.Int32: 1, elem.Uint32: 1, elem.Int64: 1, elem.Uint64: 1, elem.Float16: 0x3c00, elem.Float32: 0x3f800000,
	elem.Float64: 0x3ff0000000000000, elem.BFloat16: 0x3f80, elem.Float8E4M3: 0x38, elem.Float8E5M2: 0x3c,
}

// Averages and premultiplied sums are what elem computes of scaled inputs.
func TestScaled(t *testing.T) {
	n := gpuCount(t)
	through := spread(2, n)
	through.set = staged
	for _, w := range []world{spread(1, n), spread(min(max(2, n), maxRanks), n), through} {
		all := w.open(t)
		for _, ty := range elem.Types {
			size, count := ty.Size(), 1000
			if ty == elem.BFloat16 || ty == elem.Int64 {
				count = limit(600_000) // by other kernels
			}
			srcs, scaled := make([][]byte, w.ranks), make([][]byte, w.ranks)
			for r := range srcs {
				srcs[r], scaled[r] = make([]byte, count*size), make([]byte, count*size)
				for i := range srcs[r] {
					srcs[r][i] = byte(i*7 + r)
				}
				elem.Scale(ty, scaled[r], srcs[r], float64(r)+1.5)
			}
			want := make([]byte, count*size)
			colltest.Fold(ty, elem.Sum, want, scaled)
			each(t, all, func(g *gpuRank) error {
				got := make([]byte, count*size)
				err := g.on(bytes.Clone(srcs[g.Rank()]), got, func(s, r coll.Buffer) error {
					return g.Comm.Do(&op.Op{Coll: op.AllReduce, Send: op.Memory(s.Addr(), s.Len()), Recv: op.Memory(r.Addr(), r.Len()), Device: true, Count: count, Type: ty, Red: elem.Sum, Scale: float64(g.Rank()) + 1.5, Scaled: true})
				})
				if err != nil {
					return err
				}
				if err := differ("AllReduce with a factor", g, ty, elem.Sum, got, want); err != nil {
					return err
				}
				// The same factor, in device memory, where it is when the operation runs.
				factor := binary.LittleEndian.AppendUint64(nil, oneOf[ty])[:size]
				elem.Scale(ty, factor, factor, float64(g.Rank())+1.5)
				at := g.at(arenaBytes-64, size)
				if err := g.dev.in(func() error { return driver.CopyToDevice(driver.Ptr(at.Addr()), factor) }); err != nil {
					return err
				}
				err = g.on(bytes.Clone(srcs[g.Rank()]), got, func(s, r coll.Buffer) error {
					return g.Comm.Do(&op.Op{Coll: op.AllReduce, Send: op.Memory(s.Addr(), s.Len()), Recv: op.Memory(r.Addr(), r.Len()), Device: true, Count: count, Type: ty, Red: elem.Sum, Scaled: true, Factor: uint64(at.Addr()), FactorAt: true})
				})
				if err != nil {
					return err
				}
				return differ("AllReduce with a factor on the device", g, ty, elem.Sum, got, want)
			})
		}
	}
}

// One goroutine is all ranks, and has everyone exchange messages of all
// lengths with everyone, itself included, between collectives.
func TestGroup(t *testing.T) {
	devices := gpuCount(t)
	for name, w := range places(devices) {
		t.Run(name, func(t *testing.T) {
			lock(t)
			all := w.open(t)
			n := len(all)
			lengths := []int{1, 300, 5000, 100_000, limit(1_500_000)}
			slot := 2 << 20
			at := func(kind, peer, i int) int {
				return ((kind*n+peer)*len(lengths) + i) * slot % (arenaBytes - slot) / 256 * 256
			}
			if 2*n*len(lengths)*slot+3<<20 > arenaBytes {
				lengths = lengths[:3]
				slot = 64 << 10
			}
			sums := 2 * n * len(lengths) * slot
			for r, g := range all {
				for p := range n {
					for i, length := range lengths {
						fillDevice(t, g, at(0, p, i), length, byte(r*31+p*7+i))
						fillDevice(t, g, at(1, p, i), length, 0)
					}
				}
				fillDevice(t, g, sums, 1024, byte(r+1))
			}
			var group coll.Group
			for round := range 3 {
				group.Start()
				for r, g := range all {
					group.Add(g.Comm)
					for k := range n {
						p := (r + k) % n
						for i, length := range lengths {
							if err := errors.Join(
								g.Send(g.at(at(0, p, i), length), length, coll.Uint8, p),
								g.Recv(g.at(at(1, p, i), length), length, coll.Uint8, p),
							); err != nil {
								t.Fatal(err)
							}
						}
						if k == 0 {
							for range 2 {
								if err := g.Comm.AllReduce(g.at(sums, 1024), g.at(sums+2048, 1024), 1024, coll.Uint8, coll.Sum); err != nil {
									t.Fatal(err)
								}
							}
						}
					}
				}
				if err := group.End(); err != nil {
					t.Fatal(round, err)
				}
			}
			for r, g := range all {
				if err := g.wait(); err != nil {
					t.Fatal(err)
				}
				for p := range n {
					for i, length := range lengths {
						same(t, g, at(1, p, i), length, byte(p*31+r*7+i))
					}
				}
				same(t, g, sums+2048, 1024, byte(n*(n+1)/2))
			}
		})
	}
}

func fillDevice(t *testing.T, g *gpuRank, offset, n int, v byte) {
	t.Helper()
	err := g.dev.in(func() error {
		return errors.Join(driver.Memset8Async(g.arena+driver.Ptr(offset), v, n, g.stream), g.stream.Synchronize())
	})
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, g *gpuRank, offset, n int, want byte) {
	t.Helper()
	got := make([]byte, n)
	if err := g.dev.in(func() error { return driver.CopyFromDevice(got, g.arena+driver.Ptr(offset)) }); err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if b != want {
			t.Fatalf("rank %d: byte %d of %d at %d is %d; want %d", g.Rank(), i, n, offset, b, want)
		}
	}
}

// One buffer goes to several ranks in lengths that differ by a byte: a kernel that keeps what it has
// loaded for the shorter message sent zeros at the end of the longer one.
func TestSendOneBuffer(t *testing.T) {
	const n = 5000
	w := spread(3, gpuCount(t))
	for _, algo := range []string{"exchange_ll:4:512:0", "exchange_ll128:1:512:0", "exchange_simple:2:512:4096"} {
		t.Run(algo, func(t *testing.T) {
			w.set = func(k *knob.Knobs) { k.GPUAlgo = algo }
			each(t, w.open(t), func(g *gpuRank) error {
				if err := g.dev.in(func() error { return driver.Memset8(g.arena, byte(g.Rank()+1), 2*n) }); err != nil {
					return err
				}
				g.group.Start()
				g.group.Add(g.Comm)
				for p := range 3 { // to the next rank a byte less than to the one after
					if p != g.Rank() {
						_ = g.Send(g.at(0, n), n-(g.Rank()+5-p)%3, coll.Uint8, p)
						_ = g.Recv(g.at(n+p*2*n, n), n-(p+5-g.Rank())%3, coll.Uint8, p)
					}
				}
				if err := errors.Join(g.group.End(), g.wait(), g.AsyncError()); err != nil {
					return err
				}
				for p := range 3 {
					got := make([]byte, n-(p+5-g.Rank())%3)
					if p == g.Rank() {
						continue
					}
					if err := g.dev.in(func() error { return driver.CopyFromDevice(got, g.arena+driver.Ptr(n+p*2*n)) }); err != nil {
						return err
					}
					if i := slices.IndexFunc(got, func(b byte) bool { return b != byte(p+1) }); i >= 0 {
						return fmt.Errorf("rank %d: byte %d of %d from rank %d is %d, by %s", g.Rank(), i, len(got), p, got[i], g.Chosen())
					}
				}
				return nil
			})
		})
	}
}

// An AllToAll, in place and not, by everything that does one.
func TestAllToAll(t *testing.T) {
	n := gpuCount(t)
	for name, w := range places(n) {
		t.Run(name, func(t *testing.T) { testAllToAll(t, w, noKernel) })
	}
	for k := range copies + 1 {
		if k.does(op.AllToAll) {
			t.Run(k.String(), func(t *testing.T) {
				t.Setenv("ASSAY_GPU_ALGO", choice{k, 3, 96, leastCopy}.String())
				testAllToAll(t, spread(min(max(2, n), maxRanks), n), k)
			})
		}
	}
}

func testAllToAll(t *testing.T, w world, by kernel) {
	all := w.open(t)
	for i, count := range []int{5, 70_000, limit(3_000_000), 200_000} {
		inPlace := i < 3
		each(t, all, func(g *gpuRank) error {
			send := make([]byte, count*w.ranks)
			for i := range send {
				send[i] = byte(g.Rank()*16 + i/count + i%7)
			}
			recv := send
			if !inPlace {
				recv = make([]byte, len(send))
			}
			if err := g.Do(&op.Op{Coll: op.AllToAll, Send: send, Recv: recv, Count: count, Type: elem.Uint8}); err != nil {
				return err
			}
			for i := range recv {
				at := g.Rank()*count + i%count // in the sender's
				if want := byte(i/count*16 + g.Rank() + at%7); recv[i] != want {
					return fmt.Errorf("rank %d, %d each: byte %d is %d; want %d", g.Rank(), count, i, recv[i], want)
				}
			}
			return nil
		})
	}
	if got := all[0].Chosen(); by == copies && w.ranks&(w.ranks-1) == 0 && !strings.HasPrefix(got, "copy/") {
		t.Errorf("the last one was done by %s", got)
	}
}

// Sends and Recvs by copy engines, of which each rank lists those that it has a
// part in; and what is received where it was sent from.
func TestCopiedExchanges(t *testing.T) {
	devices := ownGPUs(t, 2)
	t.Setenv("ASSAY_GPU_ALGO", choice{copies, 8, exchangeThreads, leastCopy}.String())
	w := spread(min(devices, maxRanks), devices)
	all := w.open(t)
	type message struct{ from, to, bytes, sendAt, recvAt int }
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		at := 0
		place := func(n int) int { at += (n + 511) / 256 * 256; return at - (n+511)/256*256 }
		var messages []message
		if seed%2 == 0 { // in place at both ends, the first message each way
			m := message{from: 0, to: 1, bytes: 4*leastCopy + 5}
			m.sendAt = place(m.bytes)
			m.recvAt = m.sendAt
			back := m
			back.from, back.to = 1, 0
			messages = append(messages, m, back)
		}
		for range 1 + rnd.IntN(8) {
			m := message{from: rnd.IntN(w.ranks), bytes: 1 + rnd.IntN(5*leastCopy)}
			m.to = (m.from + 1 + rnd.IntN(w.ranks-1)) % w.ranks
			m.sendAt, m.recvAt = place(m.bytes), place(m.bytes)
			messages = append(messages, m)
		}
		each(t, all, func(g *gpuRank) error {
			me := g.Rank()
			var send, recv []message
			for i, m := range messages {
				if m.from == me {
					send = append(send, m)
					if err := g.dev.in(func() error {
						return driver.CopyToDevice(g.arena+driver.Ptr(m.sendAt), pattern(i, m.bytes))
					}); err != nil {
						return err
					}
				}
				if m.to == me {
					recv = append(recv, m)
				}
			}
			g.group.Start()
			g.group.Add(g.Comm)
			for _, m := range recv {
				if err := g.Recv(g.at(m.recvAt, m.bytes), m.bytes, coll.Uint8, m.from); err != nil {
					return err
				}
			}
			for _, m := range send {
				if err := g.Send(g.at(m.sendAt, m.bytes), m.bytes, coll.Uint8, m.to); err != nil {
					return err
				}
			}
			if err := errors.Join(g.group.End(), g.wait()); err != nil {
				return err
			}
			for i, m := range messages {
				if m.to != me {
					continue
				}
				got := make([]byte, m.bytes)
				if err := g.dev.in(func() error { return driver.CopyFromDevice(got, g.arena+driver.Ptr(m.recvAt)) }); err != nil {
					return err
				}
				if !bytes.Equal(got, pattern(i, m.bytes)) {
					return fmt.Errorf("seed %d, rank %d: message %d, %d bytes from %d, is wrong", seed, me, i, m.bytes, m.from)
				}
			}
			if len(send)+len(recv) > 0 && !strings.HasPrefix(g.Chosen(), "copy/") {
				return fmt.Errorf("rank %d: by %s", me, g.Chosen())
			}
			return nil
		})
	}
}

// pattern is what a message has in it.
func pattern(i, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(i), 9}).Read(b) // never fails
	return b
}

// Operations that go from stream to stream are done in their order.
func TestStreams(t *testing.T) {
	n := gpuCount(t)
	for name, w := range places(n) {
		t.Run(name, func(t *testing.T) {
			all := w.open(t)
			each(t, all, func(g *gpuRank) error {
				var streams [3]driver.Stream
				err := g.dev.in(func() (err error) {
					for i := range streams {
						if streams[i], err = driver.NewStream(0); err != nil {
							return err
						}
					}
					return driver.Memset8(g.arena, 1, 4)
				})
				if err != nil {
					return err
				}
				const rounds = 20
				for i := range rounds {
					if err := g.SetStream(uintptr(streams[i%3])); err != nil {
						return err
					}
					if err := g.Comm.AllReduce(g.at(0, 4), g.at(0, 4), 1, coll.Uint32, coll.Sum); err != nil {
						return err
					}
				}
				if err := g.SetStream(uintptr(g.stream)); err != nil {
					return err
				}
				if err := g.wait(); err != nil {
					return err
				}
				want := uint32(0x01010101)
				for range rounds {
					want *= uint32(w.ranks)
				}
				var got [4]byte
				if err := g.dev.in(func() error { return driver.CopyFromDevice(got[:], g.arena) }); err != nil {
					return err
				}
				if v := uint32(got[0]) | uint32(got[1])<<8 | uint32(got[2])<<16 | uint32(got[3])<<24; v != want {
					return fmt.Errorf("rank %d: %#x; want %#x", g.Rank(), v, want)
				}
				return g.dev.in(func() error {
					return errors.Join(streams[0].Destroy(), streams[1].Destroy(), streams[2].Destroy())
				})
			})
		})
	}
}

// Copy engines do what kernels do, in several chunks, and in graphs.
func TestCopies(t *testing.T) {
	n := ownGPUs(t, 2)
	t.Setenv("ASSAY_GPU_ALGO", choice{copies, 8, exchangeThreads, leastCopy}.String())
	for _, c := range []struct {
		ranks int
		set   func(*knob.Knobs)
	}{{2, nil}, {min(max(2, n), maxRanks), nil}, {2, zeroCTAs}, {min(max(2, n), maxRanks), zeroCTAs}} {
		ranks, w := c.ranks, spread(c.ranks, n)
		w.set = c.set
		colltest.Run(t, colltest.Options{Ranks: []int{ranks}}, conformers(w))
		all := w.open(t)
		for _, ty := range []elem.Type{elem.Uint8, elem.Float32, elem.BFloat16} {
			exact(t, all, ty, elem.Sum, 1_100_001/ty.Size())
			if by := all[0].Chosen(); !(ranks > 2 && kernels.Rounds(ty, elem.Sum)) && by != "copy/8" {
				t.Errorf("a Reduce is done by %s", by)
			}
		}
		replay(t, w, all, []int{64, 40_000, 700_000})
	}
}

// TestLinks: LL128, whose lines must arrive whole, is used where NVLink connects all devices.
func TestLinks(t *testing.T) {
	n := gpuCount(t)
	if n < 2 {
		t.Skip("there is one GPU")
	}
	t.Setenv("ASSAY_GPU_ALGO", choice{kernel: allReduceLL128, channels: 8, threads: exchangeThreads}.String())
	all := spread(2, n).open(t)
	exact(t, all, elem.Int32, elem.Sum, 30_000)
	each(t, all, func(g *gpuRank) error {
		err := errors.Join(g.Comm.AllReduce(g.at(0, 120_000), g.at(0, 120_000), 30_000, coll.Int32, coll.Sum), g.wait())
		if whole := strings.Contains(g.Chosen(), "ll128"); whole != g.dev.ctx.Linked(1-g.dev.ctx.Ordinal()) {
			t.Errorf("it is done by %s; LL128: %v", g.Chosen(), !whole)
		}
		return err
	})
}

// TestLargeAverages: copies and the kernels beside them average numbers whose sum is more than a float can have.
func TestLargeAverages(t *testing.T) {
	n := ownGPUs(t, 2)
	t.Setenv("ASSAY_GPU_ALGO", choice{copies, 8, exchangeThreads, leastCopy}.String())
	for name, set := range map[string]func(*knob.Knobs){"rounds": nil, "one kernel": zeroCTAs} {
		t.Run(name, func(t *testing.T) {
			w := spread(min(max(2, n), maxRanks), n)
			w.set = set
			average(t, w.open(t), 275_000)
		})
	}
}

func average(t *testing.T, all []*gpuRank, count int) {
	t.Helper()
	const value = 3e38
	n := 4 * count
	in := bytes.Repeat(binary.NativeEndian.AppendUint32(nil, math.Float32bits(value)), count)
	each(t, all, func(g *gpuRank) error {
		if err := g.dev.in(func() error { return driver.CopyToDevice(g.arena, in) }); err != nil {
			return err
		}
		out := make([]byte, n)
		for reduce := range 2 {
			at := (1 + reduce) * 8 << 20
			var err error
			if reduce == 0 {
				err = g.Comm.AllReduce(g.at(0, n), g.at(at, n), count, coll.Float32, coll.Avg)
			} else {
				err = g.Comm.Reduce(g.at(0, n), g.at(at, n), count, coll.Float32, coll.Avg, 0)
			}
			err = errors.Join(err, g.wait(), g.AsyncError(), g.dev.in(func() error { return driver.CopyFromDevice(out, g.arena+driver.Ptr(at)) }))
			if err != nil {
				return err
			}
			if reduce == 1 && g.Rank() > 0 {
				break
			}
			for i := range count {
				if v := math.Float32frombits(binary.NativeEndian.Uint32(out[4*i:])); math.Abs(float64(v)/value-1) > 1e-6 {
					return fmt.Errorf("by %s: element %d of the average is %v; want %v", g.Chosen(), i, v, value)
				}
			}
		}
		return nil
	})
}

// A graph of operations can be replayed, between others that are not captured.
func TestGraph(t *testing.T) {
	n := gpuCount(t)
	w := spread(min(max(2, n), maxRanks), n)
	for name, set := range map[string]func(*knob.Knobs){"devices": nil, "hosted": hosted} {
		t.Run(name, func(t *testing.T) {
			w.set = set
			replay(t, w, w.open(t), []int{64, 40_000, limit(3 << 20)})
		})
	}
}

func replay(t *testing.T, w world, all []*gpuRank, lengths []int) {
	each(t, all, func(g *gpuRank) error {
		capture := func() error {
			for _, count := range lengths {
				if err := g.Comm.AllReduce(g.at(0, count), g.at(8<<20, count), count, coll.Uint8, coll.Sum); err != nil {
					return err
				}
				if err := g.Comm.AllGather(g.at(0, count), g.at(16<<20, count*w.ranks), count, coll.Uint8); err != nil {
					return err
				}
			}
			return nil
		}
		if err := g.dev.in(func() error { return driver.Memset8(g.arena, byte(g.Rank()+1), 4<<20) }); err != nil {
			return err
		}
		return g.dev.in(func() error {
			if err := g.stream.BeginCapture(); err != nil {
				return err
			}
			if err := capture(); err != nil {
				return err
			}
			graph, err := g.stream.EndCapture()
			if err != nil {
				return err
			}
			exec, err := graph.Instantiate()
			if err != nil {
				return err
			}
			for i := range 50 {
				if i%10 == 3 {
					if err := capture(); err != nil {
						return err
					}
				}
				if err := exec.Launch(g.stream); err != nil {
					return err
				}
			}
			if err := g.stream.Synchronize(); err != nil {
				return err
			}
			got := make([]byte, lengths[2]*w.ranks)
			if err := driver.CopyFromDevice(got[:lengths[2]], g.arena+8<<20); err != nil {
				return err
			}
			for i, b := range got[:lengths[2]] {
				if b != byte(w.ranks*(w.ranks+1)/2) {
					return fmt.Errorf("rank %d: sum %d at %d", g.Rank(), b, i)
				}
			}
			if err := driver.CopyFromDevice(got, g.arena+16<<20); err != nil {
				return err
			}
			for i, b := range got {
				if b != byte(i/lengths[2]+1) {
					return fmt.Errorf("rank %d: gathered %d at %d", g.Rank(), b, i)
				}
			}
			return errors.Join(exec.Destroy(), graph.Destroy())
		})
	})
}

// What is staged is not captured, and says so.
func TestStagedGraph(t *testing.T) {
	w := spread(2, gpuCount(t))
	w.set = staged
	all := w.open(t)
	g := all[0]
	err := g.dev.in(func() error {
		if err := g.stream.BeginCapture(); err != nil {
			return err
		}
		err := g.Comm.AllReduce(g.at(0, 4), g.at(0, 4), 1, coll.Uint32, coll.Sum)
		if graph, err := g.stream.EndCapture(); err == nil {
			_ = graph.Destroy()
		}
		return err
	})
	if coll.CodeOf(err) != coll.InvalidUsage {
		t.Errorf("%v; want invalid usage", err)
	}
}

// Calls cost little and allocate nothing.
func TestEnqueueCost(t *testing.T) {
	w := spread(1, gpuCount(t))
	w = spread(max(2, len(w.devices)), gpuCount(t))
	all := w.open(t)
	each(t, all, func(g *gpuRank) error {
		return g.dev.in(func() error {
			const rounds = 300
			for pass := range 2 {
				start := time.Now()
				var err error
				n := testing.AllocsPerRun(1, func() {
					for range rounds {
						if e := g.Comm.AllReduce(g.at(0, 1024), g.at(4096, 1024), 256, coll.Float32, coll.Sum); e != nil {
							err = e
						}
					}
				})
				each := time.Since(start) / (2 * rounds)
				if err != nil {
					return err
				}
				if err := g.stream.Synchronize(); err != nil {
					return err
				}
				if pass == 0 || g.Rank() > 0 {
					continue
				}
				t.Logf("%v a call, %v allocations in %d", each, n, rounds)
				if n > rounds/10 {
					return fmt.Errorf("%d calls made %v allocations", rounds, n)
				}
			}
			return nil
		})
	})
}
