//go:build cuda && cgo

package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// Enqueuing waits for nobody, and for nothing that runs: what would have to wait was
// done when the communicator was made.

// variety enqueues operation i of a sequence that has all types, reductions and
// collectives in it. Lengths are such that kernels of all protocols take part.
func (g *gpuRank) variety(i int) error {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	t := elem.Types[i%len(elem.Types)]
	red := elem.Op(i / len(elem.Types) % int(elem.Avg))
	count := 1 + r.IntN([]int{16, 1 << 10, 8 << 10}[i%3])
	root := r.IntN(g.Size())
	n := count * t.Size()
	one, other, all := g.at(0, n), g.at(48<<20, n), g.at(48<<20, n*g.Size())
	switch r.IntN(8) {
	case 0:
		return g.Comm.AllGather(one, all, count, t)
	case 1:
		return g.Comm.ReduceScatter(all, one, count, t, red)
	case 2:
		return g.Comm.Broadcast(one, one, count, t, root)
	case 3:
		return g.Comm.Reduce(one, one, count, t, red, root)
	case 4:
		g.group.Start()
		g.group.Add(g.Comm)
		next, prev := (g.Rank()+1)%g.Size(), (g.Rank()+g.Size()-1)%g.Size()
		err := errors.Join(g.Comm.Send(one, count, t, next), g.Comm.Recv(other, count, t, prev))
		return errors.Join(err, g.group.End())
	}
	return g.Comm.AllReduce(one, other, count, t, red)
}

// TestEnqueueAhead: a rank enqueues a thousand operations, all types and reductions
// among them, of which its peers have called none. A kernel of another communicator
// runs meanwhile, and waits for a peer that comes to it last of all.
func TestEnqueueAhead(t *testing.T) {
	const operations = 1000
	w := spread(2, gpuCount(t))
	first := w
	first.timeout = time.Minute // if anything stands still, it is not this that says so
	before, all := first.open(t), w.open(t)
	waiting := func(g *gpuRank) error { return g.Comm.AllReduce(g.at(0, 64), g.at(64, 64), 16, coll.Float32, coll.Sum) }
	enqueue := func(g *gpuRank) error {
		took := make([]time.Duration, operations)
		for i := range took {
			start := time.Now()
			if err := g.variety(i); err != nil {
				return fmt.Errorf("operation %d: %w", i, err)
			}
			took[i] = time.Since(start)
		}
		slices.Sort(took)
		t.Logf("rank %d: an operation that was not done before takes %v to enqueue, the slowest of a hundred %v, of all %v", g.Rank(), took[operations/2], took[operations*99/100], took[operations-1])
		return nil
	}
	soon(t, "the other communicator's operation", func() error { return waiting(before[0]) })
	soon(t, "a rank alone", func() error { return enqueue(all[0]) })
	soon(t, "its peer", func() error { return enqueue(all[1]) })
	for _, g := range all {
		soon(t, "the operations", g.ended)
	}
	soon(t, "the peer of the first", func() error { return errors.Join(waiting(before[1]), before[0].ended(), before[1].ended()) })
}

// ended waits for the stream, and returns the communicator's error.
func (g *gpuRank) ended() error { return errors.Join(g.wait(), g.AsyncError()) }

// TestAheadLeavesRoom: a rank enqueues many operations before its peer does. Their kernels leave room for those of
// another communicator, for which the peer waits first.
func TestAheadLeavesRoom(t *testing.T) {
	w := spread(2, gpuCount(t))
	for _, c := range []struct{ count, operations int }{{2, 400}, {limit(128 << 10), 40}} {
		ahead, other := w.open(t), w.open(t)
		reduce := func(g *gpuRank) error {
			return g.Comm.AllReduce(g.at(0, 4*c.count), g.at(4*c.count, 4*c.count), c.count, coll.Int32, coll.Sum)
		}
		many := func(g *gpuRank) error {
			for range c.operations {
				if err := reduce(g); err != nil {
					return err
				}
			}
			return nil
		}
		soon(t, "a rank alone", func() error { return many(ahead[0]) })
		each(t, other, func(g *gpuRank) error { return errors.Join(reduce(g), g.ended()) })
		soon(t, "its peer", func() error { return many(ahead[1]) })
		for _, g := range ahead {
			soon(t, "the operations", g.ended)
		}
	}
}

