//go:build cgo && linux

package probe

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"unsafe"

	"github.com/assay-hpc/assay/internal/verbs"
	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// An endpoint contains this side's device, memory and QPs.
type endpoint struct {
	c      *Config
	ctx    *verbs.Context
	limits verbs.Limits
	port   verbs.Port
	gid    verbs.GIDEntry // Index is -1 if there is none
	mtu    verbs.MTU      // own; after the handshake the agreed one

	cycle, line int // bytes, agreed
	size        int // of the largest message
	pd          *verbs.PD
	cq, recvCQ  *verbs.CQ // recvCQ is nil unless messages are received
	srq         *verbs.SRQ
	qps         []*verbs.QP
	memory      *Memory     // of the data, if not in host memory
	mem         []byte      // host memory of the data
	regions     []*verbs.MR // all
	base        uint64      // address of the data
	sendMRs     []*verbs.MR // of the messages' sources and targets, one of each for each QP;
	recvMRs     []*verbs.MR // without --mr_per_qp it is the same for all
	ahs         []*verbs.AH
	to          []destination // of datagrams, with rdma_cm
	sends       []*verbs.Sends
	recvs       []*verbs.Recvs
	mine, peers []wire.Address
}

// openDevice opens the device, reads the state of its port, and checks whether it can use the GPU's
// memory.
func openDevice(c *Config) (*endpoint, error) {
	ctx, err := verbs.Open(c.Device)
	if err != nil {
		return nil, err
	}
	e := &endpoint{c: c, ctx: ctx}
	if err := e.queryPort(); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *endpoint) queryPort() (err error) {
	if e.limits, err = e.ctx.Limits(); err != nil {
		return err
	}
	if e.port, err = e.ctx.Port(e.c.IBPort); err != nil {
		return err
	}
	if e.c.ForceLink != "" {
		e.port.Ethernet = e.c.ForceLink == "Ethernet"
	}
	if !e.port.Active() {
		return fmt.Errorf("%s port %d is %v: is the cable in, the interface up, and on InfiniBand a subnet manager running?", e.ctx.Name(), e.c.IBPort, e.port.State)
	}
	if err := e.chooseGID(); err != nil {
		return err
	}
	e.mtu = e.port.MTU
	if m := verbs.MTUOf(e.c.MTU); e.c.MTU != 0 {
		if m > e.port.MTU {
			return &FlagError{Flag: "-m", Text: fmt.Sprintf("%d is more than the MTU of %s port %d, %d", e.c.MTU, e.ctx.Name(), e.c.IBPort, e.port.MTU.Bytes())}
		}
		e.mtu = m
	}
	return e.tryGPU()
}

// chooseGID selects the entry that -x names, or perftest's choice. On InfiniBand without -x there
// is none.
func (e *endpoint) chooseGID() error {
	e.gid.Index = -1
	if e.c.GIDIndex < 0 && !e.port.Ethernet {
		return nil
	}
	table, err := e.ctx.GIDs(e.c.IBPort)
	if err != nil {
		return err
	}
	index := e.c.GIDIndex
	if index < 0 {
		var ok bool
		if index, ok = verbs.DefaultGID(table, e.c.IPv6); !ok {
			return fmt.Errorf("%s port %d has no GID: give its interface an address", e.ctx.Name(), e.c.IBPort)
		}
	}
	for _, entry := range table {
		if entry.Index == index {
			e.gid = entry
			return nil
		}
	}
	return &FlagError{Flag: "-x", Text: fmt.Sprintf("%s port %d has no GID at index %d; it has %s", e.ctx.Name(), e.c.IBPort, index, listGIDs(table))}
}

