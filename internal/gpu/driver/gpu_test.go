//go:build cuda && cgo

package driver

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorgonia.org/cu"

	"github.com/assay-hpc/assay/internal/gputest"
)

var (
	//go:embed testdata/kernels.ptx
	kernels []byte
	//go:embed testdata/dependent.ptx
	dependent []byte
)

// Memset32 sets n words of 4 bytes and returns when they are. It does not wait for
// streams of NewStream.
func Memset32(p Ptr, v uint32, n int) error {
	return settled(wrap("cuMemsetD32", cu.MemsetD32(cu.DevicePtr(p), v, int64(n))))
}

// Memset32Async sets n words of 4 bytes when the stream comes to it.
func Memset32Async(p Ptr, v uint32, n int, s Stream) error {
	return wrap("cuMemsetD32Async", cu.MemsetD32Async(cu.DevicePtr(p), uint(v), int64(n), s.cu()))
}

// gpus locks the test to its thread and opens that many devices, the first of
// which is current; where there are fewer it skips.
func gpus(t testing.TB, n int) []*Context {
	t.Helper()
	err := Init()
	var all []DeviceInfo
	if err == nil {
		all, err = Devices()
	}
	gputest.Need(t, n, len(all), err, ErrNoDriver, ErrNoDevice)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	ctx := make([]*Context, n)
	for i := range ctx {
		if ctx[i], err = Open(i); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { check(t, ctx[i].Close()) })
	}
	check(t, ctx[0].Bind())
	return ctx
}

