//go:build cuda && cgo

package diag

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gputest"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// open opens the GPUs, or skips the test.
func open(t *testing.T) *cudaMachine {
	t.Helper()
	m, err := Open(sysfs.FS{})
	n := 0
	if err == nil {
		n = len(m.GPUs())
	}
	gputest.Need(t, 1, n, err, driver.ErrNoDriver, driver.ErrNoDevice)
	runtime.LockOSThread()
	t.Cleanup(func() {
		defer runtime.UnlockOSThread()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m.(*cudaMachine)
}

// take prepares a GPU and some of its memory: little where it is the processor's.
func take(t *testing.T, r *cudaMachine, gpu int) *device {
	t.Helper()
	d, err := r.Device(gpu)
	check(t, err)
	most := int64(4 << 30)
	if os.Getenv(gputest.Fake) != "" {
		most = 6 << 20
	}
	got, of, err := d.Take(most)
	check(t, err)
	if got != most || of < got {
		t.Fatalf("took %d bytes of %d; want %d", got, of, most)
	}
	return d.(*device)
}

// TestGPUClose: what is freed is freed in its own context, however the scheduler
// moves the goroutine that closes.
func TestGPUClose(t *testing.T) {
	open(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 4 {
		go func() {
			for ctx.Err() == nil {
				runtime.Gosched()
			}
		}()
	}
	for range 10 {
		m, err := Open(sysfs.FS{})
		check(t, err)
		for _, g := range m.GPUs() {
			_, err := m.Device(g.Index)
			check(t, err)
		}
		closed := make(chan error)
		go func() { closed <- m.Close() }()
		check(t, <-closed)
	}
}

// TestGPUPatterns: all patterns are found as they were written, and so are their
// complements.
func TestGPUPatterns(t *testing.T) {
	d := take(t, open(t), 0)
	for _, p := range patterns(64, 7) {
		_, err := d.Write(p)
		check(t, err)
		inverse, ok := p.inverse()
		m, _, err := d.Verify(p, ok)
		check(t, err)
		if m.Count != 0 {
			t.Errorf("%s: %+v", p.Name, m)
		}
		if !ok {
			continue
		}
		if m, _, err := d.Verify(inverse, false); err != nil || m.Count != 0 {
			t.Errorf("%s, inverted: %+v, %v", p.Name, m, err)
		}
	}
	// A pattern is not another one.
	m, _, err := d.Verify(constants()[1], false)
	if check(t, err); m.Count != uint64(d.pieces[0].bytes)/8 || len(m.First) != kept {
		t.Errorf("random words as 0xFF: %d are wrong, %d were kept", m.Count, len(m.First))
	}
}

// TestGPUFlip: one wrong bit is found wherever it is, with its address and what
// should be there.
func TestGPUFlip(t *testing.T) {
	d := take(t, open(t), 0)
	end := d.pieces[0].bytes
	for _, p := range patterns(2, 3) {
		for _, at := range []int64{0, 8, end / 3 &^ 7, end - 8} {
			_, err := d.Write(p)
			check(t, err)
			check(t, d.Flip(at, 1<<33))
			m, _, err := d.Verify(p, false)
			check(t, err)
			if m.Count != 1 || m.Bits != 1<<33 || len(m.First) != 1 || m.First[0].At != uint64(d.pieces[0].at)+uint64(at) || m.First[0].Expected^m.First[0].Found != 1<<33 {
				t.Errorf("%s, byte %d: %+v", p.Name, at, m)
			}
		}
	}
	if err := d.Flip(end, 1); err == nil {
		t.Error("a byte that was not taken")
	}
}

// TestGPUTake: nearly all free memory can be had, and is given back.
func TestGPUTake(t *testing.T) {
	r := open(t)
	d, err := r.Device(0)
	check(t, err)
	free, _, err := driver.MemInfo()
	check(t, err)
	for range 2 {
		got, of, err := d.Take(0)
		check(t, err)
		if got < free-2*reserve || got > of {
			t.Errorf("took %d bytes; %d were free", got, free)
		}
		t.Logf("took %d of %d bytes, %.2f %%, in %d pieces", got, of, 100*float64(got)/float64(of), len(d.(*device).pieces))
	}
	check(t, d.Free())
	if after, _, err := driver.MemInfo(); err != nil || after < free-reserve {
		t.Errorf("%d bytes are free, %d were; %v", after, free, err)
	}
}

// TestGPUStreams: each stream leaves what it should.
func TestGPUStreams(t *testing.T) {
	d := take(t, open(t), 0)
	for _, s := range []streamKind{writeStream, readStream, copyStream, triadStream} {
		bytes, seconds, err := d.Stream(s)
		check(t, err)
		t.Logf("%s: %.0f GB/s", s, float64(bytes)/seconds/1e9)
	}
	if err := d.summed(d.pieces[0].at, 4096, 3); err == nil {
		t.Error("what is not there adds up")
	}
}

// TestGPUHost: copies to and from the host arrive.
func TestGPUHost(t *testing.T) {
	r := open(t)
	for gpu := range r.gpus {
		d, err := r.Device(gpu)
		check(t, err)
		for _, dir := range []direction{toDevice, toHost, bothWays} {
			bytes, seconds, m, err := d.Host(dir, 2)
			if err != nil || m.Count != 0 || bytes < 2*hostBytes || seconds <= 0 {
				t.Errorf("GPU %d, %s: %d bytes, %v s, %+v, %v", gpu, dir, bytes, seconds, m, err)
			}
		}
		check(t, d.Free())
	}
}

// TestGPURemote: peers find what was written, and it is read back.
func TestGPURemote(t *testing.T) {
	r := open(t)
	if len(r.gpus) < 2 {
		t.Skip("it takes two GPUs")
	}
	a, b := take(t, r, 0), take(t, r, 1)
	for _, pair := range [][2]*device{{a, b}, {b, a}} {
		x, err := pair[0].Remote(pair[1], memPattern{"random", randomWords, 5})
		if err != nil || x.Written.Count+x.ReadBy.Count != 0 || x.Write <= 0 || !x.Staged && x.Read <= 0 {
			t.Errorf("%+v, %v", x, err)
		}
		if direct := pair[0].CanAccessPeer(pair[1].Info.Ordinal); direct == x.Staged {
			t.Errorf("direct access %v, staged %v", direct, x.Staged)
		}
	}
}

// TestGPUProducts: all kernels compute what the processor does, on all
// multiprocessors, and a wrong bit of one of them shows.
func TestGPUProducts(t *testing.T) {
	r := open(t)
	d := take(t, r, 0)
	for _, fast := range []bool{true, false} {
		if fast && !d.fast {
			if d.Info.ComputeMajor == 9 && d.Info.ComputeMinor == 0 {
				t.Error("the driver does not take the kernels of warpgroup.cu")
			}
			continue
		}
		d.fast = fast
		for _, k := range []productKind{bf16, fp16, fp32, fp64} {
			p, err := d.Product(productWork{Kind: k, Seed: 9, Exact: true, Rounds: 3})
			check(t, err)
			l := load{job: new(job), kind: k}
			if l.compare(p); p.Wrong != 0 || len(l.wrong)+len(l.changed) != 0 {
				t.Errorf("%s by %s: %d results are wrong, %d multiprocessors differ, %d change", k, p.Way, p.Wrong, len(l.wrong), len(l.changed))
			}
			p, err = d.Product(productWork{Kind: k, Seed: 9, Rounds: 4, FlipSM: 1})
			check(t, err)
			l = load{job: new(job), kind: k}
			l.compare(p)
			if _, ok := l.changed[0]; !ok || len(l.changed) != 1 || len(l.wrong) != 0 {
				t.Errorf("%s by %s: with a wrong bit on multiprocessor 0, %v change and %v differ", k, p.Way, l.changed, l.wrong)
			}
			p, err = d.Product(productWork{Kind: k, Seed: 10, For: 0.05})
			check(t, err)
			t.Logf("%s by %s: %.2f TFLOP/s, %d blocks, %.3f s", k, p.Way, p.Flops/p.Seconds/1e12, len(p.Blocks), p.Seconds)
		}
	}
}

// TestGPUPairs: the tests among GPUs pass, whichever thread their goroutine came from.
func TestGPUPairs(t *testing.T) {
	if n := len(open(t).GPUs()); n < 2 {
		t.Skip("it takes two GPUs")
	}
	db, err := platform.Load()
	check(t, err)
	size := 256.0
	if os.Getenv(gputest.Fake) != "" {
		size = 4
	}
	for _, name := range []string{"p2p", "nvlink_stress"} {
		test, _ := testNamed(name)
		in, err := json.Marshal(request{Params: map[string]float64{duration: 0.2, "size_mb": size, "max_nvlink_crc": 100}})
		check(t, err)
		env := Environment{
			Open: func() (Machine, error) { return Open(sysfs.FS{}) }, DB: db, Root: t.TempDir(),
			Sensors: func() (Sensors, error) { return nil, errors.New("none here") },
			Links:   func() (map[sysfs.BusID]nvml.Links, error) { return nil, errors.New("none here") },
		}
		var out bytes.Buffer
		done := make(chan error)
		go func() { done <- Child(t.Context(), test.Name, env, bytes.NewReader(in), &out) }()
		check(t, <-done)
		var last message
		lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
		check(t, json.Unmarshal(lines[len(lines)-1], &last))
		if last.Result == nil || last.Result.Verdict != result.Pass || len(last.Result.Objects) == 0 {
			t.Errorf("%s: %s", name, out.Bytes())
		}
	}
}