// TestStagedBehind: a communicator that goes through host memory is created, and its operations done, while another
// one's kernel waits for its peer.
func TestStagedBehind(t *testing.T) {
	before := spread(2, ownGPUs(t, 2)).open(t)
	reduce := func(g *gpuRank) error {
		return g.Comm.AllReduce(g.at(0, 64), g.at(64, 64), 16, coll.Float32, coll.Sum)
	}
	soon(t, "an operation that the peer has not called", func() error { return reduce(before[0]) })
	w := spread(2, 2)
	w.set = staged
	soon(t, "the communicator and its operations", func() error {
		each(t, w.open(t), func(g *gpuRank) error { return errors.Join(reduce(g), g.ended()) })
		return nil
	})
	soon(t, "the peer", func() error { return errors.Join(reduce(before[1]), before[0].ended(), before[1].ended()) })
}

// TestFewQueues: streams of a device share the few hardware queues that CUDA_DEVICE_MAX_CONNECTIONS says, 8 by
// default, and 1 as Megatron-LM asks for: what waits in one stream keeps what was enqueued later on others waiting.
// More communicators than there are queues, or two, are used in the same order by both ranks, ahead of the GPUs.
func TestFewQueues(t *testing.T) {
	n := ownGPUs(t, 2)
	queues, _ := strconv.Atoi(os.Getenv("CUDA_DEVICE_MAX_CONNECTIONS"))
	if queues < 1 || queues > 8 {
		t.Skip("CUDA_DEVICE_MAX_CONNECTIONS is not 1 to 8")
	}
	copying := choice{copies, 8, exchangeThreads, leastCopy}.String()
	for _, c := range []struct {
		name, algo    string
		set           func(*knob.Knobs)
		communicators int
	}{{"kernels", "", nil, 2}, {"hosted", "", hosted, 2}, {"staged", "", staged, queues + 2}, {"copies", copying, nil, 2}, {"one kernel", copying, zeroCTAs, 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("ASSAY_GPU_ALGO", c.algo)
			w := spread(2, n)
			w.set = c.set
			all := make([][]*gpuRank, c.communicators)
			for i := range all {
				all[i] = w.open(t)
			}
			each(t, all[0], func(g *gpuRank) error {
				for i := range 40 {
					for k, ranks := range all {
						if err := ranks[g.Rank()].variety(i + k); err != nil {
							return err
						}
					}
				}
				var errs []error
				for _, ranks := range all {
					errs = append(errs, ranks[g.Rank()].ended())
				}
				return errors.Join(errs...)
			})
			for _, ranks := range all {
				exact(t, ranks, coll.Int32, coll.Sum, 100_000)
			}
		})
	}
}

// TestOppositeOrders: the ranks of a grid are in two communicators, of their row and
// their column, and use them in either order, on two streams.
func TestOppositeOrders(t *testing.T) {
	n := gpuCount(t)
	rounds := 10_000
	if s := os.Getenv("ASSAY_GPU_TEST_ROUNDS"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	} else if testing.Short() {
		rounds = 200
	}
	for name, algo := range map[string]string{"kernels": "", "copies": choice{copies, 8, exchangeThreads, leastCopy}.String()} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("ASSAY_GPU_ALGO", algo)
			side := 2
			if n < 4 {
				side = 1 // the rows are single ranks: two communicators of the same ranks
			}
			if algo != "" {
				ownGPUs(t, 2*side)
			}
			grid := make([][2]*gpuRank, 2*side)
			open := func(axis int, ranks ...int) {
				w := world{ranks: len(ranks)}
				for _, r := range ranks {
					w.devices = append(w.devices, r%n)
				}
				for i, g := range w.open(t) {
					grid[ranks[i]][axis] = g
				}
			}
			if side == 2 {
				open(0, 0, 1)
				open(0, 2, 3)
				open(1, 0, 2)
				open(1, 1, 3)
			} else {
				open(0, 0, 1)
				open(1, 0, 1)
			}
			done := make(chan error, len(grid))
			for r, axes := range grid {
				go func() {
					done <- func() error {
						for i := range rounds {
							if algo != "" && i == rounds/10 {
								break // each is a dozen of the driver's calls
							}
							count := 1 << (i % 12)
							for a := range axes {
								g := axes[(a+r+i)%2] // neighbours never have the same order
								if err := g.Comm.AllReduce(g.at(0, 4*count), g.at(4*count, 4*count), count, coll.Int32, coll.Sum); err != nil {
									return fmt.Errorf("rank %d, round %d: %w", r, i, err)
								}
							}
							if i%64 == 63 { // streams hold a thousand or so
								if err := errors.Join(axes[0].wait(), axes[1].wait()); err != nil {
									return err
								}
							}
						}
						return errors.Join(axes[0].wait(), axes[1].wait())
					}()
				}()
			}
			for range grid {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			for _, axes := range grid {
				if by := axes[0].Chosen(); algo != "" && !strings.HasPrefix(by, "copy/") {
					t.Errorf("done by %s", by)
				}
			}
		})
	}
}

