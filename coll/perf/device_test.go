package perf

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/perf/commtest"
	"github.com/assay-hpc/assay/internal/golden"
)

// A testDevice is a Remote over commtest. Its memory's addresses cannot be
// read or written at all: a program that touches them dies. What they stand
// for is in a shadow that only enqueued work reaches, and nothing is done
// before somebody waits.
type testDevice struct {
	*commtest.Comm
	t        *testing.T
	free     int64
	thread   int // that Bind was called on
	mems     *[]testMemory
	queue    []func() error
	record   *[]func() error // not nil: capturing
	bad      int64
	now      time.Duration
	marks    map[int]time.Duration
	counts   map[string]int
	modes    []string
	aborting bool // the world is aborted during the test
}

type testMemory struct {
	fake, shadow []byte
	mode         string
}

func (d *testDevice) check() {
	if d.thread == 0 || d.thread != syscall.Gettid() {
		d.t.Errorf("rank %d is on thread %d; bound to %d", d.Rank(), syscall.Gettid(), d.thread)
	}
}

func (d *testDevice) enqueue(f func() error) error {
	d.check()
	if d.record != nil {
		*d.record = append(*d.record, f)
	} else {
		d.queue = append(d.queue, f)
	}
	return nil
}

// real is the memory that an address stands for.
func (d *testDevice) real(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for _, m := range *d.mems {
		base := uintptr(unsafe.Pointer(unsafe.SliceData(m.fake)))
		if at >= base && at+uintptr(len(b)) <= base+uintptr(len(m.shadow)) {
			return m.shadow[at-base:][:len(b)]
		}
	}
	panic("no such device memory")
}

func (d *testDevice) Bind() error {
	if d.thread != 0 {
		d.t.Error("bound twice")
	}
	d.thread = syscall.Gettid()
	return nil
}

func (d *testDevice) Memory() (free, total int64, err error) {
	d.check()
	for _, m := range *d.mems {
		free -= int64(len(m.shadow))
	}
	return d.free + free, d.free + 1<<20, nil
}

func (d *testDevice) Wait() error {
	d.check()
	if d.record != nil {
		return errors.New("a wait during a capture")
	}
	for len(d.queue) > 0 {
		f := d.queue[0]
		d.queue = d.queue[1:]
		if err := f(); err != nil {
			return err
		}
	}
	d.counts["wait"]++
	return nil
}

func (d *testDevice) Fill(dst, pattern []byte, phase int64) error {
	mem := d.real(dst)
	return d.enqueue(func() error {
		for i := range mem {
			mem[i] = pattern[(phase+int64(i))%int64(len(pattern))]
		}
		return nil
	})
}

func (d *testDevice) Compare(got, pattern []byte, phase int64, size int, slack uint64) error {
	mem := d.real(got)
	if len(mem)%size+len(pattern)%size+int(phase)%size != 0 {
		d.t.Errorf("Compare of %d bytes with %d from %d on, elements of %d bytes", len(mem), len(pattern), phase, size)
	}
	t := map[int]elem.Type{1: elem.Uint8, 2: elem.Float16, 4: elem.Uint32, 8: elem.Uint64}[size]
	return d.enqueue(func() error {
		for i := range len(mem) / size {
			want := pattern[(phase+int64(i*size))%int64(len(pattern)):]
			if ulps(elem.Bits(mem, t, i), elem.Bits(want, t, 0)) > slack {
				d.bad++
			}
		}
		return nil
	})
}

func (d *testDevice) Read(dst, src []byte) error {
	err := d.Wait()
	copy(dst, d.real(src))
	return err
}

func (d *testDevice) Wrong() (int64, error) {
	err := d.Wait()
	n := d.bad
	d.bad = 0
	return n, err
}

func (d *testDevice) Mark(i int) error {
	d.counts["mark"]++
	return d.enqueue(func() error {
		if d.marks == nil {
			d.marks = map[int]time.Duration{}
		}
		d.now += time.Duration(10+i) * time.Microsecond
		d.marks[i] = d.now
		return nil
	})
}

func (d *testDevice) Between(i, j int) (time.Duration, error) {
	return d.marks[j] - d.marks[i], d.Wait()
}

func (d *testDevice) Capture(f func() error) (Graph, error) {
	d.check()
	g := &testGraph{d: d}
	d.record = &g.work
	err := f()
	d.record = nil
	d.counts["capture"]++
	d.counts["graphs"]++
	return g, err
}

// A testGraph is recorded work.
type testGraph struct {
	d    *testDevice
	work []func() error
}

