//go:build cgo && linux

package verbs

// #include "library.h"
import "C"

import (
	"syscall"
	"time"
	"unsafe"
)

// A CQ is a completion queue. Only one goroutine at a time may poll it.
type CQ struct {
	ctx     *Context
	c       *C.struct_vb_cq
	channel *C.struct_vb_comp_channel // nil without events
}

// CQ creates a completion queue of at least n entries. With events it has its own channel, with
// interrupts on a vector below the number of them that the device has.
func (c *Context) CQ(n int, events bool, vector int) (*CQ, error) {
	q := &CQ{ctx: c}
	if events {
		ch, err := C.verbs_create_channel(c.c)
		if ch == nil {
			return nil, newError("ibv_create_comp_channel", c.name, err)
		}
		q.channel = ch
	}
	cq, err := C.verbs_create_cq(c.c, C.int(n), q.channel, C.int(vector))
	if cq == nil {
		if q.channel != nil {
			C.verbs_destroy_channel(q.channel)
		}
		return nil, newError("ibv_create_cq", c.name, err)
	}
	q.c = cq
	return q, nil
}

// Close frees the queue. Its QPs must be closed already.
func (q *CQ) Close() error {
	err := q.ctx.failed("ibv_destroy_cq", C.verbs_destroy_cq(q.c))
	if q.channel != nil && err == nil {
		err = q.ctx.failed("ibv_destroy_comp_channel", C.verbs_destroy_channel(q.channel))
	}
	return err
}

// Poll moves completions into wc and returns their number. It does not wait.
func (q *CQ) Poll(wc []WC) (int, error) {
	if len(wc) == 0 {
		return 0, nil
	}
	n := C.verbs_poll(q.c, C.int(len(wc)), (*C.struct_vb_wc)(unsafe.Pointer(unsafe.SliceData(wc))))
	if n < 0 {
		return 0, newError("ibv_poll_cq", q.ctx.name, syscall.EIO)
	}
	return int(n), nil
}

// Notify requests an event for the next completion. Poll afterwards, since a completion that
// arrived earlier causes no event.
func (q *CQ) Notify() error {
	return q.ctx.failed("ibv_req_notify_cq", C.verbs_notify(q.c, 0))
}

// Wait waits for an event, at most for d, and reports whether there was one.
func (q *CQ) Wait(d time.Duration) (bool, error) {
	n := C.verbs_wait(q.c, C.int(d.Milliseconds()))
	if n < 0 {
		return false, newError("ibv_get_cq_event", q.ctx.name, syscall.Errno(-n))
	}
	return n == 1, nil
}

// Handle is the queue for C code in this module: a struct vb_cq *.
func (q *CQ) Handle() unsafe.Pointer { return unsafe.Pointer(q.c) }

// Failed returns the error of a failed completion, nil for success.
func (q *CQ) Failed(w *WC, port int) error {
	if w.OK() {
		return nil
	}
	return &CompletionError{Status: w.Status, VendorError: w.VendorError, QPN: w.QPN, ID: w.ID, Device: q.ctx.name, Port: port}
}

// OK reports whether the request succeeded.
func (w *WC) OK() bool { return w.Status == success }

// Flushed reports whether the request was not tried, because an earlier one had failed.
func (w *WC) Flushed() bool { return w.Status == flushed }
