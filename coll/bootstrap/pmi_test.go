package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A pmiLauncher is the other side of PMI, of either version, for some ranks.
type pmiLauncher struct {
	ranks   int
	version string
	mu      sync.Mutex
	kvs     map[string]string
	waiting []chan struct{}
	final   int // ranks that said goodbye
}

// serve answers one rank.
func (l *pmiLauncher) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	read, say := readPMI1, func(kv ...string) { io.WriteString(c, encodePMI1(kv)) }
	for {
		q, err := read(r)
		if err != nil {
			return
		}
		switch q["cmd"] {
		case "init":
			say("cmd", "response_to_init", "pmi_version", l.version, "pmi_subversion", "0", "rc", "0")
			if l.version == "2" {
				read, say = readPMI2, func(kv ...string) { io.WriteString(c, encodePMI2(kv)) }
			}
		case "get_my_kvsname":
			say("cmd", "my_kvsname", "kvsname", "space")
		case "fullinit":
			say("cmd", "fullinit-response", "rc", "0")
		case "job-getid":
			say("cmd", "job-getid-response", "rc", "0", "jobid", "job;1")
		case "put":
			l.put(q["key"], q["value"])
			say("cmd", "put_result", "rc", "0", "msg", "success")
		case "kvs-put":
			l.put(q["key"], q["value"])
			say("cmd", "kvs-put-response", "rc", "0")
		case "barrier_in":
			l.barrier()
			say("cmd", "barrier_out")
		case "kvs-fence":
			l.barrier()
			say("cmd", "kvs-fence-response", "rc", "0")
		case "get":
			if v, ok := l.get(q["key"]); ok && q["kvsname"] == "space" {
				say("cmd", "get_result", "rc", "0", "msg", "success", "value", v)
			} else {
				say("cmd", "get_result", "rc", "-1", "msg", "key not found")
			}
		case "kvs-get":
			if v, ok := l.get(q["key"]); ok && q["jobid"] == "job;1" {
				say("cmd", "kvs-get-response", "rc", "0", "flag", "TRUE", "value", v)
			} else {
				say("cmd", "kvs-get-response", "rc", "0", "flag", "FALSE")
			}
		case "finalize":
			l.mu.Lock()
			l.final++
			l.mu.Unlock()
			say("cmd", map[string]string{"1": "finalize_ack", "2": "finalize-response"}[l.version], "rc", "0")
			return
		default:
			say("cmd", "what", "rc", "-1")
		}
	}
}

func (l *pmiLauncher) put(k, v string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kvs[k] = v
}

func (l *pmiLauncher) get(k string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.kvs[k]
	return v, ok
}

func (l *pmiLauncher) barrier() {
	c := make(chan struct{})
	l.mu.Lock()
	l.waiting = append(l.waiting, c)
	if len(l.waiting) == l.ranks {
		for _, w := range l.waiting {
			close(w)
		}
		l.waiting = nil
	}
	l.mu.Unlock()
	<-c
}

// TestPMI: ranks share an ID through a launcher, over descriptors as launchers
// pass them.
func TestPMI(t *testing.T) {
	for _, version := range []string{"1", "2"} {
		t.Run(version, func(t *testing.T) {
			const ranks = 3
			l := &pmiLauncher{ranks: ranks, version: version, kvs: map[string]string{}}
			var served sync.WaitGroup
			var worlds []World
			for r := range ranks {
				pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
				if err != nil {
					t.Fatal(err)
				}
				f := os.NewFile(uintptr(pair[0]), "launcher")
				c, err := net.FileConn(f)
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
				defer syscall.Close(pair[1])
				served.Go(func() { l.serve(c) })
				w, err := Detect(env(fmt.Sprintf("PMI_RANK=%d", r), fmt.Sprintf("PMI_SIZE=%d", ranks), fmt.Sprintf("PMI_FD=%d", pair[1])))
				if err != nil {
					t.Fatal(err)
				}
				worlds = append(worlds, w)
			}
			for range 2 {
				if err := errors.Join(shareAll(t, worlds, local())...); err != nil {
					t.Error(err)
				}
			}
			for _, w := range worlds {
				if err := errors.Join(w.Close(), w.Close()); err != nil {
					t.Error(err)
				}
			}
			served.Wait()
			if l.final != ranks || len(l.kvs) != 2 {
				t.Errorf("%d ranks said goodbye, %d keys; want %d and 2", l.final, len(l.kvs), ranks)
			}
		})
	}
}

