package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// record is what a caller said in a handshake that went well, and a listener.
type tape struct {
	net.Conn
	said []byte
}

func (t *tape) Write(p []byte) (int, error) {
	t.said = append(t.said, p...)
	return t.Conn.Write(p)
}

// handshake runs both sides over a pipe, and returns what the caller said.
func handshake(callerSecret, listenerSecret []byte, h hello) (said []byte, got hello, callerErr, listenerErr error) {
	a, b := net.Pipe()
	caller := &tape{Conn: a}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer b.Close()
		var transcript []byte
		if got, transcript, listenerErr = examine(b, listenerSecret); listenerErr == nil {
			_ = transcript
			b.Write([]byte{welcome})
		}
	}()
	_, callerErr = greet(caller, callerSecret, h)
	a.Close()
	<-done
	return caller.said, got, callerErr, listenerErr
}

func TestHandshake(t *testing.T) {
	h := hello{purpose: toPeer, from: 3, to: 1, size: 4}
	said, got, err1, err2 := handshake([]byte("s"), []byte("s"), h)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if got.purpose != h.purpose || got.from != h.from || got.to != h.to || got.size != h.size {
		t.Errorf("listener has %+v; want %+v", got, h)
	}
	if len(said) != helloBytes+macBytes {
		t.Errorf("the caller said %d bytes", len(said))
	}
	said, _, err1, err2 = handshake([]byte("s"), []byte("t"), h)
	if !errors.Is(err1, ErrRefused) || err2 == nil {
		t.Errorf("with two secrets: %v, %v", err1, err2)
	}
	if len(said) != helloBytes {
		t.Error("the caller answered a listener that does not know the secret")
	}
}

// TestHandshakeSaysNoSecret: it never crosses the wire, nor does the ID print it.
func TestHandshakeSaysNoSecret(t *testing.T) {
	secret := randomSecret()
	said, _, _, _ := handshake(secret[:], secret[:], hello{purpose: toRoot})
	if bytes.Contains(said, secret[:8]) {
		t.Error("part of the secret is on the wire")
	}
	root := newTestRoot(t, local())
	id := root.ID()
	for _, s := range []string{id.String(), fmt.Sprint(id), fmt.Sprintf("%v %+v %#v %s", id, id, id, id)} {
		if strings.Contains(s, fmt.Sprintf("%x", id.secret()[:4])) || strings.Contains(s, fmt.Sprintf("%v", id.secret()[:4])) || !strings.Contains(s, "127.0.0.1:") {
			t.Errorf("the ID prints as %s", s)
		}
	}
}

// TestReflection: a listener that knows nothing cannot use the caller, or
// another listener, to find the answers.
func TestReflection(t *testing.T) {
	secret := []byte("secret")
	a, b := net.Pipe()
	go func() {
		said := make([]byte, helloBytes)
		io.ReadFull(b, said)
		b.Write(append(said, said[:nonceBytes+macBytes-helloBytes]...))
	}()
	if _, err := greet(a, secret, hello{purpose: toPeer}); !errors.Is(err, ErrRefused) {
		t.Errorf("the caller took its own words for an answer: %v", err)
	}
	a.Close()
	b.Close()
}

// vandal throws one malformed, mutated, replayed or cut handshake at addr.
func vandal(rng *rand.Rand, addr string, replay []byte) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	msg := bytes.Clone(replay)
	switch rng.IntN(6) {
	case 0: // noise
		msg = make([]byte, rng.IntN(300))
		for i := range msg {
			msg[i] = byte(rng.Uint32())
		}
	case 1: // cut
		msg = msg[:rng.IntN(len(msg))]
	case 2: // mutated
		msg[rng.IntN(len(msg))] ^= 1 << rng.IntN(8)
	case 3: // replayed as it was
	case 4: // a valid hello, then noise for an answer
		copy(msg[helloBytes:], make([]byte, macBytes))
	case 5: // the listener's own proof reflected
		c.Write(msg[:helloBytes])
		var reply [nonceBytes + macBytes]byte
		if _, err := io.ReadFull(c, reply[:]); err != nil {
			return
		}
		msg = reply[nonceBytes:]
	}
	c.Write(msg)
	if rng.IntN(4) == 0 {
		return // hang up at once
	}
	c.(*net.TCPConn).CloseWrite()
	reply, _ := io.ReadAll(c)
	if len(reply) > nonceBytes+macBytes {
		panic("a stranger was let in")
	}
}

