//go:build cgo && linux

package probe

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/verbs"
	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// These, too, run in the virtual machine of make test ONLY=rdma.

// sides are the two configurations of a test.
func sides(t testing.TB, c Config) (client, server Config) {
	t.Helper()
	ch, sh := hosts(t)
	c.GIDIndex, c.Port, c.Timeout, c.Wait = 1, port(t), 20*time.Second, 20*time.Second
	client, server = c, c
	client.Host, client.Device = sh.address, ch.device
	server.Device = sh.device
	if c.CM {
		client.Source = ch.address
	}
	return client, server
}

// running starts our side. The channel gives its error, once.
func running(ctx context.Context, c Config, ev Events) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := Run(ctx, c, ev)
		done <- err
	}()
	return done
}

func long(op Operation, m Measure) Config {
	c := Default(op, m)
	c.Duration, c.Size = 60*time.Second, 4096
	return c
}

// ends waits for our side.
func ends(t *testing.T, done chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(5 * time.Minute):
		t.Fatal("our side still runs, minutes after the other one was killed")
		return nil
	}
}

// TestKilled kills the other side in the middle: perftest's by a signal, ours by
// its context. What is left ends soon, and says that the peer is gone.
func TestKilled(t *testing.T) {
	hosts(t)
	for _, c := range []Config{long(Write, Bandwidth), long(Send, Bandwidth), long(Write, Latency), long(Send, Latency), long(Read, Latency), byCM(long(Write, Bandwidth))} {
		for _, role := range []string{"client", "server"} {
			for _, other := range []string{"perftest's", "ours"} {
				name := c.Tool()
				if c.CM {
					name += " -R"
				}
				t.Run(name+"/our_"+role+"/"+other, func(t *testing.T) {
					cc, sc := sides(t, c)
					mine, theirs := cc, sc
					if role == "server" {
						mine, theirs = sc, cc
					}
					ctx, kill := context.WithCancel(context.Background())
					defer kill()
					started := make(chan bool, 1)
					waiting := make(chan bool, 1)
					ev := Events{Header: func(Info) { started <- true }, Waiting: func(string) { waiting <- true }}
					var done, gone chan error
					if role == "server" {
						done = running(t.Context(), mine, ev)
						<-waiting
					}
					if other == "ours" {
						gone = running(ctx, theirs, Events{})
					} else {
						args := toolFlags(&theirs)
						if theirs.Host != "" {
							args = append(args, theirs.Host)
						}
						wait := releases(t)[0].start(t, ctx, args...)
						gone = make(chan error, 1)
						go func() { _, err := wait(); gone <- err }()
					}
					if role == "client" {
						done = running(t.Context(), mine, ev)
					}
					select {
					case <-started:
					case err := <-done:
						t.Fatalf("our side: %v", err)
					case <-time.After(5 * time.Minute):
						t.Fatal("the test does not start")
					}
					time.Sleep(time.Second)
					kill()
					if err := <-gone; err == nil {
						t.Error("the other side was not killed")
					}
					err := ends(t, done)
					var completion *verbs.CompletionError
					if !errors.Is(err, wire.ErrClosed) && !errors.As(err, &completion) {
						t.Errorf("our side: %v", err)
					}
					t.Log(err)
				})
			}
		}
	}
}

// TestCancelled: our own side ends at once when it is told to, before it has a
// peer, too.
func TestCancelled(t *testing.T) {
	_, sc := sides(t, long(Write, Bandwidth))
	ctx, cancel := context.WithCancel(context.Background())
	waiting := make(chan bool, 1)
	done := running(ctx, sc, Events{Waiting: func(string) { waiting <- true }})
	<-waiting
	cancel()
	if err := ends(t, done); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestLinkFlaps takes the link down and up again during a test: it goes on, or
// fails, but it says what happened.
func TestLinkFlaps(t *testing.T) {
	c := long(Write, Bandwidth)
	c.Duration = 8 * time.Second
	cc, sc := sides(t, c)
	var mu sync.Mutex
	var notes []string
	started := make(chan bool, 1)
	done := running(t.Context(), sc, Events{})
	client := running(t.Context(), cc, Events{
		Header: func(Info) { started <- true },
		Note:   func(s string) { mu.Lock(); notes = append(notes, s); mu.Unlock() },
	})
	<-started
	time.Sleep(2 * time.Second)
	for _, state := range []string{"down", "up"} {
		if out, err := exec.Command("ip", "link", "set", "v0", state).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		time.Sleep(500 * time.Millisecond)
	}
	err := ends(t, client)
	t.Log("client:", err, "; server:", ends(t, done))
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(notes, "\n")
	for _, want := range []string{"port error on port 1", "port active on port 1"} {
		if !strings.Contains(all, want) {
			t.Errorf("the notes lack %q:\n%s", want, all)
		}
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// TestDifferentOptions: ours and perftest's of the same protocol version compare the options that both
// need. Both sides of the harness refuse the same difference, and none has a result.
func TestDifferentOptions(t *testing.T) {
	hosts(t)
	set := func(change func(*Config)) Config {
		c := Default(Write, Bandwidth)
		c.Size, c.Iterations = 4096, 20
		change(&c)
		return c
	}
	same := set(func(*Config) {})
	for _, test := range []struct {
		name string
		c    Config
		want string
	}{
		{"n", set(func(c *Config) { c.Iterations = 40 }), "the number of iterations (-n) is"},
		{"s", set(func(c *Config) { c.Size = 8192 }), "the message size (-s) is"},
		{"q", set(func(c *Config) { c.QPs = 2 }), "the number of QPs (-q) is"},
		{"D", set(func(c *Config) { c.Iterations, c.Duration = 0, 2*time.Second }), "iterations or duration (-D) is"},
		{"gbits", set(func(c *Config) { c.Gbits = true }), "--report_gbits) is"},
		{"a", set(func(c *Config) { c.All = true }), "the sizes (-a, --run_infinitely) is"},
		{"read", set(func(c *Config) { c.Operation = Read }), "the verb (another test was started) is"},
		{"imm", set(func(c *Config) { c.Immediate = true }), "the verb (another test was started) is"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cc, _ := sides(t, test.c)
			_, sc := sides(t, same)
			sc.Port = cc.Port
			server := running(t.Context(), sc, Events{})
			for who, err := range map[string]error{"client": ends(t, running(t.Context(), cc, Events{})), "server": ends(t, server)} {
				if !errors.Is(err, wire.ErrMismatch) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("our %s: %v; want %q", who, err, test.want)
				}
			}
		})
	}
}

// TestDifferentTests are sides that were started with different options.
func TestDifferentTests(t *testing.T) {
	hosts(t)
	set := func(op Operation, size uint64) Config {
		c := Default(op, Bandwidth)
		c.Size, c.Iterations = size, 20
		return c
	}
	for _, test := range []struct {
		name           string
		client, server Config
		want           string
	}{
		{"the server's buffer is smaller", set(Write, 1<<20), set(Write, 4096), "the same size"},
		{"the server receives less", set(Send, 8192), set(Send, 4096), "the same size"},
		{"read from a server of writes", set(Read, 4096), set(Write, 4096), "the same test"},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "_"), func(t *testing.T) {
			cc, _ := sides(t, test.client)
			_, sc := sides(t, test.server)
			sc.Port = cc.Port
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wait := releases(t)[0].start(t, ctx, toolFlags(&sc)...)
			err := ends(t, running(t.Context(), cc, Events{}))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q in it", err, test.want)
			}
			t.Log(err)
			cancel()
			wait()
		})
	}
}
