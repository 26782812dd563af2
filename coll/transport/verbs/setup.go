//go:build cgo && linux

package verbs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
	rdma "github.com/assay-hpc/assay/perftest/verbs"
)

// Tx dials the peer's point, and both make their queue pairs.
func (e *Endpoint) Tx(ctx context.Context, peer int, data []byte, channel int) (transport.Tx, error) {
	i, err := e.infoOf(peer, data)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, net.ErrClosed
	}
	e.dials.Add(1)
	e.mu.Unlock()
	defer e.dials.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()

	t := &Tx{conn: newConn(e, peer, channel, i.maxMessage)}
	if err := e.dial(ctx, t, i.point); err != nil {
		t.end()
		return nil, fmt.Errorf("IB: rank %d to rank %d, channel %d: %w", e.opt.Rank, peer, channel, err)
	}
	e.wg.Go(func() { t.watch(t.hear, t.part) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tx = append(e.tx, t) // also while Close waits for this call
	return t, nil
}

// dial makes the connection of a Tx.
func (e *Endpoint) dial(ctx context.Context, t *Tx, point string) (err error) {
	device := (e.opt.First + t.channel) % len(e.opt.Net.ports)
	if err := t.prepare(e.opt.Net.ports[device]); err != nil {
		return err
	}
	if t.wire, err = e.point.Dial(ctx, t.peer, point, t.channel); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { t.wire.SetDeadline(time.Unix(1, 0)) })
	err = t.agree(device)
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

// prepare makes what the sender needs before it knows the receiver.
func (t *Tx) prepare(p *port) error {
	if err := t.makeQPs(p, max(t.e.opt.Params.QPs, 1), qpSize{cqes: slots, sends: 2 * slots, receives: 1}); err != nil {
		return err
	}
	if err := t.makeSlots(0); err != nil {
		return err
	}
	a := t.e.opt.Params.Adaptive
	t.adaptive = a > 0 || a < 0 && !p.Ethernet
	return t.makeCredit()
}

// agree exchanges halves with the receiver, and connects to its.
func (t *Tx) agree(device int) error {
	mine := t.half(t.creditMR)
	mine.Device = device
	if err := writeHalf(t.wire, &mine); err != nil {
		return err
	}
	theirs, err := readHalf(t.wire)
	if err != nil {
		return fmt.Errorf("the receiver's half of the connection: %w", err)
	}
	t.to = theirs
	if err := t.makeSends(); err != nil {
		return err
	}
	if err := t.join(&theirs); err != nil {
		return err
	}
	t.ready = true
	return nil
}

// qpSize is how much room a connection's queues have, for each queue pair.
type qpSize struct {
	cqes, sends, receives int
	more                  int // completions, once
}

// makeQPs makes the completion queue and n queue pairs, in INIT.
func (c *conn) makeQPs(p *port, n int, s qpSize) (err error) {
	c.port = p
	if c.cq, err = p.ctx.CQ(n*s.cqes+s.more+1, false, 0); err != nil {
		return err
	}
	for range n {
		q, err := p.pd.QP(rdma.QPOptions{Transport: rdma.RC, SendCQ: c.cq, RecvCQ: c.cq, Sends: s.sends, Recvs: s.receives, Inline: 4})
		if err != nil {
			return err
		}
		c.qps, c.psns = append(c.qps, q), append(c.psns, rand.Uint32N(1<<24))
		if err := q.Init(p.Number, c.e.opt.Params.PKeyIndex, rdma.LocalWrite|rdma.RemoteWrite, 0); err != nil {
			return err
		}
	}
	return nil
}

// half is what the peer must know of this end.
func (c *conn) half(m *rdma.MR) half {
	h := half{
		Name: c.port.String(), Max: c.maxMessage, MTU: c.port.MTU, Ethernet: c.port.Ethernet, LID: c.port.LID, GID: c.port.gid.GID,
		Address: m.Address, Key: m.RKey,
	}
	for i, q := range c.qps {
		h.QPs = append(h.QPs, qpNames{q.Number, c.psns[i]})
	}
	return h
}

// join connects the queue pairs to the peer's.
func (c *conn) join(to *half) error {
	c.remote = fmt.Sprintf("rank %d's %s", c.peer, to.Name)
	if to.Ethernet != c.port.Ethernet {
		return fmt.Errorf("%v is %s and %s is not: choose ports of one kind with NCCL_IB_HCA, the same ones on all hosts", c.port, c.port.layer(), c.remote)
	}
	if len(to.QPs) != len(c.qps) {
		return fmt.Errorf("%s has %d queue pairs where there are %d", c.remote, len(to.QPs), len(c.qps))
	}
	for i, q := range c.qps {
		how := c.connection(to)
		how.QPN, how.PSN, how.OwnPSN = to.QPs[i].QPN, to.QPs[i].PSN, c.psns[i]
		if err := q.ReadyToReceive(how); err != nil {
			return fmt.Errorf("connecting to %s: %w", c.remote, err)
		}
		if err := q.ReadyToSend(how); err != nil {
			return fmt.Errorf("connecting to %s: %w", c.remote, err)
		}
	}
	return nil
}

// minRNR is the code of how long a sender waits that met no receive request,
// 0.64 ms. It never does.
const minRNR = 12

// connection is how queue pairs get to the peer's.
func (c *conn) connection(to *half) rdma.Connection {
	p, gid := &c.e.opt.Params, c.port.gid.Index
	if !c.port.Ethernet && subnet(to.GID) == subnet(c.port.gid.GID) {
		gid = -1 // the LID does
	}
	return rdma.Connection{
		Path:    rdma.Path{Port: c.port.Number, GIDIndex: gid, GID: to.GID, LID: to.LID, SL: p.ServiceLevel, TrafficClass: p.TrafficClass},
		MTU:     min(c.port.MTU, to.MTU),
		ReadsIn: 1, ReadsOut: 1, Timeout: p.Timeout, Retries: p.Retries, RNRRetry: 7, MinRNR: minRNR,
	}
}

// subnet is the prefix of an InfiniBand address.
func subnet(g rdma.GID) [8]byte { return [8]byte(g[:8]) }

// admit makes the receiving end of what a peer dials.
func (e *Endpoint) admit(peer, channel int, wire net.Conn) {
	h, err := e.readSender(wire)
	if err == nil && h.Max > e.opt.MaxMessage {
		err = fmt.Errorf("it wants messages of %d bytes; they are at most %d", h.Max, e.opt.MaxMessage)
	}
	if err != nil {
		e.opt.Logf("IB: rank %d: %v", peer, err)
		wire.Close()
		return
	}
	r, err := e.enter(peer, channel, h.Max, wire)
	if err != nil {
		e.opt.Logf("IB: %v", err)
		wire.Close()
		return
	}
	if err := r.begin(&h); err != nil {
		text := half{Failure: err.Error()}
		writeHalf(wire, &text) // the sender reports it
		e.opt.Logf("IB: receiving from rank %d: %v", peer, err)
		r.end()
		r.once.Do(func() { close(r.heard) })
		return
	}
	e.wg.Go(func() { r.watch(r.hear, r.part) })
}

// askPatience is how long the receiver waits for what the sender says first.
const askPatience = 10 * time.Second

func (e *Endpoint) readSender(wire net.Conn) (half, error) {
	wire.SetReadDeadline(time.Now().Add(askPatience))
	stop := context.AfterFunc(e.ctx, func() { wire.Close() })
	defer stop()
	h, err := readHalf(wire)
	wire.SetReadDeadline(time.Time{})
	return h, err
}

// enter gives a TCP connection to the receiving end that it is for.
func (e *Endpoint) enter(peer, channel, maxMessage int, wire net.Conn) (*Rx, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, net.ErrClosed
	}
	r := e.rxLocked(peer, channel, maxMessage)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wire != nil {
		return nil, fmt.Errorf("rank %d dials channel %d twice", peer, channel)
	}
	r.wire, r.maxMessage = wire, maxMessage
	return r, nil
}

// begin makes the receiver's half of a connection, and answers with it. Nobody
// else looks at what it makes until it is ready: finding the way to the sender
// may take seconds.
func (r *Rx) begin(from *half) error {
	ports := r.e.opt.Net.ports
	if err := r.makeQPs(ports[from.Device%len(ports)], len(from.QPs), qpSize{cqes: slots, sends: creditDepth, receives: slots, more: creditDepth}); err != nil {
		return err
	}
	if err := r.makeSlots(rdma.LocalWrite | rdma.RemoteWrite); err != nil {
		return err
	}
	if err := r.makeCredit(from); err != nil {
		return err
	}
	if err := r.postReceives(); err != nil {
		return err
	}
	if err := r.join(from); err != nil {
		return err
	}
	r.mu.Lock()
	r.ready = true
	r.mu.Unlock()
	mine := r.half(r.mr)
	return writeHalf(r.wire, &mine)
}
