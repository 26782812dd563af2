package coll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/op"
)

// A fake is an executor that takes note of what it is told.
type fake struct {
	mu      sync.Mutex
	cfg     executor.Config
	log     []string
	ops     []op.Op
	err     error      // of the next operation
	gone    chan error // the cause of Abort
	left    bool
	busy    atomic.Bool
	behind  atomic.Bool
	graph   atomic.Pointer[executor.State] // what a graph of it does
	quiet   bool                           // take no notes
	streams []uintptr
	on      [][]uintptr // streams of each operation
	lost    error       // of Close
}

// fakeGPUs make the executors of testConfig.
var fakeGPUs = &executor.Factory{}

// fakes sets what they make until the end of the test.
func fakes(t *testing.T) *sync.Map {
	t.Cleanup(func() { *fakeGPUs = executor.Factory{} })
	var all sync.Map
	fakeGPUs.Open = func(_ context.Context, cfg executor.Config) (executor.Executor, error) {
		f := &fake{cfg: cfg, gone: make(chan error, 1)}
		all.Store(cfg.Rank, f)
		return f, nil
	}
	return &all
}

func (f *fake) note(format string, a ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf(format, a...))
}

func (f *fake) Enqueue(d *executor.Op) error {
	if f.quiet {
		return nil
	}
	f.note("%v", d.Coll)
	f.on = append(f.on, append([]uintptr{d.Stream}, d.Also...))
	o := d.Op
	o.Transfers = slices.Clone(o.Transfers)
	f.ops = append(f.ops, o)
	err := f.err
	f.err = nil
	return err
}

func (f *fake) EnqueueAll(ops []*executor.Op) (int, error) {
	f.note("batch of %d", len(ops))
	for i, d := range ops {
		if err := d.On.Enqueue(d); err != nil {
			return i, err
		}
	}
	return -1, nil
}

func (f *fake) Stream(s uintptr) error {
	f.streams = append(f.streams, s)
	return nil
}
func (f *fake) Alloc(n int) (uintptr, error) { return uintptr(n) << 20, nil }
func (f *fake) Free(addr uintptr) error      { f.note("free %#x", addr); return nil }
func (f *fake) Suspend(context.Context) error {
	f.note("suspend")
	err := f.err
	f.err = nil
	return err
}
func (f *fake) Resume(context.Context) error { f.note("resume"); return nil }
func (f *fake) Register(_ context.Context, addr uintptr, n int) (executor.Registration, error) {
	f.note("register %d bytes at %#x", n, addr)
	err := f.err
	f.err = nil
	return executor.Registration{ID: 7, Direct: true}, err
}
func (f *fake) LSA(bool) (executor.LSATeam, error) { return executor.LSATeam{Table: 9, Hash: 5}, nil }
func (f *fake) Deregister(id int) error            { f.note("deregister %d", id); return nil }
func (f *fake) Estimate(o *op.Op) time.Duration {
	d := time.Duration(o.Bytes()) * time.Microsecond
	for _, t := range o.Transfers {
		d += time.Duration(len(t.Data)) * time.Microsecond
	}
	return d
}
func (f *fake) Memory() executor.Memory { return executor.Memory{Own: 100, Shared: 20} }
func (f *fake) Chosen() string          { return "fake/1" }
func (f *fake) Abort(cause error) {
	select {
	case f.gone <- cause:
	default:
	}
}
func (f *fake) Idle() bool { return !f.busy.Load() }
func (f *fake) Progress() executor.State {
	if f.behind.Load() {
		return executor.State{Does: executor.Behind}
	}
	if s := f.graph.Load(); s != nil {
		return *s
	}
	return executor.State{Graphs: true}
}
func (f *fake) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = true
}
func (f *fake) Close(tell func(byte) ([]byte, error)) error {
	if tell == nil {
		f.note("close")
		return f.lost
	}
	all, err := tell(byte(f.cfg.Rank))
	f.note("close together: %v %v", all, err)
	return nil
}

