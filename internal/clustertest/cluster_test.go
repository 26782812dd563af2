package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func run(t *testing.T, h *Host, name string, args ...string) string {
	t.Helper()
	out, err := h.Command(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s %q: %v: %s", h.Name, name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// dial is what becomes of a connection to a port that nobody listens on: a kernel
// that is there refuses it.
func dial(t *testing.T, from *Host, to string) string {
	t.Helper()
	out, _ := from.Command(t.Context(), "timeout", "5", "bash", "-c", "exec 3<>/dev/tcp/"+to+"/9").CombinedOutput()
	return string(out)
}

// TestHosts: each is a machine of its own.
func TestHosts(t *testing.T) {
	c := Start(t, Options{Hosts: 3})
	for _, what := range []string{"hostname", "cat /etc/hostname", "cat /etc/machine-id", "cat /proc/sys/kernel/random/boot_id", "hostname -I", "readlink /proc/1/ns/ipc"} {
		seen := map[string]string{}
		for _, h := range c.Hosts {
			out := run(t, h, "sh", "-c", what)
			if other := seen[out]; other != "" || out == "" {
				t.Errorf("%s: %q on %s and %s", what, out, other, h.Name)
			}
			seen[out] = h.Name
		}
	}
	a, b := c.Hosts[0], c.Hosts[1]
	run(t, a, "sh", "-c", "echo mine >/root/file; echo mine >/run/file; echo mine >/tmp/file; echo mine >/dev/shm/file; echo ours >/shared/file")
	if got := run(t, b, "sh", "-c", "cat /shared/file; ls /root/file /run/file /tmp/file /dev/shm/file 2>/dev/null || true"); got != "ours" {
		t.Errorf("%s sees %q; want what is shared alone", b.Name, got)
	}
	if out := dial(t, a, b.Name); !strings.Contains(out, "refused") {
		t.Errorf("%s does not answer: %s", b.Name, out)
	}
	if out := dial(t, a, "192.0.2.1"); !strings.Contains(out, "unreachable") {
		t.Errorf("the outside answers: %s", out)
	}
	if n := len(strings.Fields(run(t, a, "sh", "-c", "cd /proc; echo [0-9]*"))); n > 3 {
		t.Errorf("%d processes; want its own", n)
	}
}

// TestFaults: what a host is after each of them, and after it came back.
func TestFaults(t *testing.T) {
	c := Start(t, Options{Hosts: 2})
	a, b := c.Hosts[0], c.Hosts[1]
	answers := func() bool { return strings.Contains(dial(t, a, b.Name), "refused") }
	lives := func() bool {
		ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
		defer end()
		// The first process that starts on a frozen host is not frozen itself.
		state, err := b.Command(ctx, "cat", "/proc/1/stat").Output()
		return err == nil && !strings.Contains(string(state), ") T ")
	}
	for _, tt := range []struct {
		name           string
		fault          func() error
		answers, lives bool
	}{
		{"none", func() error { return nil }, true, true},
		{"frozen", b.Freeze, true, false},
		{"cut", b.Cut, false, true},
		{"killed", func() error { b.Kill(); return nil }, false, false},
	} {
		if err := tt.fault(); err != nil {
			t.Fatal(err)
		}
		if got := answers(); got != tt.answers {
			t.Errorf("%s: answers is %v", tt.name, got)
		}
		if b.fakeMachine != nil || tt.lives {
			if got := lives(); got != tt.lives {
				t.Errorf("%s: lives is %v", tt.name, got)
			}
		}
		b.Boot()
		if !answers() || !lives() {
			t.Errorf("after %s it did not come back", tt.name)
		}
	}
}

// TestKilled: what runs on a host dies with it, also on one that is frozen.
func TestKilled(t *testing.T) {
	c := Start(t, Options{Hosts: 2})
	for _, h := range c.Hosts {
		cmd := h.Command(t.Context(), "sh", "-c", "echo up; sleep 600")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		if h == c.Hosts[0] {
			if err := h.Freeze(); err != nil {
				t.Fatal(err)
			}
		}
		h.Kill()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 137 {
			t.Errorf("%s: %v", h.Name, err)
		}
	}
}

// A flow is what iperf3 measured.
type flow struct{ rate, resent float64 } // bits a second; share of packets

// iperf sends from one host to another for a while.
func iperf(t *testing.T, from, to *Host) flow {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	server := to.Command(ctx, "iperf3", "-s", "-1")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	type report struct {
		Error string
		End   struct {
			Sent struct {
				Bytes       float64
				Retransmits float64
			} `json:"sum_sent"`
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	var doc report
	for range 50 {
		doc = report{}
		out, _ := from.Command(ctx, "iperf3", "-J", "-t", "2", "-c", to.Addr.String()).Output()
		if err := json.Unmarshal(out, &doc); err != nil {
			t.Fatalf("iperf3: %v: %s", err, out)
		}
		if !strings.Contains(doc.Error, "refused") {
			break
		}
		time.Sleep(20 * time.Millisecond) // the server is not up yet
	}
	if doc.Error != "" {
		t.Fatalf("iperf3: %s", doc.Error)
	}
	_ = server.Wait()
	return flow{doc.End.Received.BitsPerSecond, doc.End.Sent.Retransmits / (doc.End.Sent.Bytes / segment)}
}

// segment is how much a packet of TCP carries on Ethernet.
const segment = 1448

// TestLinks measures what links are set to.
func TestLinks(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures rates, which takes a machine with nothing else to do: make test ONLY=fabric")
	}
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("there is no iperf3: apt-get install iperf3")
	}
	const rate = 200e6
	c := Start(t, Options{Hosts: 2, Rate: rate})
	a, b := c.Hosts[0], c.Hosts[1]
	full, half, lossy := Path{Rate: rate}, Path{Rate: rate / 2}, Path{Rate: rate, Loss: 0.02}
	whole := Link{full, full}
	for _, tt := range []struct {
		name     string
		link     Link // of the second
		to, from float64
		loss     [2]float64
	}{
		{"as it is", whole, rate, rate, [2]float64{0, 0}},
		{"half, both ways", Link{half, half}, rate / 2, rate / 2, [2]float64{0, 0}},
		{"half, sending", Link{half, full}, rate, rate / 2, [2]float64{0, 0}},
		{"half, receiving", Link{full, half}, rate / 2, rate, [2]float64{0, 0}},
		{"2 % of what it sends", Link{lossy, full}, rate, rate, [2]float64{0, 0.02}},
		{"2 % of what it receives", Link{full, lossy}, rate, rate, [2]float64{0.02, 0}},
		{"mended", whole, rate, rate, [2]float64{0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.SetLink(tt.link)
			for i, way := range []struct {
				from, to *Host
				rate     float64
			}{{a, b, tt.to}, {b, a, tt.from}} {
				f := iperf(t, way.from, way.to)
				name := way.from.Name + " to " + way.to.Name
				t.Logf("%s: %.1f Mbit/s, %.2f %% resent", name, f.rate/1e6, 100*f.resent)
				if f.rate > 1.1*way.rate || tt.loss[i] == 0 && f.rate < 0.8*way.rate {
					t.Errorf("%s: %.1f Mbit/s; want about %.0f", name, f.rate/1e6, way.rate/1e6)
				}
				// Of 15,000 packets or more, a share's standard deviation is at most 0.12 %.
				if f.resent < tt.loss[i]*0.7 || f.resent > tt.loss[i]*1.3+0.002 {
					t.Errorf("%s: %.2f %% lost; want %.2f", name, 100*f.resent, 100*tt.loss[i])
				}
			}
		})
	}
}

// TestPipe: what a pipe does to 100,000 packets of 1,000 bytes, one each 100 µs.
func TestPipe(t *testing.T) {
	const n, gap = 100_000, 100 * time.Microsecond
	zero := make([]byte, 1000+frameHeader)
	type share struct{ passes, twice, changed, late float64 }
	for name, tt := range map[string]struct {
		path  Path
		want  share
		delay [2]time.Duration // the least and the most
	}{
		"nothing":   {Path{}, share{passes: 1}, [2]time.Duration{0, 0}},
		"loss":      {Path{Loss: 0.02}, share{passes: 0.98}, [2]time.Duration{0, 0}},
		"duplicate": {Path{Duplicate: 0.02}, share{passes: 1, twice: 0.02}, [2]time.Duration{0, 0}},
		"corrupt":   {Path{Corrupt: 0.02}, share{passes: 1, changed: 0.02}, [2]time.Duration{0, 0}},
		"reorder":   {Path{Reorder: 0.02}, share{passes: 1, late: 0.02}, [2]time.Duration{0, overtaken}},
		"delay":     {Path{Delay: 5 * time.Millisecond}, share{passes: 1}, [2]time.Duration{5 * time.Millisecond, 5 * time.Millisecond}},
		"jitter":    {Path{Jitter: time.Millisecond}, share{passes: 1}, [2]time.Duration{0, time.Millisecond}},
		"small MTU": {Path{MTU: 900}, share{}, [2]time.Duration{}},
		"MTU":       {Path{MTU: 1000}, share{passes: 1}, [2]time.Duration{}},
		"outages":   {Path{Down: 50 * time.Millisecond, Every: 2 * time.Second}, share{passes: 0.975}, [2]time.Duration{}},
		"rate":      {Path{Rate: 40_560_000}, share{passes: 1}, [2]time.Duration{200 * time.Microsecond, n * gap}}, // half of what comes
	} {
		p, rng := pipe{Path: tt.path}, rand.New(rand.NewPCG(1, 2))
		var got share
		var last time.Duration
		least, most := time.Hour, time.Duration(0)
		for i := range n {
			at, frame := time.Duration(i)*gap, bytes.Clone(zero)
			out, twice, passes := p.pass(at, frame, rng)
			if !passes {
				continue
			}
			got.passes += 1. / n
			if twice {
				got.twice += 1. / n
			}
			if !bytes.Equal(frame, zero) {
				got.changed += 1. / n
			}
			if tt.path.Reorder > 0 && out > at {
				got.late += 1. / n
			} else if out < last {
				t.Fatalf("%s: packet %d overtakes", name, i)
			} else {
				last = out
			}
			least, most = min(least, out-at), max(most, out-at)
		}
		for _, s := range [][2]float64{{got.passes, tt.want.passes}, {got.twice, tt.want.twice}, {got.changed, tt.want.changed}, {got.late, tt.want.late}} {
			if tt.path.Rate == 0 && math.Abs(s[0]-s[1]) > 0.002 {
				t.Errorf("%s: %+v; want %+v", name, got, tt.want)
			}
		}
		if got.passes > 0 && (least < tt.delay[0] || most > tt.delay[1]) {
			t.Errorf("%s: delays of %v to %v; want %v to %v", name, least, most, tt.delay[0], tt.delay[1])
		}
		// What does not fit into the queue of 8 MiB is dropped, the rest leaves at the rate.
		if tt.path.Rate > 0 && (got.passes < 0.5 || got.passes > 0.6 || last > (n+20000)*gap) {
			t.Errorf("%s: %.3f passes, the last after %v", name, got.passes, last)
		}
	}
}
