//go:build cgo && linux

package verbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/coll/transport/slots"
	rdma "github.com/assay-hpc/assay/internal/verbs"
)

// conn is the part that both ends of a connection share.
type conn struct {
	*slots.Conn
	n      *network
	remote string // the peer's device and port, for errors

	port   *port
	cq     *rdma.CQ
	qps    []*rdma.QP
	psns   []uint32
	mr     *rdma.MR // of the slots
	stride int
	wc     [2 * slots.N]rdma.WC

	// The receiver writes the number of messages that it has released into the sender's
	// word: the credit. The receiver's own word is the source of that write.
	credit   *uint32
	creditMR *rdma.MR
	sends    *rdma.Sends

	late time.Time // when the goodbye stops waiting for pending requests
}

// failDevice handles a call or a request that failed. After a goodbye such failures are
// expected.
func (c *conn) failDevice(err error) {
	if c.Gone || c.Closed {
		c.Broken = true
		return
	}
	c.Fail(fmt.Sprintf("IB: from %v to %s: %v%s", c.port, c.remote, err, c.port.trouble()))
}

// poll passes completions to take, and breaks the connection if one has failed. It
// reports whether there may be more.
func (c *conn) poll(take func(*rdma.WC)) bool {
	n, err := c.cq.Poll(c.wc[:])
	if err != nil {
		c.failDevice(err)
		return false
	}
	for i := range c.wc[:n] {
		if !c.wc[i].OK() {
			c.failDevice(c.cq.Failed(&c.wc[i], c.port.Number))
			return false
		}
		take(&c.wc[i])
	}
	return n == len(c.wc)
}

// partPatience is how long a goodbye waits for pending requests: normally, they take
// microseconds.
const partPatience = 2 * time.Second

// settle says goodbye once no requests are pending, or after partPatience.
func (c *conn) settle(pending bool) bool {
	if c.late.IsZero() {
		c.late = time.Now().Add(partPatience)
	}
	if pending && !c.Broken && !c.Ended && time.Now().Before(c.late) {
		return false
	}
	c.Bye(c.Count)
	return c.Gone || c.Ended || c.Broken
}

// Free implements slots.End.
func (c *conn) Free() error {
	var errs []error
	for _, q := range c.qps {
		errs = append(errs, q.Close())
	}
	c.qps = nil
	for _, m := range []**rdma.MR{&c.creditMR, &c.mr} {
		if *m != nil {
			errs = append(errs, (*m).Close())
			*m = nil
		}
	}
	if c.sends != nil {
		errs = append(errs, c.sends.Close())
		c.sends = nil
	}
	if c.cq != nil {
		errs = append(errs, c.cq.Close())
		c.cq = nil
	}
	return errors.Join(errs...)
}
