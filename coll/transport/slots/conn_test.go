package slots

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"weak"

	"github.com/assay-hpc/assay/coll/transport"
)

// A still is a network that connects, and moves nothing.
type still struct {
	fails error // of Free, the first time
	made  func(mem []byte)
}

func (n *still) Name() string          { return "still" }
func (n *still) String() string        { return "still" }
func (n *still) Devices() int          { return 1 }
func (n *still) Tx(c *Conn) Sender     { return &stillEnd{c: c, n: n} }
func (n *still) Rx(c *Conn) Receiver   { return &stillEnd{c: c, n: n} }
func (n *still) Close() error          { return nil }
func (e *stillEnd) Room() bool         { return false }
func (e *stillEnd) Send(uint32, int)   {}
func (e *stillEnd) Idle() bool         { return true }
func (e *stillEnd) Lazy() bool         { return false }
func (e *stillEnd) Arrived() bool      { return false }
func (e *stillEnd) Release()           {}
func (e *stillEnd) Settle() bool       { e.c.Bye(0); return e.c.Gone || e.c.Ended }
func (e *stillEnd) make() (mem []byte) { mem, _, _ = e.c.MakeSlots(); e.n.made(mem); return mem }

type stillEnd struct {
	c     *Conn
	n     *still
	freed bool
}

func (e *stillEnd) Free() error {
	if e.freed {
		return nil
	}
	e.freed = true
	return e.n.fails
}

func (e *stillEnd) begin() {
	e.c.Lock()
	e.c.Made()
	e.c.Unlock()
	e.c.Watch()
}

func (e *stillEnd) Connect(ctx context.Context) error {
	e.make()
	if _, err := e.c.Ask(ctx, nil); err != nil {
		return err
	}
	e.begin()
	return nil
}

func (e *stillEnd) Accept(context.Context, []byte) error {
	e.make()
	e.begin()
	return e.c.Answer(nil)
}

// connectAndClose makes a connection between two ranks, closes it, and returns
// the memory of both ends. With refused, it cannot be made.
func connectAndClose(t *testing.T, fails error, refused bool) (mem []weak.Pointer[byte]) {
	made := make(chan weak.Pointer[byte], 2)
	var ranks []*Endpoint
	for r := range 2 {
		n := &still{fails: fails, made: func(mem []byte) { made <- weak.Make(&mem[0]) }}
		e, err := Open(n, Options{Rank: r, Key: []byte("the key of the tests"), Comm: []byte("test"), Fault: new(transport.Fault), MaxMessage: 1 << 20, Logf: t.Logf})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ranks = append(ranks, e)
	}
	if refused {
		if err := ranks[1].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ranks[0].Tx(t.Context(), 1, ranks[1].Info(), 0); (err != nil) != refused {
		t.Fatal(err)
	}
	for i := range 2 {
		if i == 0 || !refused {
			mem = append(mem, <-made)
		}
	}
	for _, e := range ranks {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// Memory that a device may still write to, because taking the connection down
// has failed, is not used for anything else.
func TestKeepsWhatWasNotFreed(t *testing.T) {
	for _, fails := range []error{nil, errors.New("device or resource busy")} {
		for _, refused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v,refused=%v", fails, refused), func(t *testing.T) {
				mem := connectAndClose(t, fails, refused)
				for range 3 {
					runtime.GC()
				}
				for i, m := range mem {
					if kept := m.Value() != nil; kept != (fails != nil) {
						t.Errorf("memory of end %d is kept: %v, after Free = %v", i, kept, fails)
					}
				}
			})
		}
	}
}
