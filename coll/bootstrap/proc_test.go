package bootstrap

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A victim is a rank in a process of its own.
type victim struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string // closed at its end
}

func startVictim(t *testing.T, id ID, rank, size int, silence time.Duration, prefix ...string) *victim {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append(prefix, self)
	v := &victim{cmd: exec.Command(args[0], args[1:]...), lines: make(chan string, 1000)}
	v.cmd.Env = append(os.Environ(), "BOOTSTRAP_TEST_ROLE=victim", fmt.Sprintf("BOOTSTRAP_TEST_ID=%x", id[:]),
		fmt.Sprintf("BOOTSTRAP_TEST_RANK=%d", rank), fmt.Sprintf("BOOTSTRAP_TEST_SIZE=%d", size), fmt.Sprintf("BOOTSTRAP_TEST_SILENCE=%v", silence))
	v.cmd.Stderr = t.Output()
	if v.stdin, err = v.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		v.cmd.Process.Kill()
		v.cmd.Wait()
	})
	go func() {
		defer close(v.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			v.lines <- s.Text()
		}
	}()
	return v
}

// expect waits for a line that begins with want.
func (v *victim) expect(t *testing.T, rank int, want string) string {
	t.Helper()
	timeout := time.After(5 * time.Minute)
	for {
		select {
		case line, ok := <-v.lines:
			if !ok {
				t.Fatalf("rank %d ended; want %q", rank, want)
			}
			if strings.HasPrefix(line, want) {
				return line
			}
			t.Errorf("rank %d says %q; want %q", rank, line, want)
		case <-timeout:
			t.Fatalf("rank %d does not say %q", rank, want)
		}
	}
}

func startVictims(t *testing.T, size int, silence time.Duration) []*victim {
	t.Helper()
	root := newTestRoot(t, local())
	begun := time.Now()
	var out []*victim
	for r := range size {
		out = append(out, startVictim(t, root.ID(), r, size, silence))
	}
	for r, v := range out {
		v.expect(t, r, "up")
	}
	t.Logf("%d processes are up after %v", size, time.Since(begun))
	return out
}

// TestKill: kill -9 of a process is told to all others, at once, and nobody
// else counts as dead when those then abort.
func TestKill(t *testing.T) {
	t.Parallel()
	size := 64
	if testing.Short() {
		size = 8
	}
	list := startVictims(t, size, time.Hour)
	dead := 5
	list[dead].cmd.Process.Kill()
	for r, v := range list {
		if r != dead {
			v.expect(t, r, "dead 5 ")
		}
	}
	endVictims(t, list, dead)
}

// TestStop: a process that stands still for longer than its host may be silent, its connections
// open, is not dead, and continues.
func TestStop(t *testing.T) {
	t.Parallel()
	list := startVictims(t, 6, 500*time.Millisecond)
	list[3].cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(3 * time.Second)
	list[3].cmd.Process.Signal(syscall.SIGCONT)
	endVictims(t, list, -1)
}

// endVictims lets all but one end, and checks that they say no more.
func endVictims(t *testing.T, list []*victim, dead int) {
	t.Helper()
	for _, v := range list {
		v.stdin.Close()
	}
	for r, v := range list {
		if r == dead {
			continue
		}
		for line := range v.lines {
			t.Errorf("rank %d also says %q", r, line)
		}
		if err := v.cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestRandomKills: whatever moment a rank dies at, while the others come up or
// later, each of them hears of it or fails.
func TestRandomKills(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 2
	}
	t.Setenv("BOOTSTRAP_TEST_TIMEOUT", "1s")
	const size = 6
	rng := rand.New(rand.NewPCG(7, 7))
	up := 0
	for range rounds {
		o := local()
		o.Timeout = time.Second
		root := newTestRoot(t, o)
		var list []*victim
		for r := range size {
			list = append(list, startVictim(t, root.ID(), r, size, time.Hour))
		}
		dead := rng.IntN(size)
		time.Sleep(time.Duration(15+rng.IntN(60)) * time.Millisecond)
		list[dead].cmd.Process.Kill()
		for r, v := range list {
			if r != dead && v.fate(t, r, dead) {
				up++
			}
			v.stdin.Close()
		}
		root.Close()
	}
	t.Logf("%d of %d were up before", up, rounds*(size-1))
}

// fate waits until a rank has heard of the death of another, or has failed. It
// reports whether it was up before.
func (v *victim) fate(t *testing.T, rank, dead int) (up bool) {
	t.Helper()
	timeout := time.After(5 * time.Minute)
	for {
		select {
		case line, ok := <-v.lines:
			switch {
			case line == "up":
				up = true
			case ok && strings.HasPrefix(line, fmt.Sprintf("dead %d ", dead)), !ok && !up:
				return up
			case !ok:
				t.Fatalf("rank %d ended in silence", rank)
			}
		case <-timeout:
			t.Fatalf("rank %d has not heard that %d is dead", rank, dead)
		}
	}
}