func of(all *sync.Map, rank int) *fake {
	f, _ := all.Load(rank)
	return f.(*fake)
}

func deviceConfig(n int) Config {
	cfg := testConfig()
	cfg.GPUs = fakeGPUs
	for i := range n {
		cfg.Devices = append(cfg.Devices, 10+i)
	}
	return cfg
}

// mem is device memory: numbers, as far as anything here is concerned.
func mem(i, bytes int) Buffer { return Device(uintptr(i+1)<<30, bytes) }

// flat is operations as text, with where their memory is instead of what is there.
func flat(ops ...op.Op) string {
	var b strings.Builder
	at := func(m []byte) string { return fmt.Sprintf("%#x+%d", op.Addr(m), len(m)) }
	for _, o := range ops {
		send, recv, transfers := at(o.Send), at(o.Recv), o.Transfers
		o.Send, o.Recv, o.Transfers, o.Sign = nil, nil, nil, 0
		fmt.Fprintf(&b, "%+v %s %s", o, send, recv)
		for _, t := range transfers {
			fmt.Fprintf(&b, " %d %v %s", t.Peer, t.Send, at(t.Data))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestDeviceOperations(t *testing.T) {
	all := fakes(t)
	const n = 3
	withRanks(t, n, deviceConfig(n), func(c *Comm) error {
		f := of(all, c.Rank())
		if d, ok := c.Device(); !ok || d != 10+c.Rank() || f.cfg.Device != d || f.cfg.Size != n || len(f.cfg.Places) != n {
			return fmt.Errorf("device %d, %v; %+v", d, ok, f.cfg)
		}
		in, out := mem(0, 1<<20), mem(1, 1<<20)
		root := NoPeer
		scaled := func(t Type, factor float64) error {
			return c.Do(&op.Op{Coll: op.AllReduce, Send: in.b, Recv: out.b, Device: true, Count: 100, Type: t, Red: Sum, Scale: factor, Scaled: true})
		}
		steps := []struct {
			err  error
			want op.Op
		}{
			{c.AllReduce(in, out, 100, Float32, Max), op.Op{Coll: op.AllReduce, Red: Max}},
			{c.AllReduce(in, out, 100, Float32, Avg), op.Op{Coll: op.AllReduce, Scaled: true, Average: true, Scale: 1.0 / 3, Factor: 0x3eaaaaab}},
			{c.AllReduce(in, out, 100, Int32, Avg), op.Op{Coll: op.AllReduce, Divisor: 3, Type: Int32}},
			{scaled(BFloat16, 2), op.Op{Coll: op.AllReduce, Scaled: true, Scale: 2, Factor: 0x4000, Type: BFloat16}},
			{scaled(Uint8, 300), op.Op{Coll: op.AllReduce, Scaled: true, Scale: 300, Factor: 255, Type: Uint8}},
			{c.AllGather(in, out, 100, Float32), op.Op{Coll: op.AllGather}},
			{c.Broadcast(in, out, 100, Float32, 2), op.Op{Coll: op.Broadcast, Root: 2}},
			{c.AllToAll(in, in, 100, Float32), op.Op{Coll: op.AllToAll}},
			{c.AllReduce(in, out, 0, Float32, Sum), op.Op{Count: -1}},
		}
		for _, s := range steps {
			if s.err != nil {
				return s.err
			}
			w := s.want
			if w.Count < 0 {
				continue
			}
			w.Count, w.Send, w.Recv, w.Device = 100, in.b, out.b, true
			if w.Type == Int8 {
				w.Type = Float32
			}
			if !w.Coll.Rooted() {
				w.Root = root
			}
			if w.Coll == op.Broadcast && c.Rank() != w.Root {
				w.Send = nil
			}
			if w.Coll == op.AllToAll {
				w.Recv = w.Send
			}
			got := f.ops[0]
			f.ops = f.ops[1:]
			if len(got.Transfers) > 0 {
				return fmt.Errorf("%v has transfers", got.Coll)
			}
			in, out := w.Coll.Parts(c.Rank(), w.Root, n)
			w.Send, w.Recv = w.Send[:in*w.Bytes()], w.Recv[:out*w.Bytes()]
			if got, want := flat(got), flat(w); got != want {
				return fmt.Errorf("got %s; want %s", got, want)
			}
		}
		if len(f.ops) > 0 {
			return fmt.Errorf("a count of 0 became %s", flat(f.ops...))
		}
		if c.Chosen() != "fake/1" {
			return fmt.Errorf("chosen: %s", c.Chosen())
		}
		// Host memory beside it.
		v := []int32{int32(c.Rank())}
		if err := c.AllReduce(Of(v), Of(v), 1, Int32, Sum); err != nil || v[0] != 3 || strings.Contains(c.Chosen(), "fake") {
			return fmt.Errorf("on the host: %v, %v, %s", v, err, c.Chosen())
		}
		if err := c.SetStream(77); err != nil || !slices.Equal(f.streams, []uintptr{77}) {
			return fmt.Errorf("stream: %v, %v", f.streams, err)
		}
		at, err := c.Executor().Alloc(5)
		if err != nil || at != 5<<20 {
			return fmt.Errorf("alloc: %#x, %v", at, err)
		}
		return c.Executor().Free(at)
	})
	for r := range n {
		f := of(all, r)
		if last := f.log[len(f.log)-1]; last != "close together: [0 1 2] <nil>" {
			t.Errorf("rank %d: %q", r, f.log)
		}
	}
}

func TestDeviceArguments(t *testing.T) {
	fakes(t)
	withRanks(t, 2, deviceConfig(2), func(c *Comm) error {
		host := Bytes(make([]byte, 1<<10))
		for want, err := range map[string]error{
			"one buffer is the device's":          c.AllReduce(mem(0, 1024), host, 8, Float32, Sum),
			"other the processor's":               c.AllGather(host, mem(0, 1024), 8, Float32),
			"is a multiple of 4":                  c.AllReduce(Device(1<<30+2, 1024), mem(1, 1024), 8, Float32, Sum),
			"has 16 bytes":                        c.AllReduce(mem(0, 16), mem(1, 1024), 8, Float32, Sum),
			"another way than in place":           c.AllReduce(mem(0, 1024), Device(1<<30+4, 1024), 8, Float32, Sum),
			"needs a group":                       c.Send(mem(0, 1024), 8, Float32, c.Rank()),
			"there is no reduction 9":             c.AllReduce(mem(0, 64), mem(1, 64), 8, Float32, Op(9)),
			"root 5: the communicator has 2 rank": c.Broadcast(mem(0, 64), mem(1, 64), 8, Float32, 5),
		} {
			if CodeOf(err) != InvalidArgument && CodeOf(err) != InvalidUsage || !strings.Contains(fmt.Sprint(err), want) {
				return fmt.Errorf("%v; want one with %q", err, want)
			}
		}
		return nil
	})
	withRanks(t, 2, testConfig(), func(c *Comm) error {
		if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Float32, Sum); !strings.Contains(fmt.Sprint(err), "made without a device") {
			return fmt.Errorf("on a communicator without a device: %v", err)
		}
		if err := c.SetStream(1); CodeOf(err) != InvalidUsage {
			return fmt.Errorf("SetStream: %v", err)
		}
		return nil
	})
}

// One goroutine is all ranks. Each communicator's collectives come in order,
// then its Sends and Recvs as one.
func TestDeviceGroup(t *testing.T) {
	all := fakes(t)
	const n = 3
	comms, err := CommInitAll(context.Background(), n, deviceConfig(n))
	if err != nil {
		t.Fatal(err)
	}
	var g Group
	host := make([]int32, n)
	for range 2 {
		for r := range n {
			f := of(all, r)
			f.ops, f.log = nil, nil
		}
		g.Start()
		g.Add(comms...)
		for r, c := range comms {
			host[r] = 1
			steps := []error{
				c.Send(mem(0, 64), 8, Int64, (r+1)%n),
				c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum),
				c.AllReduce(Of(host[r:r+1]), Of(host[r:r+1]), 1, Int32, Sum), // of the host, beside
				c.Send(mem(4, 64), 1, Int64, r),
				c.AllGather(mem(0, 64), mem(1, 640), 8, Int64),
				c.Recv(mem(2, 64), 8, Int64, (r+n-1)%n),
				c.Recv(mem(5, 64), 1, Int64, r),
			}
			if err := errors.Join(steps...); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.End(); err != nil {
			t.Fatal(err)
		}
		for r := range n {
			f := of(all, r)
			want := []op.Op{
				{Coll: op.AllReduce, Send: op.Memory(1<<30, 64), Recv: op.Memory(2<<30, 64), Count: 8, Type: Int64, Root: NoPeer},
				{Coll: op.AllGather, Send: op.Memory(1<<30, 64), Recv: op.Memory(2<<30, 64*n), Count: 8, Type: Int64, Root: NoPeer},
				{Coll: op.SendRecv, Root: NoPeer, Transfers: []op.Transfer{
					{Peer: (r + 1) % n, Data: op.Memory(1<<30, 64), Send: true}, {Peer: r, Data: op.Memory(5<<30, 8), Send: true},
					{Peer: (r + n - 1) % n, Data: op.Memory(3<<30, 64)}, {Peer: r, Data: op.Memory(6<<30, 8)},
				}},
			}
			for i := range want {
				want[i].Device = len(want[i].Transfers) == 0
			}
			if got, want := flat(f.ops...), flat(want...); got != want {
				t.Errorf("rank %d got\n%s; want\n%s", r, got, want)
			}
			if host[r] != n {
				t.Errorf("rank %d: %d on the host", r, host[r])
			}
		}
		if got := of(all, 0).log[0]; got != "batch of 9" {
			t.Errorf("%s", got)
		}
	}
	destroyAll(t, comms)
}

// Of a group, each operation has the stream that was set when it was called, and Sends
// and Recvs have all of theirs.
// TestDeviceEstimate: a group that is only reckoned runs nothing, and leaves the
// communicators as they were.
func TestDeviceEstimate(t *testing.T) {
	all := fakes(t)
	const n = 2
	comms, err := CommInitAll(context.Background(), n, deviceConfig(n))
	if err != nil {
		t.Fatal(err)
	}
	collect := func(g *Group) {
		t.Helper()
		g.Start()
		g.Start()
		g.Add(comms...)
		for r, c := range comms {
			steps := []error{
				c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum),
				c.AllReduce(mem(0, 64), mem(1, 64), 1+r, Int64, Sum),
				c.Send(mem(0, 64), 2, Int64, 1-r),
				c.Recv(mem(2, 64), 2, Int64, 1-r),
			}
			if err := errors.Join(steps...); err != nil {
				t.Fatal(err)
			}
		}
	}
	var g Group
	for range 2 {
		collect(&g)
		got, err := g.Estimate()
		// The fake takes a microsecond a byte: rank 1 has 64, 16, and 16 both ways.
		if want := 112 * time.Microsecond; got != want || err != nil {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	for r := range n {
		if f := of(all, r); len(f.ops) > 0 {
			t.Errorf("rank %d did %v", r, flat(f.ops...))
		}
	}
	g.Start()
	g.Add(comms...)
	if err := comms[0].AllReduce(mem(0, 64), mem(1, 64), -1, Int64, Sum); CodeOf(err) != InvalidArgument {
		t.Error(err)
	}
	if _, err := g.Estimate(); CodeOf(err) != InvalidArgument {
		t.Errorf("a group with a wrong operation: %v", err)
	}
	g.Start()
	g.Add(comms...)
	if err := comms[0].AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil {
		t.Fatal(err)
	}
	g.Cancel()
	if got, want := comms[1].DeviceMemory(), (executor.Memory{Own: 100, Shared: 20}); got != want {
		t.Errorf("memory %v; want %v", got, want)
	}
	if err := comms[0].AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil || len(of(all, 0).ops) != 1 {
		t.Errorf("after the groups: %v, %d operations", err, len(of(all, 0).ops))
	}
	if err := comms[1].AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil {
		t.Error(err)
	}
	destroyAll(t, comms)
	g.Add(comms[0])
	if _, err := g.Estimate(); !errors.Is(err, ErrDestroyed) {
		t.Errorf("of a communicator that is gone: %v", err)
	}
	if got := comms[0].DeviceMemory(); got != (executor.Memory{}) {
		t.Errorf("one that is gone has %v", got)
	}
}

// TestDeviceSuspend: a communicator that is suspended refuses operations, and one whose
// executor refuses to be goes on.
func TestDeviceSuspend(t *testing.T) {
	all := fakes(t)
	const n = 2
	comms, err := CommInitAll(context.Background(), n, deviceConfig(n))
	if err != nil {
		t.Fatal(err)
	}
	c, f := comms[0], of(all, 0)
	reduce := func() error { return c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum) }
	if err := c.Resume(t.Context()); CodeOf(err) != InvalidUsage {
		t.Errorf("resumed without having been suspended: %v", err)
	}
	f.err = &Error{Code: InvalidUsage, Rank: 0, Op: "x", Peer: NoPeer, Err: errors.New("there are graphs")}
	if err := c.Suspend(t.Context()); CodeOf(err) != InvalidUsage || c.Suspended() {
		t.Errorf("refused: %v, suspended %v", err, c.Suspended())
	}
	if err := errors.Join(reduce(), c.Suspend(t.Context())); err != nil || !c.Suspended() {
		t.Fatalf("%v, suspended %v", err, c.Suspended())
	}
	if err := reduce(); !errors.Is(err, ErrSuspended) || CodeOf(err) != InvalidUsage {
		t.Errorf("an operation of a suspended communicator: %v", err)
	}
	if err := c.Suspend(t.Context()); !errors.Is(err, ErrSuspended) {
		t.Errorf("suspended twice: %v", err)
	}
	if err := errors.Join(c.Resume(t.Context()), reduce()); err != nil || c.Suspended() {
		t.Errorf("%v, suspended %v", err, c.Suspended())
	}
	f.err = errors.New("the bus is gone")
	if err := c.Suspend(t.Context()); err == nil || c.AsyncError() == nil || c.Suspended() {
		t.Errorf("a failure: %v, then %v", err, c.AsyncError())
	}
	for _, c := range comms {
		_ = c.Abort()
	}
	plain, err := CommInitAll(context.Background(), 1, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := plain[0].Suspend(t.Context()); CodeOf(err) != InvalidUsage {
		t.Errorf("a communicator without a device: %v", err)
	}
	destroyAll(t, plain)
}

func TestDeviceGroupStreams(t *testing.T) {
	all := fakes(t)
	withRanks(t, 2, deviceConfig(2), func(c *Comm) error {
		f := of(all, c.Rank())
		var g Group
		for _, streams := range [][]uintptr{{1, 2, 3, 4}, {5, 5, 5, 5}} {
			f.log, f.streams = nil, nil
			g.Start()
			g.Add(c)
			var err error
			set := func(i int) { err = errors.Join(err, c.SetStream(streams[i])) }
			set(0)
			err = errors.Join(err, c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum))
			set(1)
			err = errors.Join(err, c.AllGather(mem(0, 64), mem(1, 128), 8, Int64))
			set(2)
			err = errors.Join(err, c.Send(mem(0, 64), 8, Int64, 1-c.Rank()))
			set(3)
			err = errors.Join(err, c.Recv(mem(1, 64), 8, Int64, 1-c.Rank()))
			if err = errors.Join(err, g.End()); err != nil {
				return err
			}
			want := fmt.Sprint([][]uintptr{{1}, {2}, {4, 3, 4}})
			if streams[0] == 5 {
				want = fmt.Sprint([][]uintptr{{5}, {5}, {5}})
			}
			if got := fmt.Sprint(f.on); got != want {
				return fmt.Errorf("streams %s; want %s", got, want)
			}
			f.on = nil
			if len(f.streams) > 0 {
				return fmt.Errorf("the executor was told of %v", f.streams)
			}
		}
		return nil
	})
}

// What the driver says when a communicator is closed is an error of the driver.
func TestDeviceCloseFails(t *testing.T) {
	all := fakes(t)
	lost := errors.New("the context is lost")
	fakeGPUs.Failed = func(err error) bool { return errors.Is(err, lost) }
	comms, err := CommInitAll(t.Context(), 1, deviceConfig(1))
	if err != nil {
		t.Fatal(err)
	}
	of(all, 0).lost = lost
	if err := comms[0].Abort(); CodeOf(err) != UnhandledCudaError || !errors.Is(err, lost) {
		t.Errorf("Abort: %v; want an error of the driver", err)
	}
}

// A fault anywhere ends what is enqueued everywhere, and a broken communicator
// is not closed together.
func TestDeviceFault(t *testing.T) {
	all := fakes(t)
	launch := errors.New("a launch failed")
	fakeGPUs.Failed = func(err error) bool { return errors.Is(err, launch) }
	const n = 3
	errs := deviceTogether(t, n, func(c *Comm) error {
		f := of(all, c.Rank())
		if c.Rank() == 1 {
			f.err = launch
		}
		err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum)
		if c.Rank() == 1 && CodeOf(err) != UnhandledCudaError {
			return fmt.Errorf("rank 1: %w", err)
		}
		select {
		case cause := <-f.gone:
			if cause == nil {
				return errors.New("aborted without a cause")
			}
		case <-time.After(5 * time.Minute):
			return errors.New("nobody told the executor")
		}
		if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err == nil {
			return errors.New("an operation after a fault")
		}
		return c.AsyncError()
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "a launch failed") {
			t.Errorf("rank %d: %v", r, err)
		}
		if f := of(all, r); f.log[len(f.log)-1] != "close" {
			t.Errorf("rank %d: %q", r, f.log)
		}
	}
}

// With NCCL's promises a fault ends nothing that is enqueued, at any rank, and no
// kernel gives up by itself, until the communicator is aborted; one that is split from
// it has them, too.
func TestDeviceFaultHolds(t *testing.T) {
	all := fakes(t)
	const n = 2
	cfg := deviceConfig(n)
	cfg.AsNCCL, cfg.Knobs.Timeout = true, time.Second
	comms, err := CommInitAll(t.Context(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	split := make([]*Comm, n)
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() {
			var err error
			if split[i], err = c.Split(t.Context(), 0, 0, Child{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, c := range comms {
		if err := c.Abort(); err != nil {
			t.Error(err)
		}
	}
	broken := errors.New("a link is down")
	split[1].fault.Set(split[1].wrap("asynchronous", broken))
	for i, c := range split {
		for c.AsyncError() == nil {
			time.Sleep(time.Millisecond)
		}
		f := of(all, i)
		if !f.cfg.AsNCCL || f.cfg.Timeout != 0 {
			t.Errorf("rank %d: %+v", i, f.cfg)
		}
		select {
		case cause := <-f.gone:
			t.Errorf("rank %d was told of %v", i, cause)
		default:
		}
		if err := c.Abort(); err != nil {
			t.Error(err)
		}
		if f.log[len(f.log)-1] != "close" { // without the others: the executor aborts
			t.Errorf("rank %d: %q", i, f.log)
		}
	}
}

func deviceTogether(t *testing.T, n int, f func(c *Comm) error) []error {
	t.Helper()
	cfg := deviceConfig(n)
	cfg.Knobs.HangDir = t.TempDir()
	comms, err := CommInitAll(context.Background(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() {
			errs[i] = f(c)
			_ = c.Destroy()
		})
	}
	wg.Wait()
	return errs
}

// Ranks that call different operations on device memory hear so soon, though
// those never meet.
func TestDeviceMismatch(t *testing.T) {
	fakes(t)
	for name, odd := range map[string]func(c *Comm) error{
		"with max":           func(c *Comm) error { return c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Max) },
		"AllGather of int64": func(c *Comm) error { return c.AllGather(mem(0, 64), mem(1, 640), 8, Int64) },
		"AllReduce of int64 with sum, 7 elements": func(c *Comm) error { return c.AllReduce(mem(0, 64), mem(1, 64), 7, Int64, Sum) },
		"int32 with sum": func(c *Comm) error { return c.AllReduce(mem(0, 64), mem(1, 64), 8, Int32, Sum) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := deviceTogether(t, 2, func(c *Comm) error {
				for range 5 {
					if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil {
						return err
					}
				}
				var err error
				if c.Rank() == 1 {
					err = odd(c)
				} else {
					err = c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum)
				}
				for end := time.Now().Add(5 * time.Minute); err == nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					err = c.AsyncError()
				}
				return err
			})
			text := fmt.Sprint(errs)
			if !strings.Contains(text, name) || !strings.Contains(text, "#6") {
				t.Errorf("%v", errs)
			}
		})
	}
}

// Ranks that fit together are left alone, however long they are quiet: also if none of the
// operations that the recorder still has is a collective.
func TestDeviceQuiet(t *testing.T) {
	fakes(t)
	reduce := func(c *Comm) error { return c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum) }
	exchange := func(c *Comm) error {
		return c.Do(&op.Op{Coll: op.SendRecv, Count: 8, Type: Int64, Device: true, Send: mem(0, 64).b, Recv: mem(1, 64).b})
	}
	for name, calls := range map[string][]func(c *Comm) error{
		"collectives":         {reduce},
		"Sends and Recvs":     {exchange},
		"a collective before": append([]func(c *Comm) error{reduce}, slices.Repeat([]func(c *Comm) error{exchange}, flight.Entries)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withRanks(t, 2, deviceConfig(2), func(c *Comm) error {
				for range 2 {
					for _, call := range slices.Concat(slices.Repeat(calls, 3), calls) {
						if err := call(c); err != nil {
							return err
						}
					}
					time.Sleep(2500 * time.Millisecond)
				}
				return c.AsyncError()
			})
		})
	}
}