func (g *testGraph) Launch() error {
	g.d.counts["launch"]++
	for _, f := range g.work {
		if err := g.d.enqueue(f); err != nil {
			return err
		}
	}
	return nil
}

func (g *testGraph) Close() error {
	g.d.counts["graphs"]--
	return nil
}

func (d *testDevice) Alloc(n int) ([]byte, error) { return d.alloc(n, plain) }

func (d *testDevice) alloc(n int, mode string) ([]byte, error) {
	d.check()
	fake, err := syscall.Mmap(-1, 0, n, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	shadow, err := d.Comm.Alloc(n)
	*d.mems = append(*d.mems, testMemory{fake, shadow, mode})
	return fake, err
}

func (d *testDevice) Free(b []byte) { d.unmap(b, plain) }

func (d *testDevice) unmap(b []byte, mode string) {
	for i, m := range *d.mems {
		if unsafe.SliceData(m.fake) == unsafe.SliceData(b) {
			if m.mode != mode {
				d.t.Errorf("%s memory is freed as %s", m.mode, mode)
			}
			*d.mems = slices.Delete(*d.mems, i, i+1)
			d.Comm.Free(m.shadow)
			if err := syscall.Munmap(m.fake); err != nil {
				d.t.Error(err)
			}
			return
		}
	}
	d.t.Error("memory is freed twice")
}

// Do enqueues an operation on the shadows of its buffers.
func (d *testDevice) Do(o *op.Op) error {
	shadow := *o
	shadow.Send, shadow.Recv = d.real(o.Send), d.real(o.Recv)
	return d.enqueue(func() error { return d.Comm.Do(&shadow) })
}

// A fleet is all ranks' devices.
type fleet []*testDevice

// devices makes a setup whose ranks are devices with so much memory.
func (f *fleet) setup(t *testing.T, free int64) setup {
	return setup{
		wrap: func(c Comm) Comm {
			d := &testDevice{Comm: c.(*commtest.Comm), t: t, free: free, mems: new([]testMemory), counts: map[string]int{}}
			*f = append(*f, d)
			return d
		},
		world: func(w *World) {
			w.Device = func(i int) Device { return Device{Index: i, Bus: [3]int{0, 16 + i, 0}, Name: "Test GPU"} }
			split := w.Split
			w.Split = func(c Comm, color int) (Comm, error) {
				d := c.(*testDevice)
				sub, err := split(d.Comm, color)
				return &testDevice{Comm: sub.(*commtest.Comm), t: t, mems: d.mems, thread: d.thread, counts: map[string]int{}}, err
			}
		},
	}
}

// TestDevicesVerify: every collective, type and reduction on memory that the
// processor cannot touch, eager and as a graph.
func TestDevicesVerify(t *testing.T) {
	ranks := []int{1, 3}
	if testing.Short() {
		ranks = []int{3}
	}
	for _, op := range Collectives() {
		for _, n := range ranks {
			for _, line := range []string{"-b 700 -e 700 -d all -o all -r -1 -n 1 -w 0 -u 1", "-b 64 -e 4096 -f 8 -n 3 -c 2 -G 2", "-b 64 -e 64 -n 2 -m 2 -z 1", "-b 64 -e 64 -n 2 -m 2 -z 2", "-b 64 -e 64 -m 3 -z 3 -I 1 -T 60"} {
				var f fleet
				o := bench(t, op, n, line, f.setup(t, 1<<20))
				if o.fail != nil || o.res.OutOfBounds != 0 || o.res.Status != OK || len(o.res.Rows) == 0 {
					t.Errorf("%s %s on %d devices: %v, %d of %d rows are wrong", op, line, n, o.fail, o.res.OutOfBounds, len(o.res.Rows))
				}
				for _, d := range f {
					if d.counts["graphs"] != 0 || len(d.queue) != 0 {
						t.Errorf("%s: %d graphs are left, and %d pieces of work", op, d.counts["graphs"], len(d.queue))
					}
				}
			}
		}
	}
}

// TestDeviceFaultsShow: the faults that are noticed in the processor's memory
// are noticed in a device's.
func TestDeviceFaultsShow(t *testing.T) {
	for name, f := range faults {
		for _, op := range Collectives() {
			for _, line := range []string{"-b 4K -e 4K -n 1", "-b 4K -e 4K -n 1 -G 1"} {
				if f.only != "" && f.only != op || (op == "reduce" || op == "gather") && strings.Contains(name, "last element") {
					continue
				}
				var all fleet
				s := all.setup(t, 1<<20)
				s.test = func(w *commtest.World) {
					w.After = func(c *commtest.Comm, _ string, send, recv []byte) { f.do(c, send, recv) }
				}
				o := bench(t, op, 3, line, s)
				if row := o.res.Rows[0]; row.OutOfPlace.Wrong < 1 || row.InPlace.Wrong == 0 || o.res.Status != BadData || o.fail != nil {
					t.Errorf("%s, %s: wrong %d and %d, status %d, %v", op, name, row.OutOfPlace.Wrong, row.InPlace.Wrong, o.res.Status, o.fail)
				}
			}
		}
	}
}

// TestDeviceText: the table of devices.
func TestDeviceText(t *testing.T) {
	for name, tt := range map[string]struct {
		line  string
		setup func(*setup)
	}{
		"device":           {"-b 1K -e 4K -f 2 -y 1", nil},
		"device-graph":     {"-b 1K -e 4K -f 2 -G 2 -M 1 -R 2", nil},
		"device-iteration": {"-b 1K -e 2K -f 2 -I 1 -C 1 -n 5", nil},
		"device-slowest":   {"-b 1K -e 1K -n 2 --slowest 4", nil},
		"device-memory":    {"-b 1K -e 1G -f 8 -n 2", nil},
		"device-split":     {"-b 1K -e 1K -n 2", func(s *setup) { s.environ = []string{"NCCL_TESTS_SPLIT=MOD 2"} }},
	} {
		t.Run(name, func(t *testing.T) {
			var f fleet
			s := f.setup(t, 100<<10)
			if tt.setup != nil {
				tt.setup(&s)
			}
			o := bench(t, "all_reduce", 2, tt.line, s)
			if o.fail != nil || o.err != "" {
				t.Errorf("error %v, stderr %q", o.fail, o.err)
			}
			golden.Check(t, name+".txt", o.out)
		})
	}
}

// TestGraphLaunches: -G records the iterations once for a placement, and one
// operation for each round of verification; the first launch is not timed. Small
// messages have batches of them.
func TestGraphLaunches(t *testing.T) {
	var f fleet
	bench(t, "all_reduce", 2, "-b 1K -e 1K -n 5 -w 2 -c 3 -G 4", f.setup(t, 1<<20))
	d := f[0]
	const lead, once, rounds, launches, batches = 5, 1, 3, 4, 3
	if got, want := d.Calls["all_reduce"], 2+2*(lead+batches*5*(once+launches)+rounds); got != want {
		t.Errorf("%d operations; want %d", got, want)
	}
	if got, want := [2]int{d.counts["capture"], d.counts["launch"]}, [2]int{2 * (batches + rounds), 2 * (batches*(once+launches) + rounds)}; got != want {
		t.Errorf("%v captures and launches; want %v", got, want)
	}
}

// A namingDevice names its last operation, and barriers are operations.
type namingDevice struct {
	*testDevice
	last string
}

func (n *namingDevice) Chosen() string { return n.last }

func (n *namingDevice) Barrier() error {
	n.last = "barrier"
	return n.testDevice.Barrier()
}

func (n *namingDevice) Do(o *op.Op) error {
	n.last = "eager"
	if n.record != nil {
		n.last = "recorded"
	}
	return n.testDevice.Do(o)
}

// TestChosen: the name is that of the operation, whatever the barriers around
// it do.
func TestChosen(t *testing.T) {
	naming := func() setup {
		var f fleet
		s := f.setup(t, 1<<20)
		wrap := s.wrap
		s.wrap = func(c Comm) Comm { return &namingDevice{testDevice: wrap(c).(*testDevice)} }
		return s
	}
	for line, want := range map[string]string{"": "eager", "-z 1": "eager", "-z 3": "eager", "-G 2": "recorded", "-G 2 -z 1": "recorded"} {
		o := bench(t, "all_reduce", 2, "-b 1K -e 1K -n 2 "+line, naming())
		if o.fail != nil || o.res.Rows[0].OutOfPlace.Algorithm != want || o.res.Rows[0].InPlace.Algorithm != want {
			t.Errorf("%q: %v, %+v; want %s", line, o.fail, o.res.Rows, want)
		}
	}
	m := match{setup: naming()}
	o := bench(t, "all_reduce", 2, "-b 1K -e 1K --repeat 2 --versus nccl", m.against(t, 2))
	for _, row := range o.res.Versus.Rows {
		if got, want := row.Engines[0].Algorithm, map[bool]string{false: "eager", true: "recorded"}[row.Graph]; got != want {
			t.Errorf("compared, graph %v: %q; want %q (%v)", row.Graph, got, want, o.fail)
		}
	}
}

// TestMarks: -I times iterations in the stream, without waiting for each.
func TestMarks(t *testing.T) {
	var f fleet
	o := bench(t, "all_reduce", 2, "-b 1K -e 1K -n 4 -w 0 -c 0 -I 1 --batches 1", f.setup(t, 1<<20))
	if d := cmp.Diff([]float64{11, 12, 13, 14}, o.res.Rows[0].OutOfPlace.Iter.Times); d != "" {
		t.Errorf("times (-want +got):\n%s", d)
	}
	if f[0].counts["mark"] != 2*5 {
		t.Errorf("%d marks", f[0].counts["mark"])
	}
	f = nil
	bench(t, "all_reduce", 2, "-b 1K -e 1K -n 4 --output json", f.setup(t, 1<<20))
	if f[0].counts["mark"] != 0 {
		t.Errorf("the document costs %d marks", f[0].counts["mark"])
	}
}

// TestMinTime: iterations fill the time, whatever -n says, and are the same
// for all ranks.
func TestMinTime(t *testing.T) {
	for line, want := range map[string]int{
		"--min-time 0":       20,
		"--min-time 50 -n 3": 50,
		"--min-time 50 -m 5": 10 * 5, // operations, in ten iterations
		"--min-time 99999":   maxIters,
		"--min-time 0.001":   1,
	} {
		var ranks []*commtest.Comm
		o := bench(t, "all_reduce", 2, "-b 1K -e 1K "+line, setup{
			wrap: func(c Comm) Comm { ranks = append(ranks, c.(*commtest.Comm)); return c },
			host: func(h *host) {
				clocks := 0
				h.newClock = func() clock { // on which an operation takes a millisecond
					calls := ranks[clocks].Calls
					clocks++
					return func() time.Duration { return time.Duration(calls["all_reduce"]) * time.Millisecond }
				}
			},
		})
		if got := o.res.Rows[0].Iterations; got != want || o.fail != nil {
			t.Errorf("%s: %d iterations; want %d (%v)", line, got, want, o.fail)
		}
	}
}

// TestDeviceErrors: what fails on a device fails the run, with its status.
func TestDeviceErrors(t *testing.T) {
	broken := errors.New("the device fell off the bus")
	for name, tt := range map[string]struct {
		wrap   func(*testDevice) Comm
		line   string
		status Status
	}{
		"bind":    {func(d *testDevice) Comm { return &badDevice{testDevice: d, bind: broken} }, "", DeviceError},
		"memory":  {func(d *testDevice) Comm { return &badDevice{testDevice: d, memory: broken} }, "", DeviceError},
		"fill":    {func(d *testDevice) Comm { return &badDevice{testDevice: d, fill: broken} }, "", EngineError},
		"compare": {func(d *testDevice) Comm { return &badDevice{testDevice: d, compare: broken} }, "", EngineError},
		"wait":    {func(d *testDevice) Comm { return &badDevice{testDevice: d, wait: broken} }, "", EngineError},
		"capture": {func(d *testDevice) Comm { return &badDevice{testDevice: d, capture: broken} }, "-G 1", EngineError},
	} {
		var f fleet
		s := f.setup(t, 1<<20)
		wrap := s.wrap
		s.wrap = func(c Comm) Comm {
			d := wrap(c).(*testDevice)
			if d.Rank() != 1 {
				return d
			}
			return tt.wrap(d)
		}
		o := bench(t, "all_reduce", 2, "-b 1K -e 1K "+tt.line, s)
		var fail *Failure
		if !errors.As(o.fail, &fail) || !errors.Is(fail, broken) || fail.Status != tt.status || fail.Rank != 1 {
			t.Errorf("%s: %v; want status %d", name, o.fail, tt.status)
		}
	}
}

// A badDevice fails in some of its calls.
type badDevice struct {
	*testDevice
	bind, memory, fill, compare, wait, capture error
}

func (b *badDevice) Bind() error { return errors.Join(b.testDevice.Bind(), b.bind) }

func (b *badDevice) Memory() (free, total int64, err error) {
	free, total, err = b.testDevice.Memory()
	return free, total, errors.Join(err, b.memory)
}

func (b *badDevice) Fill(dst, pattern []byte, phase int64) error {
	return errors.Join(b.testDevice.Fill(dst, pattern, phase), b.fill)
}

func (b *badDevice) Compare(got, pattern []byte, phase int64, size int, slack uint64) error {
	return errors.Join(b.testDevice.Compare(got, pattern, phase, size, slack), b.compare)
}

func (b *badDevice) Wait() error { return errors.Join(b.testDevice.Wait(), b.wait) }

func (b *badDevice) Capture(f func() error) (Graph, error) {
	g, err := b.testDevice.Capture(f)
	return g, errors.Join(err, b.capture)
}