// TestShared: ten communicators have copy buffers for copies in the same memory, and what one
// leaves is the next one's: nothing is given to the driver or taken from it while a
// kernel of another one waits.
func TestShared(t *testing.T) {
	t.Setenv("ASSAY_GPU_ALGO", choice{copies, 8, exchangeThreads, leastCopy}.String())
	w := spread(2, ownGPUs(t, 2))
	const count = 10_000
	reduce := func(g *gpuRank) error {
		return g.Comm.AllReduce(g.at(0, 4*count), g.at(4*count, 4*count), count, coll.Float32, coll.Sum)
	}
	all := make([][]*gpuRank, 10)
	if gpuCount(t) < 2 {
		all = all[:5] // each rank has its part of the device's copy buffers
	}
	for i := range all {
		all[i] = w.open(t)
	}
	soon(t, "all communicators, in opposite orders", func() error {
		errs := make(chan error)
		for rank := range 2 {
			go func() {
				var err error
				for i := range all {
					if rank == 1 {
						i = len(all) - 1 - i
					}
					err = errors.Join(err, reduce(all[i][rank]))
				}
				for i := range all {
					err = errors.Join(err, all[i][rank].wait())
				}
				errs <- err
			}()
		}
		return errors.Join(<-errs, <-errs)
	})
	for i := range all {
		if by := all[i][0].Chosen(); !strings.HasPrefix(by, "copy/") {
			t.Errorf("communicator %d: done by %s", i, by)
		}
	}
	a := &all[0][0].dev.arena
	a.mu.Lock()
	held := 0
	for i := range a.copyBuffers {
		if a.copyBuffers[i] != nil {
			held += int(a.copyBuffers[i].offer.Bytes)
		}
	}
	a.mu.Unlock()
	each := (copyBufferBytes + copyParts*tokenBytes + devicePage - 1) / devicePage * devicePage
	if most := 2 * each; held > most {
		t.Errorf("the copy buffers of all communicators have %d bytes; want %d at most", held, most)
	}

	soon(t, "communicators that come and go beside a kernel that waits", func() error {
		if err := reduce(all[0][0]); err != nil {
			return err
		}
		for range 3 {
			again := w.open(t)
			errs := make(chan error)
			for _, g := range again {
				go func() { errs <- errors.Join(reduce(g), g.wait(), g.Destroy()) }()
			}
			if err := errors.Join(<-errs, <-errs); err != nil {
				return err
			}
		}
		return errors.Join(reduce(all[0][1]), all[0][0].wait(), all[0][1].wait())
	})
}

