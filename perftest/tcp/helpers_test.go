package tcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

var token = []byte("a token for tests")

// short is enough where the rate does not matter: the time in which a busy
// machine lets both sides run.
var short = Options{Duration: 200 * time.Millisecond, Warmup: 20 * time.Millisecond, Streams: 2, Limit: 20 * time.Second}

func TestMain(m *testing.M) {
	if role := os.Getenv("TCP_TEST_ROLE"); role != "" {
		os.Exit(child(role, os.Getenv("TCP_TEST_ADDR"), os.Getenv("TCP_TEST_OPTIONS")))
	}
	code := m.Run()
	if left := leaked(); code == 0 && left != "" {
		fmt.Fprintln(os.Stderr, "left over:\n"+left)
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of this package's goroutines and the sockets that
// are open, once they had time to end.
func leaked() string {
	for wait := time.Millisecond; ; wait *= 2 {
		buf := make([]byte, 1<<22)
		var left []string
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "perftest/tcp.") && !strings.Contains(g, "tcp.leaked(") {
				left = append(left, g)
			}
		}
		list, _ := os.ReadDir("/proc/self/fd")
		for _, e := range list {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
				left = append(left, "file descriptor "+e.Name()+": "+to)
			}
		}
		if len(left) == 0 || wait > 10*time.Second {
			return strings.Join(left, "\n\n")
		}
		time.Sleep(wait)
	}
}

func serve(t testing.TB, b bounds) *Server {
	t.Helper()
	s, err := listen("127.0.0.1:0", token, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// measure measures, again if a machine that is busy with other things has let
// nothing happen.
func measure(t testing.TB, addr string, o Options) (r Result, err error) {
	t.Helper()
	for range 5 {
		if r, err = Measure(t.Context(), addr, token, o); err == nil || !strings.Contains(err.Error(), errNothing.Error()+" for") {
			break
		}
		t.Log(err)
	}
	return r, err
}

// child is a side of a measurement in a process of its own, which may be in
// another network namespace: a server until its stdin ends, or a caller.
func child(role, addr, options string) int {
	err := func() error {
		if role == "serve" {
			s, err := Listen(addr, token)
			if err != nil {
				return err
			}
			fmt.Println(s.Addr())
			io.Copy(io.Discard, os.Stdin)
			return s.Close()
		}
		var o Options
		if err := json.Unmarshal([]byte(options), &o); err != nil {
			return err
		}
		r, err := Measure(context.Background(), addr, token, o)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// in starts this program as a child in a network namespace.
func in(netns, role, addr, options string) *exec.Cmd {
	cmd := exec.Command("ip", "netns", "exec", netns, "/proc/self/exe")
	if exe, err := os.Executable(); err == nil {
		cmd.Args[len(cmd.Args)-1] = exe
	}
	cmd.Env = append(os.Environ(), "TCP_TEST_ROLE="+role, "TCP_TEST_ADDR="+addr, "TCP_TEST_OPTIONS="+options)
	cmd.Stderr = os.Stderr
	return cmd
}

// serveIn starts a server in a namespace and returns where it listens.
func serveIn(t *testing.T, netns, addr string) string {
	t.Helper()
	cmd := in(netns, "serve", addr, "")
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the server said %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}

// measureIn measures from a namespace.
func measureIn(t *testing.T, netns, addr string, o Options) (r Result) {
	t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	out, err := in(netns, "measure", addr, string(options)).Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		t.Fatalf("measuring from %s with %s: %v", netns, addr, err)
	}
	return r
}