// TestReportWithoutCode: reports of another version, or with nothing in them, are no errors.
func TestReportWithoutCode(t *testing.T) {
	fakes(t)
	for _, cfg := range []Config{testConfig(), deviceConfig(2)} {
		withRanks(t, 2, cfg, func(c *Comm) error {
			report := c.bootOptions().OnReport
			for _, text := range []string{"", "{}", "null", "[]", `{"future":{"code":5}}`, `{"hang":{}}`, `{"hang":{"recent":[]}}`, `{"hang":{"recent":[{}]}}`, `{"hang":{"wait":{}}}`, `{"hang":{"wait":{"sign":7}}}`, `{"hang":{"ask":{}}}`, `{"hang":{"ask":{"seq":1}}}`, `{"hang":{"answer":{}}}`, `{"hang":{"answer":{"snapshot":{"call":{"seq":1}}}}}`, `{"regroup":{}}`, `{"text":"?"}`, `{"code":0}`} {
				report(1-c.Rank(), []byte(text))
				if err := c.AsyncError(); err != nil {
					return fmt.Errorf("%s: %w", text, err)
				}
			}
			return nil
		})
	}
}

func TestDeviceSome(t *testing.T) {
	fakes(t)
	id, err := GetUniqueID(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for r := range 2 {
		wg.Go(func() {
			cfg := testConfig()
			if r == 1 {
				cfg.Device, cfg.GPUs = new(int), fakeGPUs
			}
			_, errs[r] = CommInitRank(context.Background(), 2, id, r, cfg)
		})
	}
	wg.Wait()
	for r, err := range errs {
		if want := `devices: rank 0 has "no device", rank 1 has "a device"`; !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("rank %d: %v; want %q", r, err, want)
		}
	}
	cfg := testConfig()
	cfg.Devices = []int{1}
	if _, err := CommInitAll(context.Background(), 2, cfg); CodeOf(err) != InvalidArgument {
		t.Errorf("one device for two ranks: %v", err)
	}
}

