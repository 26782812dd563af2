//go:build cgo && linux

package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"unsafe"

	"github.com/assay-hpc/assay/coll/transport/slots"
	rdma "github.com/assay-hpc/assay/internal/verbs"
)

// Connect implements slots.Sender: it creates its queue pairs, asks the receiver to
// create its own, and connects them.
func (t *sender) Connect(ctx context.Context) error {
	p := t.n.ports[t.Device]
	if err := t.makeQPs(p, max(t.n.params.QPs, 1), qpSize{cqes: slots.N, sends: 2 * slots.N, receives: 1}); err != nil {
		return err
	}
	if err := t.register(0, rdma.LocalWrite|rdma.RemoteWrite); err != nil {
		return err
	}
	a := t.n.params.Adaptive
	t.adaptive = a > 0 || a < 0 && !p.Ethernet
	mine, err := t.half(t.creditMR)
	if err != nil {
		return err
	}
	theirs, err := t.Ask(ctx, mine)
	if err != nil {
		return err
	}
	if t.to, err = parseHalf(theirs); err != nil {
		return fmt.Errorf("the receiver's half of the connection: %w", err)
	}
	if err := t.makeSends(); err != nil {
		return err
	}
	if err := t.join(&t.to); err != nil {
		return err
	}
	t.begin()
	return nil
}

// Accept implements slots.Receiver. Resolving the route to the sender may take seconds.
func (r *receiver) Accept(_ context.Context, asked []byte) error {
	from, err := parseHalf(asked)
	if err != nil {
		return fmt.Errorf("the sender's half of the connection: %w", err)
	}
	if err := r.makeQPs(r.n.ports[r.Device], len(from.QPs), qpSize{cqes: slots.N, sends: creditDepth, receives: slots.N, more: creditDepth}); err != nil {
		return err
	}
	if err := r.register(rdma.LocalWrite|rdma.RemoteWrite, rdma.LocalWrite); err != nil {
		return err
	}
	if err := r.makeWrite(&from); err != nil {
		return err
	}
	if err := r.postReceives(); err != nil {
		return err
	}
	if err := r.join(&from); err != nil {
		return err
	}
	mine, err := r.half(r.mr)
	if err != nil {
		return err
	}
	r.begin()
	return r.Answer(mine)
}

// begin marks the connection as ready and starts to watch it.
func (c *conn) begin() {
	c.Lock()
	c.Made()
	c.Unlock()
	c.Watch()
}

// qpSize is the capacity of a connection's queues, per queue pair.
type qpSize struct {
	cqes, sends, receives int
	more                  int // additional completions, per connection
}

// makeQPs creates the completion queue and n queue pairs, in INIT.
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
		if err := q.Init(p.Number, c.n.params.PKeyIndex, rdma.LocalWrite|rdma.RemoteWrite, 0); err != nil {
			return err
		}
	}
	return nil
}

// register allocates the slots and the credit, and registers both with the device.
func (c *conn) register(slot, credit rdma.Access) (err error) {
	b, _, stride := c.MakeSlots()
	c.stride = stride
	if c.mr, err = c.port.pd.Register(rdma.Address(b), len(b), slot); err != nil {
		return err
	}
	word := c.Pages(creditSize)
	c.credit = (*uint32)(unsafe.Pointer(&word[0]))
	c.creditMR, err = c.port.pd.Register(rdma.Address(word), len(word), credit)
	return err
}

// creditSize is a page, so that peers can write to nothing except the credit.
const creditSize = 4096

// makeSends creates the requests, once the receiver's memory is known.
func (t *sender) makeSends() (err error) {
	n := slots.N * len(t.qps)
	if t.sends, err = rdma.NewSends(2*n, 1); err != nil {
		return err
	}
	for i := range n {
		w := t.sends.WR[2*i:]
		w[0].Write(t.to.Address, t.to.Key)
		w[1].WriteImm(t.to.Address, t.to.Key)
		w[1].Flags, w[1].ID = rdma.Signaled, uint64(i/len(t.qps))
		t.sends.Chain(2*i, 2*i+2)
	}
	return nil
}

// makeWrite creates the request that writes the credit into the sender's memory.
func (r *receiver) makeWrite(to *half) (err error) {
	if r.sends, err = rdma.NewSends(1, 1); err != nil {
		return err
	}
	w := &r.sends.WR[0]
	w.ID, w.Flags = creditID, rdma.Signaled
	if r.qps[0].Inline >= 4 {
		w.Flags |= rdma.Inline
	}
	w.Write(to.Address, to.Key)
	r.sends.SGE[0] = rdma.SGE{Address: r.creditMR.Address, Length: 4, LKey: r.creditMR.LKey}
	return nil
}

// postReceives posts a receive for every message part that can be pending.
func (r *receiver) postReceives() (err error) {
	if r.recvs, err = rdma.NewRecvs(len(r.qps), 1); err != nil {
		return err
	}
	for i, q := range r.qps {
		w := &r.recvs.WR[i]
		w.ID, w.SGEs = uint64(i), 0
		for range slots.N {
			if err := q.PostRecv(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// half encodes what the peer must know about this end.
func (c *conn) half(m *rdma.MR) ([]byte, error) {
	h := half{
		Name: c.port.String(), MTU: c.port.MTU, Ethernet: c.port.Ethernet, LID: c.port.LID, GID: c.port.gid.GID,
		Address: m.Address, Key: m.RKey,
	}
	for i, q := range c.qps {
		h.QPs = append(h.QPs, qpNames{q.Number, c.psns[i]})
	}
	return json.Marshal(h)
}

// join connects the queue pairs to the peer's.
func (c *conn) join(to *half) error {
	c.remote = fmt.Sprintf("rank %d's %s", c.Peer, to.Name)
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

// minRNR is the code for 0.64 ms: how long a sender waits if it meets no receive request.
// That never happens.
const minRNR = 12

// connection returns the parameters that connect a queue pair to the peer's.
func (c *conn) connection(to *half) rdma.Connection {
	p, gid := &c.n.params, c.port.gid.Index
	if !c.port.Ethernet && subnet(to.GID) == subnet(c.port.gid.GID) {
		gid = -1 // the LID is sufficient
	}
	return rdma.Connection{
		Path:    rdma.Path{Port: c.port.Number, GIDIndex: gid, GID: to.GID, LID: to.LID, SL: p.ServiceLevel, TrafficClass: p.TrafficClass},
		MTU:     min(c.port.MTU, to.MTU),
		ReadsIn: 1, ReadsOut: 1, Timeout: p.Timeout, Retries: p.Retries, RNRRetry: 7, MinRNR: minRNR,
	}
}

// subnet is the prefix of an InfiniBand address.
func subnet(g rdma.GID) [8]byte { return [8]byte(g[:8]) }
