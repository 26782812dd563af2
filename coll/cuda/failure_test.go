//go:build cuda && cgo

package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

func TestMain(m *testing.M) {
	colltest.Main(m, map[string]func(colltest.Self) error{"rank": rank, "reuse": reuse, "registered": registeredRank})
}

// works checks that operations work on communicators that are made now.
func works(t *testing.T, w world) {
	t.Helper()
	for _, count := range []int{10, 100_000} {
		exact(t, w.open(t), coll.Int32, coll.Sum, count) // staged, the order is another
	}
}

// An Abort ends kernels that wait for a rank which never comes; the devices
// are usable afterwards.
func TestAbort(t *testing.T) {
	for name, w := range places(gpuCount(t)) {
		if w.ranks == 1 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, count := range []int{64, limit(4 << 20)} {
				all := w.open(t)
				errs := make(chan error, w.ranks)
				for _, g := range all[1:] {
					go func() {
						errs <- errors.Join(g.Comm.AllReduce(g.at(0, 4*count), g.at(0, 4*count), count, coll.Int32, coll.Sum), g.wait())
					}()
				}
				time.Sleep(100 * time.Millisecond)
				if err := all[0].Abort(); err != nil {
					t.Error(err)
				}
				for range all[1:] {
					select {
					case <-errs:
					case <-time.After(5 * time.Minute):
						t.Fatal("kernels do not end")
					}
				}
				for _, g := range all[1:] {
					if err := g.AsyncError(); !errors.Is(err, coll.ErrAborted) {
						t.Errorf("rank %d: %v; want one that it was aborted", g.Rank(), err)
					}
					if err := g.Comm.AllReduce(g.at(0, 8), g.at(0, 8), 2, coll.Int32, coll.Sum); err == nil {
						t.Errorf("rank %d: an operation after it", g.Rank())
					}
				}
			}
			works(t, w)
		})
	}
}

// A kernel that waits for too long leaves and says for whom.
func TestTimeout(t *testing.T) {
	n := gpuCount(t)
	w := spread(max(2, min(n, maxRanks)), n)
	for name, set := range map[string]func(*knob.Knobs){"devices": nil, "hosted": hosted} {
		t.Run(name, func(t *testing.T) {
			w.set = set
			timeout(t, w)
		})
	}
}

func timeout(t *testing.T, w world) {
	timeoutOf(t, w, func(g *gpuRank) error {
		return g.Comm.Broadcast(g.at(0, 8), g.at(0, 8), 2, coll.Int32, 1)
	})
}

// timeoutOf has rank 0 do what needs rank 1, which does not come.
func timeoutOf(t *testing.T, w world, do func(*gpuRank) error) {
	w.timeout = time.Second
	all := w.open(t)
	g := all[0]
	start := time.Now()
	if err := do(g); err != nil {
		t.Fatal(err)
	}
	if err := g.wait(); err != nil {
		t.Fatal(err)
	}
	err := g.AsyncError() // at once
	var e *coll.Error
	if !errors.As(err, &e) || e.Code != coll.Timeout || e.Peer != 1 {
		t.Errorf("after %v: %v; want a timeout about rank 1", time.Since(start), err)
	}
	w.timeout = 0
	works(t, w)
}