func check(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func malloc(t testing.TB, n int) Ptr {
	t.Helper()
	p, err := Malloc(n)
	check(t, err)
	t.Cleanup(func() { check(t, Free(p)) })
	return p
}

func stream(t testing.TB) Stream {
	t.Helper()
	s, err := NewStream(0)
	check(t, err)
	t.Cleanup(func() { check(t, s.Destroy()) })
	return s
}

func event(t testing.TB, flags EventFlags) Event {
	t.Helper()
	e, err := NewEvent(flags)
	check(t, err)
	t.Cleanup(func() { check(t, e.Destroy()) })
	return e
}

func function(t testing.TB, image []byte, name string) Func {
	t.Helper()
	m, err := Load(image)
	check(t, err)
	t.Cleanup(func() { check(t, m.Unload()) })
	f, err := m.Function(name)
	check(t, err)
	return f
}

// prepare makes a launch of a kernel that takes an address and a word.
func prepare(t testing.TB, f Func, s Stream, p Ptr, v uint32) *Launch {
	t.Helper()
	l := NewLaunch(f, 8, 4)
	t.Cleanup(l.Close)
	l.SetStream(s)
	*(*Ptr)(l.Param(0)) = p
	*(*uint32)(l.Param(1)) = v
	return l
}

func words(t testing.TB, p Ptr, n int) []uint32 {
	t.Helper()
	b := make([]byte, 4*n)
	check(t, CopyFromDevice(b, p))
	w := make([]uint32, n)
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

// counting says whether the words count up from v.
func counting(w []uint32, v uint32) error {
	for i := range w {
		if w[i] != v+uint32(i) {
			return fmt.Errorf("word %d is %d, want %d", i, w[i], v+uint32(i))
		}
	}
	return nil
}

func TestDevices(t *testing.T) {
	ctx := gpus(t, 1)
	all, err := Devices()
	check(t, err)
	for _, d := range all {
		t.Logf("%+v", d)
		if d.Name == "" || len(d.UUID) != 40 || d.SMs == 0 || d.Memory == 0 || d.ComputeMajor == 0 {
			t.Errorf("device %d is not described", d.Ordinal)
		}
	}
	t.Logf("CUDA %d, peers: %v", DriverVersion(), ctx[0].CanAccessPeer(1))
	if _, err := Open(len(all)); !errors.Is(err, ErrNoDevice) {
		t.Errorf("Open of a device that is not there: %v", err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		_, err := Malloc(1)
		done <- err
	}()
	if err := <-done; !errors.Is(err, ErrContext) {
		t.Errorf("Malloc on a thread without a context: %v", err)
	}
}

func TestMemory(t *testing.T) {
	gpus(t, 1)
	const n = 1 << 20
	p, err := Malloc(n)
	check(t, err)
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(i * 7)
	}
	got := make([]byte, n)
	q := malloc(t, n)
	s := stream(t)
	check(t, CopyToDevice(p, want), CopyAsync(q+1, p, n-1, s), Memset8Async(q, 0x42, 1, s), s.Synchronize(), CopyFromDevice(got, q))
	if got[0] != 0x42 || !bytes.Equal(got[1:], want[:n-1]) {
		t.Error("what was copied is not what came back")
	}
	check(t, Memset8(p, 0xff, n), Memset32(p+4, 7, 2), Memset32Async(p+12, 9, 1, s), s.Synchronize())
	if w := words(t, p, 5); w[0] != ^uint32(0) || w[1] != 7 || w[2] != 7 || w[3] != 9 || w[4] != ^uint32(0) {
		t.Errorf("after Memset: %x", w)
	}

	base, size, err := AddressRange(p + 100)
	check(t, err)
	if base != p || size < n {
		t.Errorf("AddressRange: %v, %d; want %v, %d", base, size, p, n)
	}
	info, err := PointerInfo(p + 100)
	check(t, err)
	if info.Ordinal != 0 || !info.IsDevice || !info.LegacyIPC || info.BufferID == 0 {
		t.Errorf("PointerInfo: %+v", info)
	}
	if host, err := PointerInfo(0x1000); err != nil || host.Ordinal != -1 {
		t.Errorf("PointerInfo of an address that nobody knows: %+v, %v", host, err)
	}
	check(t, Free(p))
	if p, err = Malloc(n); err != nil {
		t.Fatal(err)
	}
	again, err := PointerInfo(p)
	check(t, err, Free(p))
	if again.BufferID == info.BufferID {
		t.Error("another allocation has the same BufferID")
	}

	if _, err := Malloc(1 << 50); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("Malloc of 1 PiB: %v", err)
	}
	if err := Free(0x1000); !errors.Is(err, ErrInvalid) {
		t.Errorf("Free of an address that was not allocated: %v", err)
	}
	free, total, err := MemInfo()
	if err != nil || free <= 0 || free > total {
		t.Errorf("MemInfo: %d, %d, %v", free, total, err)
	}
}

func TestDMABuf(t *testing.T) {
	gpus(t, 1)
	all, err := Devices()
	check(t, err)
	const n = 2 << 20
	p := malloc(t, n)
	fd, err := DMABuf(p, n)
	if !all[0].CanDMABuf {
		if !errors.Is(err, ErrNotSupported) {
			t.Errorf("DMABuf of a device that cannot: %v", err)
		}
		t.Skip("the device cannot export DMA buffers")
	}
	check(t, err)
	defer syscall.Close(fd)
	if link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil || !strings.Contains(link, "dmabuf") {
		t.Errorf("the descriptor is of %s (%v)", link, err)
	}
	if end, err := syscall.Seek(fd, 0, io.SeekEnd); err != nil || end != n {
		t.Errorf("the buffer has %d bytes (%v), want %d", end, err, n)
	}
	if _, err := DMABuf(p+1, n); !errors.Is(err, ErrInvalid) {
		t.Errorf("DMABuf of an odd address: %v", err)
	}
}

func TestPinned(t *testing.T) {
	gpus(t, 1)
	const n = 1 << 16
	m, err := HostAlloc(n)
	check(t, err)
	mapping, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON)
	check(t, err)
	defer syscall.Munmap(mapping)
	p, err := HostRegister(mapping)
	check(t, err)
	s := stream(t)
	l := prepare(t, function(t, kernels, "fill"), s, m.Ptr, 3)
	l.SetGrid(n/4/256, 1, 1)
	l.SetBlock(256, 1, 1)
	check(t, l.Run(), CopyAsync(p, m.Ptr, n, s), s.Synchronize())
	for _, b := range [][]byte{m.Bytes, mapping} {
		w := make([]uint32, n/4)
		for i := range w {
			w[i] = binary.NativeEndian.Uint32(b[4*i:])
		}
		if err := counting(w, 3); err != nil {
			t.Error(err)
		}
	}
	if _, err := HostRegister(mapping); !errors.Is(err, ErrInvalid) {
		t.Errorf("HostRegister a second time: %v", err)
	}
	check(t, HostUnregister(mapping), m.Free())
	if _, err := HostRegister(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("HostRegister of nothing: %v", err)
	}
}