func listGIDs(table []verbs.GIDEntry) string {
	var all []string
	for _, g := range table {
		all = append(all, fmt.Sprintf("%d %v (%v)", g.Index, g.GID, g.RoCE))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// receives reports whether this side consumes receives for arriving messages.
func (e *endpoint) receives() bool {
	return e.c.Receives() && (e.c.Measure == Latency || e.c.Bidirectional || !e.c.Sends())
}

// region is a QP's part of each half of the buffer, in bytes.
func (e *endpoint) region() int {
	return roundUp(max(e.size, e.cycle), e.line)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

const grh = 40 // bytes before a datagram

// build creates memory and QPs, in state INIT. Cycle, line and MTU have been agreed on.
func (e *endpoint) build() (err error) {
	c := e.c
	if err := c.CheckMTU(e.mtu.Bytes()); err != nil {
		return err
	}
	e.size = int(c.LargestSize(e.mtu.Bytes()))
	if e.pd, err = e.ctx.PD(); err != nil {
		return err
	}
	cores, err := c.cores()
	if err != nil {
		return err
	}
	// Memory lies near the processor that first touches it.
	if err := pinned(cores, func() error { return e.allocate(e.region()*2*c.QPs + e.line + os.Getpagesize()) }); err != nil {
		return err
	}
	depth := min(c.SendDepth()*c.QPs, e.limits.CQEs)
	if e.cq, err = e.ctx.CQ(depth, c.Events, max(c.Vector, 0)); err != nil {
		return err
	}
	if e.receives() {
		if e.recvCQ, err = e.ctx.CQ(min(c.ReceiveDepth()*c.QPs, e.limits.CQEs), c.Events, max(c.Vector, 0)); err != nil {
			return err
		}
		if c.SRQ {
			if e.srq, err = e.pd.SRQ(c.ReceiveDepth()); err != nil {
				return err
			}
		}
	}
	if c.CM {
		return nil // see connectQueues
	}
	for i := range c.QPs {
		q, err := e.pd.QP(e.qpOptions())
		if err != nil {
			return err
		}
		e.qps = append(e.qps, q)
		if err := q.Init(c.IBPort, c.PKeyIndex, e.qpAccess(), qKey); err != nil {
			return err
		}
		e.mine = append(e.mine, e.address(i))
	}
	return nil
}

// qpOptions are the options with which each QP is created.
func (e *endpoint) qpOptions() verbs.QPOptions {
	o := verbs.QPOptions{Transport: e.transport(), SendCQ: e.cq, RecvCQ: e.cq, Sends: e.c.SendDepth(), Recvs: e.c.ReceiveDepth(), Inline: e.inline()}
	if e.recvCQ != nil {
		o.RecvCQ, o.SRQ = e.recvCQ, e.srq
	}
	return o
}

// inline is the largest message size that is sent inline in the request.
func (e *endpoint) inline() int { return e.c.InlineSize(e.limits.Vendor == mellanox) }

// The OUI that NVIDIA's NICs still use.
const mellanox = 0x02c9

func (e *endpoint) transport() verbs.Transport {
	switch e.c.Connection {
	case UC:
		return verbs.UC
	case UD:
		return verbs.UD
	}
	return verbs.RC
}

// access returns the access flags with which the memory is registered.
func (e *endpoint) access() verbs.Access {
	a := verbs.LocalWrite
	if e.c.OnDemand {
		a |= verbs.OnDemand
	}
	switch e.c.Operation {
	case Write:
		a |= verbs.RemoteWrite
	case Read:
		a |= verbs.RemoteRead
	case Atomic:
		a |= verbs.RemoteAtomic
	}
	if e.c.RelaxedOrdering() {
		a |= verbs.RelaxedOrdering
	}
	return a
}

func (e *endpoint) qpAccess() verbs.Access {
	switch e.c.Operation {
	case Read:
		return verbs.RemoteRead
	case Atomic:
		return verbs.RemoteAtomic
	case Send:
		return verbs.LocalWrite | verbs.RemoteWrite
	}
	return verbs.RemoteWrite
}

// step is the distance between the messages of consecutive QPs, without the rounding of region.
func (e *endpoint) step() int { return max(e.size, e.cycle) }

// source is where QP i's messages come from, target is where they arrive, in the peer's memory.
func (e *endpoint) source(i int) uint64 { return e.base + uint64(i*e.step()) }
func (e *endpoint) target(i int) uint64 { return e.base + uint64((e.c.QPs+i)*e.step()) }

// at returns the pointer in this process for an address of the region.
func (e *endpoint) at(address uint64) unsafe.Pointer {
	return unsafe.Pointer(&e.mem[address-e.base])
}

// outReads is the number of the peer's reads that this side answers at once.
func (e *endpoint) outReads() int {
	if e.c.Operation != Read && e.c.Operation != Atomic {
		return 1
	}
	return cmp.Or(e.c.OutReads, e.limits.ReadsIn)
}

func (e *endpoint) address(i int) wire.Address {
	return wire.Address{
		LID: e.port.LID, OutReads: e.outReads(), QPN: e.qps[i].Number, PSN: rand.Uint32() & 0xffffff, RKey: e.recvMRs[i].RKey, VAddr: e.target(i),
		GID: [16]byte(e.gid.GID), HasGID: e.gid.Index >= 0, GIDIndex: max(e.gid.Index, 0),
	}
}

// connect moves the QPs to the states that this side's role needs. rdma_cm does that by itself.
func (e *endpoint) connect() error {
	c := e.c
	if c.CM {
		return nil
	}
	if err := e.mine[0].Reaches(e.peers[0]); err != nil {
		return err
	}
	for i, q := range e.qps {
		p := e.peers[i]
		con := verbs.Connection{
			Path: verbs.Path{Port: c.IBPort, GIDIndex: e.gid.Index, GID: verbs.GID(p.GID), LID: cmp.Or(uint16(c.DLID), p.LID), SL: c.SL, TrafficClass: c.TClass, FlowLabel: c.flowLabel(i)},
			MTU:  e.mtu, QPN: p.QPN, PSN: p.PSN, OwnPSN: e.mine[i].PSN,
			ReadsIn: e.outReads(), ReadsOut: p.OutReads, Timeout: c.AckTimeout, Retries: 7, RNRRetry: 7, MinRNR: 12,
		}
		if err := q.ReadyToReceive(con); err != nil {
			return err
		}
		if c.Measure == Bandwidth && !c.Sends() {
			continue
		}
		if err := q.ReadyToSend(con); err != nil {
			return err
		}
		if c.Connection == UD {
			ah, err := e.pd.AH(con.Path)
			if err != nil {
				return err
			}
			e.ahs = append(e.ahs, ah)
		}
	}
	return nil
}

// close frees all resources, in order.
func (e *endpoint) close() error {
	var errs []error
	do := func(err error) { errs = append(errs, err) }
	for _, q := range e.qps {
		do(q.Close())
	}
	for _, a := range e.ahs {
		do(a.Close())
	}
	e.closeRequests()
	if e.srq != nil {
		do(e.srq.Close())
	}
	for _, q := range []*verbs.CQ{e.cq, e.recvCQ} {
		if q != nil {
			do(q.Close())
		}
	}
	for _, mr := range e.regions {
		do(mr.Close())
	}
	if e.mem != nil {
		do(verbs.Free(e.mem))
	}
	if e.memory != nil {
		do(e.memory.Close())
	}
	if e.pd != nil {
		do(e.pd.Close())
	}
	do(e.ctx.Close())
	return errors.Join(errs...)
}

// closeRequests frees the requests of the current size.
func (e *endpoint) closeRequests() {
	for _, s := range e.sends {
		s.Close()
	}
	for _, r := range e.recvs {
		r.Close()
	}
	e.sends, e.recvs = nil, nil
}

// requests creates the requests for messages of a size: a list of sends for each QP, and receives.
func (e *endpoint) requests(size uint64) error {
	e.closeRequests()
	for i := range e.qps {
		if e.c.Sends() {
			s, err := e.sendRequests(i, int(size))
			if err != nil {
				return err
			}
			e.sends = append(e.sends, s)
		}
		if e.receives() {
			r, err := verbs.NewRecvs(e.c.RecvList, 1)
			if err != nil {
				return err
			}
			r.Chain(0, e.c.RecvList)
			e.recvs = append(e.recvs, r)
			// Sized for the largest message: receives left from one size are used for the next.
			at, n := e.base+uint64((e.c.QPs+i)*e.region()), e.size
			if e.c.Connection == UD {
				at, n = at+uint64(e.line-grh), n+grh
			}
			for k := range r.WR {
				r.WR[k].ID = uint64(i)
				r.SGE[k] = verbs.SGE{Address: at, Length: uint32(n), LKey: e.recvMRs[i].LKey}
			}
		}
	}
	return nil
}

func (e *endpoint) sendRequests(i, size int) (*verbs.Sends, error) {
	c := e.c
	list := 1
	if c.Measure == Bandwidth {
		list = c.PostList
	}
	s, err := verbs.NewSends(list, 1)
	if err != nil {
		return nil, err
	}
	for k := range s.WR {
		w := &s.WR[k]
		w.ID = uint64(i)
		at := uint64(0)
		if step := e.messageStep(size); step > 0 {
			at = uint64(k * step % (e.cycle / step * step))
		}
		s.SGE[k] = verbs.SGE{Address: e.source(i) + at, Length: uint32(size), LKey: e.sendMRs[i].LKey}
		if size <= e.inline() && c.Operation != Read && c.Operation != Atomic {
			w.Flags |= verbs.Inline
		}
		switch peer := &e.peers[i]; {
		case c.Operation == Send:
			w.Send()
			if c.Immediate {
				w.SendImm()
			}
			if c.Connection == UD {
				to := e.destination(i)
				w.SetDatagram(e.ahs[i], to.qpn, to.qkey)
			}
		case c.Operation == Read:
			w.Read(peer.VAddr+at, peer.RKey)
		case c.Operation == Write && c.Immediate:
			w.WriteImm(peer.VAddr+at, peer.RKey)
		case c.Operation == Write:
			w.Write(peer.VAddr+at, peer.RKey)
		case c.CompareAndSwap:
			w.CompareSwap(peer.VAddr, peer.RKey, 1, 0)
		default:
			w.FetchAdd(peer.VAddr, peer.RKey, 1)
		}
	}
	s.WR[list-1].Flags |= verbs.Signaled
	s.Chain(0, list)
	return s, nil
}

// messageStep is the distance between messages of a size in the buffer: 0 if all begin at the same
// place.
func (e *endpoint) messageStep(size int) int {
	if e.c.Operation == Atomic || size > e.cycle/2 {
		return 0
	}
	return roundUp(max(size, 1), e.line)
}

// postReceives fills the receive queues. Each QP fills its share of a shared queue.
func (e *endpoint) postReceives(have []int) error {
	depth, list := e.c.eachReceives(), e.c.RecvList
	for i, q := range e.qps {
		for ; have[i]+list <= depth; have[i] += list {
			if err := q.PostRecv(&e.recvs[i].WR[0]); err != nil {
				return err
			}
		}
	}
	return nil
}
