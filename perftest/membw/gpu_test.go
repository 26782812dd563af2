//go:build cuda && cgo

package membw

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gputest"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// open opens the GPUs, or skips the test.
func open(t *testing.T) Machine {
	t.Helper()
	m, err := Open(sysfs.FS{}, false)
	n := 0
	if err == nil {
		n = len(m.GPUs())
	}
	gputest.Need(t, 1, n, err, driver.ErrNoDriver, driver.ErrNoDevice)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestGPUFlows: every kind of copy, of sizes that are no multiple of anything,
// arrives as it was sent.
func TestGPUFlows(t *testing.T) {
	m := open(t)
	check(t, connect(m, true))
	last := len(m.GPUs()) - 1
	ctx := t.Context()
	for _, bytes := range []int{1, 8, 15, 4096, 1<<20 + 13} {
		for name, flows := range map[string][]Flow{
			"up":            upload(0, last),
			"down":          download(last, 0),
			"combined":      {{From: endpoint{0, combined}, To: gpu(0)}},
			"pageable up":   {{From: endpoint{0, pageable}, To: gpu(0)}},
			"pageable down": {{From: gpu(0), To: endpoint{0, pageable}}},
			"up sm":         {{From: endpoint{last, pinned}, To: gpu(last), By: last, Engine: engineSM}},
			"down sm":       {{From: gpu(0), To: endpoint{0, pinned}, Engine: engineSM}},
			"both sm":       {{From: gpu(0), To: endpoint{0, pinned}, Engine: engineSM, Both: true}},
			"local":         write(engineCE)(0, 0),
			"local sm":      write(engineSM)(0, 0),
			"scaled":        append([]Flow{{From: gpu(0), To: endpoint{0, pinned}, Scale: 2}}, upload(0, 0)...),
		} {
			for _, timing := range []timingKind{whileHeld, byEvents, byStopwatch, eachCall} {
				if strings.HasPrefix(name, "pageable") && timing != eachCall || flows[0].Both && timing == eachCall {
					continue // what cannot be: cuMemcpy copies one way
				}
				out, err := m.Measure(ctx, flows, Plan{Bytes: bytes, Samples: 2, Copies: 3, Warmup: 1, Timing: timing})
				if err != nil || len(out.Flows) != len(flows) || len(out.Flows[0]) != 2 || len(out.Total) != 2 || out.Total[0] <= 0 {
					t.Errorf("%s of %d bytes, timing %d: %v, %+v", name, bytes, timing, err, out)
				}
			}
		}
	}
}

// TestGPUPeers: between all that can reach each other, and through the host.
func TestGPUPeers(t *testing.T) {
	m := open(t)
	n := len(m.GPUs())
	if n < 2 {
		t.Skip("it takes two GPUs")
	}
	for a := range n {
		for b := range a {
			for _, on := range []bool{true, false, true} {
				if m.Peer(a, b) != nil && on {
					continue
				}
				check(t, m.SetPeer(a, b, on))
				flows := append(append(write(engineCE)(a, b), read(engineCE)(a, b)...), bothWays(engineCE)(a, b)...)
				if on {
					flows = append(append(flows, write(engineSM)(a, b)...), read(engineSM)(a, b)...)
				}
				if _, err := m.Measure(t.Context(), flows, Plan{Bytes: 1<<20 + 13, Samples: 2, Copies: 3, Warmup: 1}); err != nil {
					t.Errorf("GPUs %d and %d, peer access %v: %v", a, b, on, err)
				}
			}
		}
	}
}

// TestGPULatency: pointers lead to where they should, from host and peers.
func TestGPULatency(t *testing.T) {
	m := open(t)
	check(t, connect(m, true))
	places := []endpoint{gpu(0), {0, pinned}}
	if n := len(m.GPUs()); n > 1 && m.Peer(0, n-1) == nil {
		places = append(places, gpu(n-1))
	}
	for _, p := range places {
		got, err := m.Latency(t.Context(), Latency{By: 0, At: p, Accesses: 20000, Samples: 2})
		if err != nil || len(got) != 2 || got[0] <= 0 || got[0] > 1e-4 {
			t.Errorf("%+v: %v s, %v", p, got, err)
		}
	}
}

// TestGPUReport: all families pass, or say why not, and an interrupt ends it.
func TestGPUReport(t *testing.T) {
	m := open(t)
	db, err := platform.Load()
	check(t, err)
	o := Defaults()
	o.DB, o.Versus = db, true
	if os.Getenv(gputest.Fake) != "" {
		o.Bytes, o.Samples, o.Copies, o.Accesses = 1<<16, 2, 2, 1000
	}
	r, err := o.Run(t.Context(), m)
	check(t, err)
	for _, res := range r.Results {
		check(t, res.Validate())
		for _, o := range res.Objects {
			if o.Measured == nil && o.Verdict != result.Skip && res.ID != linksID {
				t.Errorf("%s: %+v", res.ID, o)
			}
		}
	}
	check(t, r.WriteText(t.Output()))
	check(t, WriteMarkdown(t.Output(), []*Report{r}))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := o.Run(ctx, m); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt: %v", err)
	}
}

// TestFakeWrong: a bit that is lost on the way to GPU 1 fails those cells alone,
// and names it.
func TestFakeWrong(t *testing.T) {
	if os.Getenv("FAKE_WRONG") == "" {
		t.Skip("another test starts this one")
	}
	o := Options{Bytes: 1 << 16, Samples: 1, Copies: 1, Accesses: 100, Families: []string{"local_ce", "peer_write_ce", "peer_read_sm"}}
	r, err := o.Run(t.Context(), open(t))
	check(t, err)
	wrong := func(o result.Object) bool {
		return o.Verdict == result.Fail && strings.Contains(o.Reason, "wrong data: 1 word of 8 bytes not as sent, the first at byte 32768 of 65536")
	}
	for _, res := range r.Results { // the fake kernel makes no mistake
		for _, o := range res.Objects {
			if want := res.ID == "peer_write_ce" && o.Peer == "GPU 1"; wrong(o) != want {
				t.Errorf("%s: %+v", res.ID, o)
			}
		}
	}
	if r.Verdict != result.Fail {
		t.Errorf("verdict %s", r.Verdict)
	}
}

// TestFakeMemory: sizes that grow need no more memory than the largest of them.
func TestFakeMemory(t *testing.T) {
	if os.Getenv("FAKE_MEMORY") == "" {
		t.Skip("another test starts this one")
	}
	m := open(t)
	for _, bytes := range []int{350 << 10, 400 << 10, 500 << 10} { // twice, of 1 MiB
		if _, err := m.Measure(t.Context(), write(engineCE)(0, 0), Plan{Bytes: bytes, Samples: 1, Copies: 1, Timing: byEvents}); err != nil {
			t.Errorf("copying %d bytes within 1 MiB of memory: %v", bytes, err)
		}
	}
}

// TestFakeSlow: a GPU that is slow with everyone is named.
func TestFakeSlow(t *testing.T) {
	if os.Getenv("FAKE_SLOW") == "" {
		t.Skip("another test starts this one")
	}
	t.Setenv("FAKE_SLOW", "1")
	o := Options{Bytes: 1 << 20, Samples: 1, Copies: 1, Families: []string{"peer_write_ce"}}
	r, err := o.Run(t.Context(), open(t))
	check(t, err)
	for _, o := range r.Results[0].Objects {
		if slow := o.Name == "GPU 1" || o.Peer == "GPU 1"; slow && o.Measured.Value > 1 {
			t.Errorf("%+v", o)
		}
	}
}