func TestKernel(t *testing.T) {
	gpus(t, 1)
	f := function(t, kernels, "fill")
	a, err := f.Attributes()
	check(t, err)
	blocks, err := f.Occupancy(256, 0)
	check(t, err)
	t.Logf("%+v, %d blocks an SM", a, blocks)
	if a.Registers == 0 || a.MaxThreads < 256 || blocks < 1 {
		t.Error("no attributes")
	}
	s := stream(t)
	const n = 1 << 20
	p := malloc(t, 4*n)
	l := prepare(t, f, s, p, 5)
	l.SetGrid(n/512, 1, 1)
	l.SetBlock(512, 1, 1)
	l.SetRemoteDomain(true)
	check(t, l.Run(), s.Synchronize())
	if err := counting(words(t, p, n), 5); err != nil {
		t.Error(err)
	}
	// The driver copies the parameters: they may be changed at once.
	*(*uint32)(l.Param(1)) = 6
	check(t, l.Run())
	*(*uint32)(l.Param(1)) = 7
	check(t, s.Synchronize())
	if err := counting(words(t, p, n), 6); err != nil {
		t.Error(err)
	}

	l.SetBlock(4096, 1, 1)
	if err := l.Run(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "block 4096×1×1") {
		t.Errorf("a block of 4096 threads: %v", err)
	}
	l.SetBlock(512, 1, 1)
	l.SetGrid(1<<20, 1, 1)
	l.SetCooperative(true)
	if err := l.Run(); !errors.Is(err, ErrResources) {
		t.Errorf("2^20 blocks that must be resident at once: %v", err)
	}
	if _, err := Load([]byte(".version 7.8\n.target sm_80\n.address_size 64\nnonsense\n")); !errors.Is(err, ErrImage) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("nonsense as PTX: %v", err)
	}
}

func TestRunAll(t *testing.T) {
	ctx := gpus(t, 2)
	ls := make([]*Launch, len(ctx))
	ps := make([]Ptr, len(ctx))
	ss := make([]Stream, len(ctx))
	for i, c := range ctx {
		check(t, c.Bind())
		m, err := Load(kernels)
		check(t, err)
		f, err := m.Function("fill")
		check(t, err)
		if ps[i], err = Malloc(4096); err != nil {
			t.Fatal(err)
		}
		if ss[i], err = NewStream(0); err != nil {
			t.Fatal(err)
		}
		ls[i] = prepare(t, f, ss[i], ps[i], uint32(100*i))
		ls[i].SetBlock(1024, 1, 1)
		defer func() { check(t, c.Bind(), ss[i].Destroy(), Free(ps[i]), m.Unload()) }()
	}
	check(t, RunAll(ls))
	// The last one bound is current still.
	last := len(ctx) - 1
	p, err := Malloc(1)
	check(t, err)
	if info, err := PointerInfo(p); err != nil || info.Ordinal != last {
		t.Errorf("the current context after RunAll is of device %d, want %d (%v)", info.Ordinal, last, err)
	}
	check(t, Free(p))
	for i, c := range ctx {
		check(t, c.Bind(), ss[i].Synchronize())
		if err := counting(words(t, ps[i], 1024), uint32(100*i)); err != nil {
			t.Errorf("device %d: %v", i, err)
		}
	}
}

func TestDependent(t *testing.T) {
	gpus(t, 1)
	if all, err := Devices(); err != nil || all[0].ComputeMajor < 9 {
		t.Skip("programmatic dependent launch needs compute capability 9.0")
	}
	s := stream(t)
	p := malloc(t, 4)
	check(t, Memset32(p, 0, 1))
	l := prepare(t, function(t, dependent, "next"), s, p, 3)
	took := map[bool]time.Duration{}
	for _, on := range []bool{false, true} {
		l.SetDependent(on)
		check(t, s.Synchronize())
		start := time.Now()
		for range 1000 {
			check(t, l.Run())
		}
		check(t, s.Synchronize())
		took[on] = time.Since(start)
	}
	if w := words(t, p, 1); w[0] != 6000 {
		t.Errorf("2000 kernels added 3 each: %d, want 6000", w[0])
	}
	t.Logf("1000 kernels: %v one after the other, %v overlapped", took[false], took[true])
}