// TestStrangers: 10,000 handshakes of strangers, at a root and at a rank's
// listener, do not keep a communicator from coming up, and none gets in.
func TestStrangers(t *testing.T) {
	total := 10000
	if testing.Short() {
		total = 1500
	}
	var lines atomic.Int64
	o := local()
	o.Logf = func(format string, a ...any) { lines.Add(1) }
	root := newTestRoot(t, o)
	id := root.ID()
	addrs, _ := id.addrs()
	// Real ranks of which the first waits with its listener open.
	const ranks = 12
	nets, errs := make([]*Net, ranks), make([]error, ranks)
	var wg sync.WaitGroup
	join := func(r int) { wg.Go(func() { nets[r], errs[r] = Join(context.Background(), id, r, ranks, o) }) }
	join(0)
	first := firstListener(t, root)

	toTheRoot, _, _, _ := handshake(id.secret(), id.secret(), hello{purpose: toRoot, from: 5, to: nobodyRank, size: ranks})
	toTheRank, _, _, _ := handshake(id.secret(), id.secret(), hello{purpose: toPeer, from: 1, to: 0, size: ranks})
	var vandals sync.WaitGroup
	var thrown atomic.Int64
	for w := range 32 {
		vandals.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for i := int(thrown.Add(1)); i <= total; i = int(thrown.Add(1)) {
				switch i {
				case total / 2:
					for r := 1; r < ranks-1; r++ {
						join(r)
					}
				case total - 100:
					join(ranks - 1)
				}
				if i%2 == 0 {
					vandal(rng, addrs[0].String(), toTheRoot)
				} else {
					vandal(rng, first, toTheRank)
				}
			}
		})
	}
	vandals.Wait()
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	each(nets, func(n *Net) {
		got, err := n.AllGather(context.Background(), []byte{byte(n.Rank())})
		if err != nil {
			t.Error(err)
			return
		}
		for r := range got {
			if len(got[r]) != 1 || got[r][0] != byte(r) {
				t.Errorf("rank %d has %v of %d", n.Rank(), got[r], r)
			}
		}
	})
	closeAll(t, nets)
	root.Close()
	if root.gate.entered != ranks {
		t.Errorf("%d connections were let in at the root; want %d", root.gate.entered, ranks)
	}
	if root.gate.dropped == 0 || lines.Load() > 200 {
		t.Errorf("%d strangers were dropped at the root, %d lines logged", root.gate.dropped, lines.Load())
	}
	t.Logf("%d strangers dropped at the root, %d lines logged", root.gate.dropped, lines.Load())
}

// firstListener waits until rank 0 has told the root where it listens.
func firstListener(t *testing.T, r *Root) string {
	t.Helper()
	for range 10000 {
		if a := arrived(r); len(a) > 0 {
			return a[0].String()
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("rank 0 did not come")
	return ""
}

// TestSquatters: connections that say nothing, more than may be in the
// handshake at once, do not keep a rank out.
func TestSquatters(t *testing.T) {
	root := newTestRoot(t, local())
	addrs, _ := root.ID().addrs()
	for range 2*maxUnknown + 10 {
		c, err := net.Dial("tcp", addrs[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	n, err := Join(context.Background(), root.ID(), 0, 1, local())
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
}

func FuzzExamine(f *testing.F) {
	secret := []byte("secret")
	said, _, _, _ := handshake(secret, secret, hello{purpose: toRoot, from: 1, to: nobodyRank, size: 2})
	f.Add(said)
	f.Add(said[:helloBytes])
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		h, _, err := examine(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), &out}, secret)
		if err == nil {
			t.Errorf("%x was let in as %+v", b, h)
		}
		if out.Len() > nonceBytes+macBytes {
			t.Errorf("the listener said %d bytes", out.Len())
		}
	})
}

func FuzzHello(f *testing.F) {
	h := hello{purpose: toPeer, from: 3, to: 2, size: 9}
	f.Add(h.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err == nil && !bytes.Equal(h.encode(), b) {
			t.Errorf("%x is taken for %x", b, h.encode())
		}
	})
}