// A kernel that stays for all rounds of a ring of copies ends like others, and leaves no stream that
// waits for it, whether a rank does not come or does something else.
func TestRingEnds(t *testing.T) {
	t.Setenv("ASSAY_GPU_ALGO", choice{copies, 8, exchangeThreads, leastCopy}.String())
	n := ownGPUs(t, 2)
	w := spread(2, n)
	w.set = zeroCTAs
	const count = 1_000_000
	released := func(g *gpuRank) {
		soon(t, "the streams of copies", func() error {
			k := copierOf(g)
			return g.dev.in(func() error {
				return errors.Join(k.waits.Synchronize(), k.stream.Synchronize(), k.tells.Synchronize())
			})
		})
	}
	t.Run("timeout", func(t *testing.T) {
		timeoutOf(t, w, func(g *gpuRank) error {
			t.Cleanup(func() { released(g) })
			return g.Comm.AllReduce(g.at(0, count), g.at(count, count), count, coll.Uint8, coll.Sum)
		})
	})
	t.Run("abort", func(t *testing.T) {
		all := w.open(t)
		g := all[0]
		if err := g.Comm.AllReduce(g.at(0, count), g.at(count, count), count, coll.Uint8, coll.Sum); err != nil {
			t.Fatal(err)
		}
		if !copierOf(g).on {
			t.Error("no kernel stays")
		}
		if err := all[1].Abort(); err != nil {
			t.Error(err)
		}
		soon(t, "the kernel", g.wait)
		released(g)
	})
	t.Run("mismatch", func(t *testing.T) {
		w.timeout = time.Second
		all := w.open(t)
		each(t, all, func(g *gpuRank) error {
			red := coll.Sum
			if g.Rank() == 1 {
				red = coll.Max
			}
			return errors.Join(g.Comm.AllReduce(g.at(0, count), g.at(count, count), count, coll.Uint8, red), g.wait())
		})
		for _, g := range all {
			released(g)
			soon(t, "an error", func() error {
				for g.AsyncError() == nil {
					time.Sleep(10 * time.Millisecond)
				}
				return nil
			})
		}
	})
	w.timeout = 0
	works(t, w)
}

// A rank leaves, and nobody tells the others, of which one is late. What ends on a rank that has no
// error is right, although the copies that the rank that has left had enqueued go on.
func TestLeftAlone(t *testing.T) {
	n := ownGPUs(t, 3)
	w := spread(3, n)
	for name, set := range map[string]func(*knob.Knobs){"rounds": func(*knob.Knobs) {}, "one kernel": zeroCTAs} {
		for _, c := range []op.Collective{op.Broadcast, op.Reduce, op.AllGather} {
			if c == op.AllGather && name != "rounds" { // there is room for ten communicators
				continue
			}
			t.Run(fmt.Sprintf("%s, %v", name, c), func(t *testing.T) {
				t.Setenv("ASSAY_GPU_ALGO", choice{copies, 8, exchangeThreads, leastCopy}.String())
				w.set = func(k *knob.Knobs) {
					set(k)
					k.Timeout = 0
				}
				for i := range 2 { // each has a part of a copy buffer for a minute, and there are 11
					leaves(t, w, c, i == 0, rand.New(rand.NewPCG(uint64(i), uint64(c))))
				}
			})
		}
	}
	w.set = nil
	works(t, w)
}