func TestGraph(t *testing.T) {
	gpus(t, 1)
	s, side := stream(t), stream(t)
	fork, join := event(t, 0), event(t, 0)
	const n = 1024
	p, q := malloc(t, 4*n), malloc(t, 4*n)
	l := prepare(t, function(t, kernels, "fill"), s, p, 9)
	l.SetBlock(n, 1, 1)
	check(t, Memset32(p, 0, n), Memset32(q, 0, n))

	// The kernel, then a copy of its result on another stream.
	check(t, s.BeginCapture(), l.Run(), fork.Record(s), side.WaitEvent(fork), CopyAsync(q, p, 4*n, side), join.Record(side), s.WaitEvent(join))
	for _, c := range []Stream{s, side} {
		if on, err := c.Capturing(); !on || err != nil {
			t.Errorf("Capturing: %v, %v", on, err)
		}
	}
	g, err := s.EndCapture()
	check(t, err)
	if on, err := s.Capturing(); on || err != nil {
		t.Errorf("Capturing after the end: %v, %v", on, err)
	}
	x, err := g.Instantiate()
	check(t, err, g.Destroy())
	if w := words(t, q, 1); w[0] != 0 {
		t.Error("the capture ran what it captured")
	}
	check(t, x.Upload(s))
	for range 3 {
		check(t, Memset32Async(q, 0, n, s), x.Launch(s), s.Synchronize())
		if err := counting(words(t, q, n), 9); err != nil {
			t.Error(err)
		}
	}
	check(t, x.Destroy())
}

func TestCaptureMisuse(t *testing.T) {
	gpus(t, 1)
	s := stream(t)
	if _, err := s.EndCapture(); err == nil {
		t.Error("EndCapture without a capture succeeds")
	}
	check(t, s.BeginCapture())
	if err := s.Synchronize(); !errors.Is(err, ErrCapture) {
		t.Errorf("Synchronize in a capture: %v", err)
	}
	if _, err := s.Capturing(); !errors.Is(err, ErrCapture) {
		t.Errorf("Capturing, spoilt: %v", err)
	}
	if _, err := s.EndCapture(); !errors.Is(err, ErrCapture) {
		t.Errorf("EndCapture of a spoilt capture: %v", err)
	}
	check(t, s.Synchronize())
}

func TestEvents(t *testing.T) {
	gpus(t, 1)
	a, b := stream(t), stream(t)
	from, to := event(t, Timing), event(t, Timing|Blocking)
	const n = 256 << 20
	p := malloc(t, n)
	check(t, from.Record(a))
	for range 10 {
		check(t, Memset8Async(p, 1, n, a))
	}
	check(t, to.Record(a))
	if done, err := to.Query(); done || err != nil {
		t.Errorf("2.5 GB are said to be written at once: %v, %v", done, err)
	}
	check(t, b.WaitEvent(to))
	if done, err := b.Query(); done || err != nil {
		t.Errorf("a stream that waits is done: %v, %v", done, err)
	}
	check(t, b.Synchronize())
	if done, err := to.Query(); !done || err != nil {
		t.Errorf("the event is not done, what waited for it is: %v, %v", done, err)
	}
	check(t, to.Synchronize())
	d, err := Elapsed(from, to)
	if err != nil || d < 100*time.Microsecond || d > time.Second {
		t.Errorf("2.5 GB took %v, %v", d, err)
	}
	t.Logf("%.0f GB/s", 10*n/d.Seconds()/1e9)
	if _, err := Elapsed(from, event(t, 0)); !errors.Is(err, ErrInvalid) {
		t.Errorf("Elapsed of an event without a time: %v", err)
	}
}

func TestStreamValues(t *testing.T) {
	gpus(t, 1)
	if all, err := Devices(); err != nil || !all[0].CanStreamMemOps {
		t.Skip("the device has no stream memory operations")
	}
	a, b := stream(t), stream(t)
	p := malloc(t, 8)
	check(t, Memset32(p, 0, 2))
	check(t, a.WaitValue32(p, 5), Memset32Async(p+4, 1, 1, a))
	time.Sleep(10 * time.Millisecond)
	if done, err := a.Query(); done || err != nil {
		t.Errorf("the stream does not wait: %v, %v", done, err)
	}
	check(t, b.WriteValue32(p, 6), a.Synchronize())
	if w := words(t, p, 2); w[0] != 6 || w[1] != 1 {
		t.Errorf("%v, want [6 1]", w)
	}
}