// TestGroupStreams: the operations of a group come on the streams that they were called
// on, Sends and Recvs behind all of theirs; a stream that another one has taken the
// place of may be destroyed while its operation is under way.
func TestGroupStreams(t *testing.T) {
	n := gpuCount(t)
	const bytes = 128 << 10
	for name, w := range places(n) {
		if w.ranks == 1 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			all := w.open(t)
			each(t, all, func(g *gpuRank) error {
				var s [4]driver.Stream
				if err := g.dev.in(func() (err error) {
					for i := range s {
						if s[i], err = driver.NewStream(0); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					return err
				}
				next, prev := (g.Rank()+1)%g.Size(), (g.Rank()+g.Size()-1)%g.Size()
				for round := range 10 {
					at := func(i int) coll.Buffer { return g.at(i*bytes, bytes) }
					put := func(i int, on driver.Stream, v int) error {
						return g.dev.in(func() error {
							return driver.Memset8Async(g.arena+driver.Ptr(i*bytes), byte(v), bytes, on)
						})
					}
					err := errors.Join(put(0, s[0], round+g.Rank()), put(2, s[1], round), put(4, s[2], 100+round+g.Rank()), put(5, s[3], 0))
					g.group.Start()
					g.group.Add(g.Comm)
					on := func(i int) { err = errors.Join(err, g.SetStream(uintptr(s[i]))) }
					on(0)
					err = errors.Join(err, g.Comm.AllReduce(at(0), at(1), bytes, coll.Uint8, coll.Max))
					on(1)
					err = errors.Join(err, g.Comm.AllReduce(at(2), at(3), bytes, coll.Uint8, coll.Sum))
					on(2)
					err = errors.Join(err, g.Comm.Send(at(4), bytes, coll.Uint8, next))
					on(3)
					err = errors.Join(err, g.Comm.Recv(at(5), bytes, coll.Uint8, prev))
					if err = errors.Join(err, g.group.End()); err != nil {
						return err
					}
					for i, want := range map[int]int{0: round + g.Size() - 1, 1: round * g.Size(), 3: 100 + round + prev} {
						got := make([]byte, bytes)
						from := g.arena + driver.Ptr([]int{1, 3, 0, 5}[i]*bytes)
						if err := g.dev.in(func() error {
							return errors.Join(s[i].Synchronize(), driver.CopyFromDevice(got, from))
						}); err != nil {
							return err
						}
						for k, b := range got {
							if b != byte(want) {
								return fmt.Errorf("rank %d, round %d, stream %d: byte %d is %d; want %d", g.Rank(), round, i, k, b, byte(want))
							}
						}
					}
					// One of them goes while it is busy.
					i := round % len(s)
					err = g.SetStream(uintptr(s[i]))
					err = errors.Join(err, g.Comm.AllReduce(at(6), at(7), bytes, coll.Uint8, coll.Sum), g.SetStream(uintptr(g.stream)))
					if err := errors.Join(err, g.dev.in(func() (err error) {
						if err = s[i].Destroy(); err == nil {
							s[i], err = driver.NewStream(0)
						}
						return err
					})); err != nil {
						return err
					}
				}
				err := g.wait()
				for i := range s {
					err = errors.Join(err, g.dev.in(s[i].Destroy))
				}
				return err
			})
		})
	}
}

// TestStreamsBetween: an operation waits for the one before it, also where streams were
// set between them that had none.
func TestStreamsBetween(t *testing.T) {
	w := spread(2, gpuCount(t))
	all := w.open(t)
	const count = 100
	reduce := func(g *gpuRank, i int) error {
		at := func(k int) coll.Buffer { return g.at((2*i+k)*4096, 4*count) }
		return g.Comm.AllReduce(at(0), at(1), count, coll.Int32, coll.Sum)
	}
	const rounds = 20
	soon(t, "the operations of a rank that is ahead", func() error {
		g := all[0]
		var streams [3]driver.Stream
		if err := g.dev.in(func() (err error) {
			for i := range streams {
				if streams[i], err = driver.NewStream(0); err != nil {
					return err
				}
			}
			return driver.Memset8(g.arena, 1, 1<<20)
		}); err != nil {
			return err
		}
		for i := range rounds {
			for _, s := range streams {
				if err := g.SetStream(uintptr(s)); err != nil {
					return err
				}
			}
			if err := reduce(g, i); err != nil {
				return err
			}
			slices.Reverse(streams[:])
		}
		return g.SetStream(uintptr(g.stream))
	})
	soon(t, "its peer's", func() error {
		g := all[1]
		err := g.dev.in(func() error { return driver.Memset8(g.arena, 1, 1<<20) })
		for i := range rounds {
			err = errors.Join(err, reduce(g, i))
		}
		return errors.Join(err, g.wait(), all[0].wait())
	})
	for _, g := range all {
		got := make([]byte, 4*count)
		for i := range rounds {
			if err := g.dev.in(func() error { return driver.CopyFromDevice(got, g.arena+driver.Ptr((2*i+1)*4096)) }); err != nil {
				t.Fatal(err)
			}
			if got[0] != 2 || got[len(got)-1] != 2 {
				t.Errorf("rank %d, operation %d: %d … %d; want 2", g.Rank(), i, got[0], got[len(got)-1])
			}
		}
	}
}