func TestPMIErrors(t *testing.T) {
	for _, version := range []string{"1", "2"} {
		ours, theirs := net.Pipe()
		l := &pmiLauncher{ranks: 1, version: version, kvs: map[string]string{}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.serve(theirs)
		}()
		ctx := context.Background()
		p, err := newPMI(ctx, ours, 1)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := p.get(ctx, "absent"); err == nil {
			t.Errorf("version %s: get of what nobody has put = %q", version, v)
		}
		if err := p.put(ctx, "k", strings.Repeat("x", pmiMaxValue+1)); err == nil {
			t.Errorf("version %s: put of too much went well", version)
		}
		l.mu.Lock()
		l.ranks = 2 // the second never comes
		l.mu.Unlock()
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		if err := p.fence(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("version %s: fence = %v; want a timeout", version, err)
		}
		cancel()
		ours.Close()
		l.mu.Lock()
		for _, w := range l.waiting {
			close(w)
		}
		l.mu.Unlock()
		<-done
	}
	if _, err := openPMI(context.Background(), pmiSpec{fd: 987654, version: 1}); err == nil || !strings.Contains(err.Error(), "PMI_FD=987654") {
		t.Errorf("openPMI of no descriptor = %v", err)
	}
}

func TestPMIWire(t *testing.T) {
	if got, want := encodePMI1([]string{"cmd", "put", "key", "k"}), "cmd=put key=k\n"; got != want {
		t.Errorf("encodePMI1 = %q; want %q", got, want)
	}
	if got, want := encodePMI2([]string{"cmd", "kvs-put", "empty", "", "value", "a;b"}), "    23cmd=kvs-put;value=a;;b;"; got != want {
		t.Errorf("encodePMI2 = %q; want %q", got, want)
	}
	got, err := readPMI1(bufio.NewReader(strings.NewReader("cmd=get_result rc=-1 msg=key not found\n")))
	if want := map[string]string{"cmd": "get_result", "rc": "-1", "msg": "key not found"}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("readPMI1 = %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "    xxcmd=a;", "     4cmd", "     3cmd", "999999cmd", "     5;cmd="} {
		if got, err := readPMI2(bufio.NewReader(strings.NewReader(bad))); err == nil {
			t.Errorf("readPMI2(%q) = %v", bad, got)
		}
	}
}

func FuzzPMI2(f *testing.F) {
	f.Add("cmd=kvs-get-response;rc=0;flag=TRUE;value=a;;b;")
	f.Add("a=;b=;;;")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := parsePMI2(s)
		if err != nil {
			return
		}
		var kv []string
		for k, v := range m {
			if v != "" { // left out when empty
				kv = append(kv, k, v)
			} else {
				delete(m, k)
			}
		}
		wire := encodePMI2(kv)
		if len(wire) > 999999 {
			return // the length has six digits
		}
		again, err := parsePMI2(wire[6:])
		if err != nil || !cmp.Equal(again, m) {
			t.Errorf("%q is %v; encoded and parsed again %v, %v", s, m, again, err)
		}
	})
}

func FuzzPMI1(f *testing.F) {
	f.Add("cmd=get_result rc=-1 msg=key not found\n")
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := readPMI1(bufio.NewReader(strings.NewReader(s))); err == nil && m == nil {
			t.Errorf("%q is nothing", s)
		}
	})
}