func TestDeviceWithout(t *testing.T) {
	for n := 1; n <= 2; n++ {
		cfg := deviceConfig(n)
		cfg.GPUs = nil
		if _, err := CommInitAll(context.Background(), n, cfg); !errors.Is(err, ErrNoExecutor) {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

func TestDeviceSplit(t *testing.T) {
	fakes(t)
	withRanks(t, 2, deviceConfig(2), func(c *Comm) error {
		sub, err := c.Split(context.Background(), 0, -c.Rank(), Child{})
		if err != nil {
			return err
		}
		if d, ok := sub.Device(); !ok || d != 10+c.Rank() {
			return fmt.Errorf("device %d, %v", d, ok)
		}
		if err := sub.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil {
			return err
		}
		return sub.Destroy()
	})
}

func TestDeviceNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	all := fakes(t)
	comms, err := CommInitAll(context.Background(), 1, deviceConfig(1))
	if err != nil {
		t.Fatal(err)
	}
	c := comms[0]
	of(all, 0).quiet = true
	in, out := mem(0, 1<<20), mem(1, 1<<20)
	if n := testing.AllocsPerRun(100, func() {
		if err := c.AllReduce(in, out, 1000, Float32, Avg); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	destroyAll(t, comms)
}

func BenchmarkDeviceEnqueue(b *testing.B) {
	cfg := deviceConfig(1)
	cfg.GPUs = &executor.Factory{Open: func(_ context.Context, cfg executor.Config) (executor.Executor, error) {
		return &fake{cfg: cfg, quiet: true, gone: make(chan error, 1)}, nil
	}}
	comms, err := CommInitAll(context.Background(), 1, cfg)
	if err != nil {
		b.Fatal(err)
	}
	in, out := mem(0, 1<<20), mem(1, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		if err := comms[0].AllReduce(in, out, 1000, Float32, Sum); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDestroyUnequal: rank 0 has called an operation that rank 1 has not. For programs that
// know NCCL's API that is an error where the operation has not ended.
func TestDestroyUnequal(t *testing.T) {
	for _, tt := range []struct {
		name         string
		asNCCL, busy bool
		fails        [2]bool
	}{
		{"Go's API", false, false, [2]bool{true, true}},
		{"NCCL's API, it has ended", true, false, [2]bool{}},
		{"NCCL's API, it has not ended", true, true, [2]bool{true, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := fakes(t)
			cfg := deviceConfig(2)
			cfg.AsNCCL = tt.asNCCL
			comms, err := CommInitAll(t.Context(), 2, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := comms[0].Broadcast(mem(0, 64), mem(0, 64), 8, Int64, 0); err != nil {
				t.Fatal(err)
			}
			f, _ := all.Load(0)
			f.(*fake).busy.Store(tt.busy)
			var wg sync.WaitGroup
			var got [2]error
			for r, c := range comms {
				wg.Go(func() { got[r] = c.destroy() })
			}
			wg.Wait()
			for r, err := range got {
				if tt.fails[r] && CodeOf(err) != InvalidUsage || !tt.fails[r] && err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}