func TestPeer(t *testing.T) {
	ctx := gpus(t, 2)
	if !ctx[0].CanAccessPeer(1) || !ctx[1].CanAccessPeer(0) {
		t.Skip("the first two GPUs cannot reach each other's memory")
	}
	const n = 1 << 20
	check(t, ctx[1].Bind())
	far := malloc(t, 4*n)
	check(t, Memset32(far, 0, n), ctx[0].Bind())
	check(t, ctx[0].EnablePeer(ctx[1]), ctx[0].EnablePeer(ctx[1]))
	s := stream(t)
	near := malloc(t, 4*n)
	l := prepare(t, function(t, kernels, "fill"), s, far, 11)
	l.SetGrid(n/1024, 1, 1)
	l.SetBlock(1024, 1, 1)
	check(t, l.Run(), CopyAsync(near, far, 4*n, s), s.Synchronize())
	for _, p := range []Ptr{near, far} {
		if err := counting(words(t, p, n), 11); err != nil {
			t.Error(err)
		}
	}
}

// TestPeerSwitch: copies between two devices arrive with peer access and without
// it, which can be taken back, by every call that makes them.
func TestPeerSwitch(t *testing.T) {
	ctx := gpus(t, 2)
	const n = 4 << 10
	check(t, ctx[1].Bind())
	far := malloc(t, n)
	check(t, ctx[0].Bind())
	near, s := malloc(t, n), stream(t)
	combined, err := HostAllocCombined(n)
	check(t, err)
	defer func() { check(t, combined.Free()) }()
	for i, on := range []bool{true, false, false} {
		if on && ctx[0].CanAccessPeer(1) {
			check(t, ctx[0].EnablePeer(ctx[1]))
		} else {
			check(t, ctx[0].DisablePeer(ctx[1]))
		}
		want := bytes.Repeat([]byte{byte(i + 1)}, n)
		copy(combined.Bytes, want)
		check(t, Copy(near, combined.Ptr, n), Stream(0).Synchronize(), CopyPeerAsync(far, ctx[1], near, ctx[0], n, s), s.Synchronize())
		got := make([]byte, n)
		if check(t, CopyFromDevice(got, far)); !bytes.Equal(got, want) {
			t.Errorf("peer access %v: byte %d, not %d", on, got[0], want[0])
		}
	}
}

// TestVirtual: memory whose addresses are reserved apart is memory like any other, of
// all devices, and goes when it is freed.
func TestVirtual(t *testing.T) {
	ctx := gpus(t, 1)[0]
	infos, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	if !infos[0].CanVirtual {
		t.Skip("the device has no virtual memory management")
	}
	var others []int
	for i := range infos {
		if i != 0 && ctx.CanAccessPeer(i) {
			others = append(others, i)
		}
	}
	before, _, err := MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	const n = 64 << 20
	v, err := NewVirtual(infos[0], others, n-5)
	if err != nil {
		t.Fatal(err)
	}
	if v.Size != n {
		t.Errorf("%d bytes were asked for and %d given", n-5, v.Size)
	}
	if during, _, err := MemInfo(); err != nil || before-during < n {
		t.Errorf("%d bytes are taken, %v; want %d", before-during, err, n)
	}
	want, got := bytes.Repeat([]byte{1, 2, 3}, 1000), make([]byte, 3000)
	at := v.Ptr + n - 3000
	if err := errors.Join(CopyToDevice(at, want), CopyFromDevice(got, at)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("what was written did not come back: %v", err)
	}
	if base, size, err := AddressRange(at); base != v.Ptr || size != n || err != nil {
		t.Errorf("AddressRange: %v, %d, %v; want %v, %d", base, size, err, v.Ptr, n)
	}
	if info, err := PointerInfo(at); err != nil || info.Ordinal != 0 || !info.IsDevice || info.LegacyIPC {
		t.Errorf("PointerInfo: %+v, %v", info, err)
	}
	if err := errors.Join(ctx.Synchronize(), v.Free()); err != nil {
		t.Fatal(err)
	}
	if after, _, err := MemInfo(); err != nil || after != before {
		t.Errorf("%d bytes are left over, %v", before-after, err)
	}
	if _, err := NewVirtual(infos[0], nil, 1<<60); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("memory that there is not: %v", err)
	}
}
