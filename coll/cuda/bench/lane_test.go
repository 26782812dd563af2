//go:build cuda && cgo

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gputest"
)

var _ perf.Lane = (*Lane)(nil)

// gpus are the machine's, at least n; else the test is skipped.
func gpus(t *testing.T, n int) []driver.DeviceInfo {
	t.Helper()
	err := driver.Init()
	var all []driver.DeviceInfo
	if err == nil {
		all, err = driver.Devices()
	}
	gputest.Need(t, n, len(all), err, driver.ErrNoDriver, driver.ErrNoDevice)
	return all
}

// lane opens a lane on a GPU. The test's goroutine is locked to its thread.
func lane(t *testing.T, ordinal int) *Lane {
	t.Helper()
	runtime.LockOSThread()
	c, err := driver.Open(ordinal)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(c)
	if err == nil {
		err = l.Bind()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// random is test data of n bytes.
func random(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// tiled is what Fill writes.
func tiled(n int, pattern []byte, phase int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = pattern[(phase+int64(i))%int64(len(pattern))]
	}
	return b
}

func get(t *testing.T, b []byte) []byte {
	t.Helper()
	out := make([]byte, len(b))
	must(t, driver.CopyFromDevice(out, driver.Ptr(Address(b))))
	return out
}

func put(t *testing.T, dst, src []byte) {
	t.Helper()
	must(t, driver.CopyToDevice(driver.Ptr(Address(dst)), src))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func alloc(t *testing.T, l *Lane, n int) []byte {
	t.Helper()
	b, err := l.Alloc(n)
	must(t, err)
	t.Cleanup(func() { l.Free(b) })
	return b
}

// wrong is how many elements one Compare counts.
func wrong(t *testing.T, l *Lane, got, pattern []byte, phase int64, size int, slack uint64) int64 {
	t.Helper()
	must(t, l.Compare(got, pattern, phase, size, slack))
	n, err := l.Wrong()
	must(t, err)
	return n
}

// TestFillAndCompare: every byte is filled and compared, none beside them is
// touched, whatever the sizes and the alignment.
func TestFillAndCompare(t *testing.T) {
	gpus(t, 1)
	l := lane(t, 0)
	const edge = 64
	mem := alloc(t, l, 1<<20+2*edge+8)
	canary := random(7, len(mem))
	for _, size := range []int{1, 2, 4, 8} {
		for _, elements := range []int{1, 2, 61, 1021, 8191} {
			pattern := random(uint64(elements), elements*size)
			for _, n := range []int{0, 1, 3, 255, 1000, (1 << 20) / size} {
				phase := int64(rand.IntN(elements) * size)
				at := edge + rand.IntN(8/size)*size
				dst := mem[at : at+n*size]
				name := fmt.Sprintf("%d elements of %d bytes at %d, of %d from %d on", n, size, at, elements, phase)
				put(t, mem, canary)
				must(t, l.Fill(dst, pattern, phase), l.Wait())
				want := bytes.Clone(canary)
				copy(want[at:], tiled(n*size, pattern, phase))
				if !bytes.Equal(get(t, mem), want) {
					t.Fatalf("%s: filled with something else", name)
				}
				if bad := wrong(t, l, dst, pattern, phase, size, 0); bad != 0 {
					t.Fatalf("%s: %d are wrong", name, bad)
				}
				if n == 0 {
					continue
				}
				// One bit in the first and in the last element.
				want[at] ^= 1
				if n > 1 {
					want[at+n*size-1] ^= 0x80
				}
				put(t, mem, want)
				if bad := wrong(t, l, dst, pattern, phase, size, 0); bad != int64(min(n, 2)) {
					t.Fatalf("%s: %d are wrong; want %d", name, bad, min(n, 2))
				}
				if bad := wrong(t, l, dst, pattern, phase, size, 1); bad != int64(min(n, 2)-1) { // the first is near
					t.Fatalf("%s: with slack %d are wrong", name, bad)
				}
			}
		}
	}
}

// TestCompareAll: what is all wrong is counted once for each element, and
// several Compares add up.
func TestCompareAll(t *testing.T) {
	gpus(t, 1)
	l := lane(t, 0)
	mem := alloc(t, l, 24<<20)
	zero, one := []byte{0, 0, 0, 0, 0, 0, 0, 0}, []byte{1, 1, 1, 1, 1, 1, 1, 1}
	must(t, l.Fill(mem, zero, 0))
	want := int64(0)
	for _, size := range []int{1, 2, 4, 8} {
		must(t, l.Compare(mem, one, 0, size, 0))
		want += int64(len(mem) / size)
	}
	if n, err := l.Wrong(); n != want || err != nil {
		t.Errorf("%d are wrong, %v; want %d", n, err, want)
	}
	if n, err := l.Wrong(); n != 0 || err != nil {
		t.Errorf("then %d are wrong, %v; want 0", n, err)
	}
}

// TestLarge: more bytes than 32 bits count.
func TestLarge(t *testing.T) {
	gpus(t, 1)
	l := lane(t, 0)
	n := 5<<30 + 3
	if free, _, err := l.Memory(); err != nil || free < int64(n)+1<<30 {
		t.Skipf("%d bytes are free, %v", free, err)
	}
	mem := alloc(t, l, n)
	pattern := random(1, 65521)
	must(t, l.Fill(mem, pattern, 1))
	if bad := wrong(t, l, mem, pattern, 1, 1, 0); bad != 0 {
		t.Errorf("%d are wrong", bad)
	}
	if got, want := get(t, mem[n-100:]), tiled(100, pattern, int64(n-99)); !bytes.Equal(got, want) {
		t.Error("the end is something else")
	}
	put(t, mem[n-1:], []byte{^pattern[n%len(pattern)]})
	if bad := wrong(t, l, mem, pattern, 1, 1, 0); bad != 1 {
		t.Errorf("%d are wrong; want 1", bad)
	}
	if bad := wrong(t, l, mem, pattern, 2, 1, 0); bad < int64(n)/2 {
		t.Errorf("out of step %d are wrong", bad)
	}
}

// TestManyPatterns: the device forgets some and is given them again.
func TestManyPatterns(t *testing.T) {
	gpus(t, 1)
	l := lane(t, 0)
	mem := alloc(t, l, 64<<10)
	var all [][]byte
	for i := range 3 * slots {
		all = append(all, random(uint64(i), 1000+100*(i%7)))
	}
	for range 3 {
		for i, p := range all {
			must(t, l.Fill(mem, p, 0))
			if bad := wrong(t, l, mem, p, 0, 1, 0); bad != 0 {
				t.Fatalf("pattern %d: %d are wrong", i, bad)
			}
		}
	}
}

func TestWhatCompareRefuses(t *testing.T) {
	gpus(t, 1)
	l := lane(t, 0)
	mem, pattern := alloc(t, l, 64), random(1, 64)
	for what, err := range map[string]error{
		"size 3":            l.Compare(mem, pattern, 0, 3, 0),
		"odd address":       l.Compare(mem[1:5], pattern, 0, 4, 0),
		"odd phase":         l.Compare(mem, pattern, 1, 2, 0),
		"part of a pattern": l.Compare(mem, pattern[:63], 0, 2, 0),
		"no pattern":        l.Fill(mem, nil, 0),
		"a long pattern":    l.Fill(mem, make([]byte, room+1), 0),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	must(t, l.Wait())
}

func TestMarks(t *testing.T) {
	gpus(t, 1)
	l := lane(t, 0)
	mem, pattern := alloc(t, l, 256<<20), random(1, 1021)
	must(t, l.Mark(0), l.Fill(mem, pattern, 0), l.Mark(3))
	d, err := l.Between(0, 3)
	if err != nil || d < 10*time.Microsecond || d > 10*time.Second {
		t.Errorf("filling took %v, %v", d, err)
	}
}

// TestCapture: nothing is done before the launch, and everything again at each.
func TestCapture(t *testing.T) {
	gpus(t, 1)
	l := lane(t, 0)
	mem := alloc(t, l, 1<<20)
	a, b := random(1, 61), random(2, 61)
	must(t, l.Fill(mem, b, 0), l.Fill(mem, a, 0))
	g, err := l.Capture(func() error { return l.Fill(mem, b, 0) })
	must(t, err)
	if bad := wrong(t, l, mem, a, 0, 1, 0); bad != 0 {
		t.Error("recording did what it recorded")
	}
	for range 2 {
		must(t, l.Fill(mem, a, 0), g.Launch())
		if bad := wrong(t, l, mem, b, 0, 1, 0); bad != 0 {
			t.Errorf("after the launch %d are wrong", bad)
		}
	}
	must(t, l.Wait(), g.Close())

	stop := errors.New("no further")
	if _, err := l.Capture(func() error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Capture: %v; want what f returned", err)
	}
	must(t, l.Fill(mem, a, 0), l.Wait())
}

// onLane runs f on a thread where the lane is bound.
func onLane(l *Lane, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := l.Bind(); err != nil {
		return err
	}
	return f()
}
