//go:build cgo

package netplugin

/*
#include <stdlib.h>
#include "collnet.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/slots"
)

// Heads are one head's connection to a network that reduces. One goroutine at a time uses
// them.
type Heads struct {
	opt      HeadsOptions
	group    *CollGroup
	region   Region
	mem      []byte // the slots; from mmap, not the Go heap, in case the plugin never releases them
	stride   int
	ring     *C.struct_np_coll_ring
	header   [slots.N]transport.Header
	released uint32 // results that the caller has released
	next     Job    // the job that As has set, without its memory
	broken   bool
}

// connect calls Connect and Close. It fails when ctx is done, even if the call does not
// return; then the listener and its group are left to the plugin.
func (l *CollListener) connect(ctx context.Context, opt HeadsOptions) (*CollGroup, error) {
	var g *CollGroup
	err := onThread(ctx, 0, func() (err error) {
		if g, err = l.Connect(opt.Handles, opt.Rank); err != nil {
			return errors.Join(err, l.Close())
		}
		if err = l.Close(); err != nil {
			err = errors.Join(err, g.Close())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// onThread runs a step of a plugin, which may block, on its own thread. If the step has
// not returned patience after ctx is done, onThread abandons it.
func onThread(ctx context.Context, patience time.Duration, step func() error) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended <- step()
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		return fmt.Errorf("%w: %w", errLeft, context.Cause(ctx))
	}
}

// errLeft reports a plugin's call that has not returned.
var errLeft = errors.New("a call of the plugin does not return")

// OpenHeads creates the group of all heads; each head calls it. It closes the listener
// and, if it fails, the CollNet, unless the plugin still uses them.
func OpenHeads(ctx context.Context, opt HeadsOptions) (*Heads, error) {
	n := opt.Listener.n
	g, err := opt.Listener.connect(ctx, opt)
	if err != nil {
		if !errors.Is(err, errLeft) {
			err = errors.Join(err, n.Close())
		}
		return nil, err
	}
	h := &Heads{opt: opt, group: g, stride: (opt.MaxMessage + headAlign - 1) &^ (headAlign - 1)}
	if h.mem, err = unix.Mmap(-1, 0, 2*slots.N*h.stride, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err == nil {
		if h.region, err = g.Register(h.mem); err != nil {
			err = errors.Join(err, unix.Munmap(h.mem))
		}
	}
	if err != nil {
		return nil, errors.Join(err, g.Close(), n.Close())
	}
	r := (*C.struct_np_coll_ring)(C.calloc(1, C.sizeof_struct_np_coll_ring))
	r.c, r.comm, r.region, r.n = n.c, g.c, h.region.c, C.int(len(opt.Handles))
	h.ring = r
	return h, nil
}

// headAlign is the alignment of slots.
const headAlign = 64

// Tx returns the input of the network.
func (h *Heads) Tx() transport.Reducer { return (*headTx)(h) }

// Rx returns the output of the network.
func (h *Heads) Rx() transport.Rx { return (*headRx)(h) }

// from and to return the input and the result memory of job i.
func (h *Heads) from(i uint32) []byte { return h.slot(2 * int(i%slots.N)) }
func (h *Heads) to(i uint32) []byte   { return h.slot(2*int(i%slots.N) + 1) }

func (h *Heads) slot(k int) []byte {
	return h.mem[k*h.stride:][:h.opt.MaxMessage:h.opt.MaxMessage]
}

// push makes progress on pending jobs.
func (h *Heads) push() {
	if h.broken {
		return
	}
	if result := C.np_coll_push(h.ring); result != 0 {
		h.broken = true
		// If a head has died, the bootstrap reports which one; no plugin does.
		h.opt.Fault.SetLate(h.group.n.failed(C.GoString(h.ring.call), result))
	}
}

// How long Close waits for jobs that other heads have not begun, and for the plugin's
// calls.
const (
	jobPatience   = 200 * time.Millisecond
	closePatience = 5 * time.Second
)

// Close closes the group and the CollNet. Memory that the plugin still uses after a fault
// is not freed.
func (h *Heads) Close() error {
	if h.ring == nil {
		return nil
	}
	h.ring.wanted = h.ring.begun
	for late := time.Now().Add(jobPatience); !h.broken && h.ring.ended != h.ring.begun && time.Now().Before(late); time.Sleep(time.Millisecond) {
		h.push()
	}
	h.broken = true
	if n := h.ring.begun - h.ring.ended; n > 0 {
		h.opt.Logf("collnet plugin %s: %d collectives were under way, and their memory is not given back", h.group.n.Name(), n)
		h.ring = nil
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	deregistered := false
	err := onThread(ctx, 0, func() error {
		err := h.group.Deregister(h.region)
		deregistered = err == nil
		return errors.Join(err, h.group.Close(), h.group.n.Close())
	})
	if !errors.Is(err, errLeft) {
		C.free(unsafe.Pointer(h.ring))
		if deregistered { // otherwise the plugin may still write to it
			err = errors.Join(err, unix.Munmap(h.mem))
		}
	}
	h.ring = nil
	return err
}

type headTx Heads

var _ transport.Reducer = (*headTx)(nil)

// As implements transport.Reducer.
func (t *headTx) As(c op.Collective, typ elem.Type, red elem.Op) {
	t.next.Do, t.next.Type, t.next.Op = c, typ, red
}

// Reserve implements transport.Tx.
func (t *headTx) Reserve(n int) []byte {
	if t.broken || uint32(t.ring.wanted)-t.released == slots.N {
		return nil
	}
	return (*Heads)(t).from(uint32(t.ring.wanted))[:n]
}

// Commit implements transport.Tx.
func (t *headTx) Commit(n int, hd transport.Header) {
	h := (*Heads)(t)
	i := uint32(h.ring.wanted)
	j := h.next
	j.From, j.To = h.from(i)[:n], h.to(i)
	j.fill(&h.ring.jobs[i%slots.N])
	h.header[i%slots.N] = hd
	h.ring.wanted++
	h.push()
}

// Post implements transport.Tx: it copies.
func (t *headTx) Post(p []byte, hd transport.Header) bool {
	b := t.Reserve(len(p))
	if b == nil {
		return false
	}
	copy(b, p)
	t.Commit(len(p), hd)
	return true
}

// Idle implements transport.Tx. Peek pushes the jobs that wait to begin.
func (t *headTx) Idle() bool { return true }

// Direct is false: messages are copied into registered memory.
func (t *headTx) Direct() bool { return false }

// MaxMessage is the length of the longest message and result, in bytes.
func (t *headTx) MaxMessage() int { return t.opt.MaxMessage }

// Slots is the number of collectives that can be pending.
func (t *headTx) Slots() int { return slots.N }

type headRx Heads

var _ transport.Rx = (*headRx)(nil)

// Peek implements transport.Rx.
func (r *headRx) Peek() (p []byte, hd transport.Header, ok bool) {
	h := (*Heads)(r)
	i := h.released
	if i == uint32(h.ring.wanted) {
		return nil, hd, false
	}
	if i == uint32(h.ring.ended) {
		if h.push(); i == uint32(h.ring.ended) {
			return nil, hd, false
		}
	}
	j := &h.ring.jobs[i%slots.N]
	n := int(j.size)
	switch j.kind {
	case C.NP_ALLGATHER:
		n *= int(h.ring.n)
	case C.NP_REDUCESCATTER:
		n /= int(h.ring.n)
	}
	return h.to(i)[:n], h.header[i%slots.N], true
}

// Release implements transport.Rx.
func (r *headRx) Release() bool {
	r.released++
	return true
}

// Direct is false: results arrive in registered memory.
func (r *headRx) Direct() bool { return false }

// Post is not called, as Direct is false.
func (r *headRx) Post([]byte) { panic("netplugin: Post on a connection that is not direct") }

// Done is not called, as Direct is false.
func (r *headRx) Done() (transport.Header, int, bool) {
	panic("netplugin: Done on a connection that is not direct")
}

// MaxMessage is the length of the longest result, in bytes.
func (r *headRx) MaxMessage() int { return r.opt.MaxMessage }