// leaves has rank 0 leave during two operations, before rank 2, which is late, begins them, or behind that.
// Broadcasts are from rank 2 and Reduces to rank 1: rank 0 passes on what rank 2 sends.
func leaves(t *testing.T, w world, c op.Collective, before bool, r *rand.Rand) {
	const part = 400_000 // bytes
	all := w.open(t)
	n := len(all)
	late := all[2]
	var in [2][][]byte // by operation and rank
	var want [2][]byte
	for o := range in {
		for range n {
			b := make([]byte, n*part)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			in[o] = append(in[o], b)
		}
		want[o] = make([]byte, n*part)
		for i := range want[o] {
			switch c {
			case op.Broadcast:
				want[o][i] = in[o][2][i]
			case op.Reduce:
				for _, x := range in[o] {
					want[o][i] += x[i]
				}
			case op.AllGather:
				want[o][i] = in[o][i/part][i%part]
			}
		}
	}
	const whole = 2 << 20
	each(t, all, func(g *gpuRank) error {
		for o := range in {
			if err := g.dev.in(func() error {
				return driver.CopyToDevice(g.arena+driver.Ptr(2*o*whole), in[o][g.Rank()])
			}); err != nil {
				return err
			}
		}
		return nil
	})
	do := func(g *gpuRank) error {
		for o := range in {
			send, recv := g.at(2*o*whole, n*part), g.at((2*o+1)*whole, n*part)
			var err error
			switch c {
			case op.Broadcast:
				err = g.Comm.Broadcast(send, recv, n*part, coll.Uint8, 2)
			case op.Reduce:
				err = g.Comm.Reduce(send, recv, n*part, coll.Uint8, coll.Sum, 1)
			case op.AllGather:
				err = g.Comm.AllGather(g.at(2*o*whole, part), recv, part, coll.Uint8)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	check := func(g *gpuRank) error {
		for o := range in {
			got := make([]byte, n*part)
			if err := g.dev.in(func() error { return driver.CopyFromDevice(got, g.arena+driver.Ptr((2*o+1)*whole)) }); err != nil {
				return err
			}
			if (c != op.Reduce || g.Rank() == 1) && !bytes.Equal(got, want[o]) {
				return fmt.Errorf("rank %d has ended operation %d of 2 with wrong data", g.Rank(), o+1)
			}
		}
		return nil
	}
	start := time.Now()
	each(t, all, func(g *gpuRank) error { return errors.Join(do(g), g.wait(), check(g)) })
	patience := 3*time.Since(start) + time.Second
	if by := all[0].Chosen(); !strings.HasPrefix(by, "copy/") {
		t.Errorf("done by %s", by)
	}
	for _, g := range all { // what is there already is right
		if err := g.dev.in(func() error {
			return errors.Join(driver.Memset8(g.arena+whole, 0, whole), driver.Memset8(g.arena+3*whole, 0, whole))
		}); err != nil {
			t.Fatal(err)
		}
	}
	var word *driver.Pinned
	if err := late.dev.in(func() (err error) {
		if word, err = driver.HostAlloc(64); err != nil {
			return err
		}
		return late.stream.WaitValue32(word.Ptr, 1)
	}); err != nil {
		t.Fatal(err)
	}
	each(t, all, do)
	pause := func() { time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond) }
	goOn := func() { atomic.StoreUint32((*uint32)(unsafe.Pointer(&word.Bytes[0])), 1) }
	stop := func() { all[0].Executor().(*engine).Abort(nil) }
	if before {
		pause()
		stop()
		soon(t, "the stream of rank 0", all[0].wait)
		goOn()
	} else {
		goOn()
		pause()
		stop()
	}
	var waiting sync.WaitGroup
	for _, g := range all[1:] {
		waiting.Go(func() {
			var done bool
			for until := time.Now().Add(patience); !done && time.Now().Before(until); { // or it waits for rank 0
				time.Sleep(10 * time.Millisecond)
				if err := g.dev.in(func() (err error) { done, err = g.stream.Query(); return err }); err != nil {
					t.Error(err)
				}
			}
			if !done || g.AsyncError() != nil {
				return
			}
			if err := check(g); err != nil {
				t.Errorf("%v, and without an error", err)
			}
		})
	}
	waiting.Wait()
	for _, g := range all {
		_ = g.Abort()
	}
	soon(t, "all streams", func() error {
		var errs []error
		for _, g := range all {
			errs = append(errs, g.wait())
		}
		return errors.Join(append(errs, late.dev.in(word.Free))...)
	})
}

func copierOf(g *gpuRank) *copier { return &g.Executor().(*engine).copier }

// soon fails the test if f does not return.
func soon(t *testing.T, what string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s: no end", what)
	}
}

// A staged operation is behind work of the caller's that never ends: an Abort
// does not wait for it, and what the lanes would still touch stays.
func TestStagedAbort(t *testing.T) {
	n := gpuCount(t)
	w := spread(2, n)
	w.set = staged
	all := w.open(t)
	g := all[0]
	var word *driver.Pinned
	err := g.dev.in(func() (err error) {
		if word, err = driver.HostAlloc(64); err != nil {
			return err
		}
		return g.stream.WaitValue32(word.Ptr, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	const count = 1 << 10
	each(t, all, func(g *gpuRank) error {
		return g.Comm.AllReduce(g.at(0, 4*count), g.at(4*count, 4*count), count, coll.Int32, coll.Sum)
	})
	soon(t, "Abort", g.Abort)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&word.Bytes[0])), 1)
	soon(t, "the stream, once it can go on", g.wait)
	soon(t, "the other rank's stream", all[1].wait)
	if err := g.dev.in(word.Free); err != nil {
		t.Error(err)
	}
	works(t, w)
}

// A rank has no memory for copies. The others must not wait for their devices
// when they learn of that: something there may wait for a rank that waits for
// them.
func TestRoomRefused(t *testing.T) {
	if os.Getenv("FAKE_SMALL") == "" {
		t.Skip("TestEmulated starts this one, with a device that has little memory")
	}
	t.Setenv("ASSAY_GPU_ALGO", choice{copies, 8, exchangeThreads, leastCopy}.String())
	large := spread(2, 2).open(t)
	t.Setenv("ASSAY_GPU_ALGO", "")
	small := spread(2, 2).open(t)
	const count = 10_000
	reduce := func(g *gpuRank) error {
		return g.Comm.AllReduce(g.at(0, 4*count), g.at(4*count, 4*count), count, coll.Float32, coll.Sum) // whose kernels are there from the start
	}
	soon(t, "two communicators in turn", func() error {
		errs := make(chan error)
		go func() { // the other one's kernel waits while this one's copy buffer is refused
			errs <- errors.Join(reduce(small[0]), reduce(large[0]), large[0].wait(), small[0].wait())
		}()
		go func() {
			errs <- errors.Join(reduce(large[1]), large[1].wait(), reduce(small[1]), small[1].wait())
		}()
		return errors.Join(<-errs, <-errs)
	})
	if by := large[0].Chosen(); strings.HasPrefix(by, "copy/") {
		t.Errorf("the operation was done by %s, without memory for it", by)
	}
}

// Ranks that differ are told in which way.
func TestMismatch(t *testing.T) {
	n := gpuCount(t)
	w := spread(max(2, min(n, maxRanks)), n)
	all := w.open(t)
	each(t, all, func(g *gpuRank) error {
		o := coll.Sum
		if g.Rank() == 1 {
			o = coll.Max
		}
		return g.Comm.AllReduce(g.at(0, 64), g.at(64, 64), 16-g.Rank(), coll.Int32, o)
	})
	deadline := time.Now().Add(5 * time.Minute)
	for all[0].AsyncError() == nil && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if err := all[0].AsyncError(); coll.CodeOf(err) != coll.InvalidUsage && coll.CodeOf(err) != coll.RemoteError {
		t.Errorf("%v", err)
	}
}

// rank is one process of TestProcesses: "sums" does operations and ends; "dies"
// has rank 0 end in the middle.
func rank(s colltest.Self) error {
	g, err := joinProcess(s, "id")
	if err != nil {
		return err
	}
	in, out := make([]byte, 100_000), make([]byte, 100_000)
	for round := range 20 {
		if round == 10 && strings.Contains(s.Arg, "dies") && s.Rank == 0 {
			return nil
		}
		for i := range in {
			in[i] = byte(i + s.Rank + round)
		}
		if err := g.Do(&op.Op{Coll: op.AllReduce, Send: in, Recv: out, Count: len(in), Type: coll.Uint8}); err != nil {
			return err
		}
		for i, b := range out {
			if want := byte(s.Size*(i+round) + s.Size*(s.Size-1)/2); b != want {
				return fmt.Errorf("round %d: byte %d is %d; want %d", round, i, b, want)
			}
		}
	}
	return g.close()
}

// joinProcess makes the communicator of a job of processes, whose ID has a name
// among them. Their argument begins with the number of devices.
func joinProcess(s colltest.Self, name string) (*gpuRank, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	k := knob.Default()
	k.Timeout = 20 * time.Second
	k.GPUAlgo = os.Getenv("ASSAY_GPU_ALGO")
	switch {
	case strings.Contains(s.Arg, "hosted"):
		hosted(k)
	case strings.Contains(s.Arg, "staged"):
		staged(k)
	case strings.Contains(s.Arg, "direct"):
		direct(k)
	}
	var devices, here int
	if _, err := fmt.Sscanf(s.Arg, "%d", &devices); err != nil {
		return nil, err
	}
	here = s.Rank % devices
	cfg := coll.Config{Knobs: k, Device: &here, GPUs: Factory, Silence: 2 * time.Second}
	var id coll.UniqueID
	if s.Rank == 0 {
		var err error
		if id, err = coll.GetUniqueID(cfg); err != nil {
			return nil, err
		}
		if err := s.Publish(name, id[:]); err != nil {
			return nil, err
		}
	} else {
		b, err := s.Await(ctx, name)
		if err != nil {
			return nil, err
		}
		copy(id[:], b)
	}
	c, err := coll.CommInitRank(ctx, s.Size, id, s.Rank, cfg)
	if err != nil {
		return nil, err
	}
	g, err := newRank(c)
	if err != nil {
		return nil, err
	}
	if strings.Contains(s.Arg, "hosted") && g.way() != "hosted" {
		return nil, errors.New(g.way())
	}
	if e, ok := g.Executor().(*engine); strings.Contains(s.Arg, "descriptors") && (!ok || e.windows.kind != virtual) {
		return nil, fmt.Errorf("the windows are not shared by descriptors: %s", g.way())
	}
	return g, nil
}

func TestProcesses(t *testing.T) {
	n := gpuCount(t)
	for _, how := range []string{"", "hosted", "staged", "dies", "hosted dies", "staged dies"} {
		t.Run("ranks "+how, func(t *testing.T) {
			w := spread(max(2, min(n, maxRanks)), n)
			job := colltest.Start(t, colltest.JobOptions{Program: "rank", Ranks: w.ranks, Arg: fmt.Sprintf("%d %s", n, how)})
			for _, res := range job.Wait(90 * time.Second) {
				switch said := strings.Join(res.Errors(), "\n"); {
				case !strings.Contains(how, "dies"):
					if err := res.Clean(); err != nil {
						t.Error(err)
					}
				case res.Rank > 0 && !strings.Contains(said, "rank 0"):
					t.Errorf("%v; want an error about rank 0", res)
				}
			}
			works(t, w)
		})
	}
}

// Where processes do not get CUDA's own handles, as in some containers, windows and copy buffers are
// shared by file descriptors.
func TestDescriptors(t *testing.T) {
	n := gpuCount(t)
	t.Setenv("FAKE_NO_IPC", "1")
	w := spread(max(2, min(n, maxRanks)), n)
	if w.open(t)[0].dev.info.Name != "emulator" {
		t.Skip("a real driver has handles")
	}
	for _, algorithm := range []string{"", "copy"} {
		t.Setenv("ASSAY_GPU_ALGO", algorithm)
		job := colltest.Start(t, colltest.JobOptions{Program: "rank", Ranks: w.ranks, Arg: fmt.Sprintf("%d by descriptors", n)})
		for _, res := range job.Wait(90 * time.Second) {
			if err := res.Clean(); err != nil {
				t.Error(err)
			}
		}
	}
}

// With NCCL_CHECK_POINTERS, an address without memory is found before a kernel finds
// it, and the communicator goes on.
func TestPointers(t *testing.T) {
	for name, w := range places(gpuCount(t)) {
		t.Run(name, func(t *testing.T) {
			set := w.set
			w.set = func(k *knob.Knobs) {
				k.CheckPointers = true
				if set != nil {
					set(k)
				}
			}
			all := w.open(t)
			host := make([]byte, 4096)
			each(t, all, func(g *gpuRank) error {
				bad := coll.Device(uintptr(unsafe.Pointer(unsafe.SliceData(host))), len(host))
				for want, b := range map[string]coll.Buffer{"not an address": bad, "its allocation ends": g.at(arenaBytes-64, 4096)} {
					err := g.Comm.AllReduce(b, b, 1024, coll.Float32, coll.Sum)
					if coll.CodeOf(err) != coll.InvalidArgument || !strings.Contains(err.Error(), want) {
						return fmt.Errorf("rank %d: %v; want one with %q", g.Rank(), err, want)
					}
				}
				return nil
			})
			exact(t, all, coll.Uint32, coll.Sum, 1000) // in whatever order
		})
	}
}

// TestDuplicates: two ranks with one device are named, to each of them with the other.
func TestDuplicates(t *testing.T) {
	gpus := func(names string) (all []identity) {
		for _, n := range names {
			id := identity{}
			copy(id.UUID[:], "GPU-"+string(n))
			all = append(all, id)
		}
		return all
	}
	for _, c := range []struct {
		gpus string
		rank int
		want string
	}{
		{"abcd", 0, ""},
		{"abcb", 0, "rank 1 and rank 3 both have GPU-b"},
		{"abab", 0, "rank 0 and rank 2 both have GPU-a"},
		{"abab", 3, "rank 1 and rank 3 both have GPU-b"},
		{"aaaa", 2, "rank 0 and rank 2 both have GPU-a"},
	} {
		err := duplicates(c.rank, gpus(c.gpus))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, rank %d: %v; want %q", c.gpus, c.rank, err, c.want)
		}
	}
}
