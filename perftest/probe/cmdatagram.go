//go:build cgo && linux

package probe

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/assay-hpc/assay/internal/verbs"
)

// In a datagram connection the client learns the server's QP, but rdma_cm does not tell the server
// the client's. If the server sends, the client's first datagram tells it: its immediate data is
// the number of the client's QP.

// A destination is where datagrams go, in addition to their address handle.
type destination struct{ qpn, qkey uint32 }

// destination is the destination for QP i.
func (e *endpoint) destination(i int) destination {
	if len(e.to) > 0 {
		return e.to[i]
	}
	return destination{e.peers[i].QPN, qKey}
}

// answers reports whether the server sends datagrams.
func (e *endpoint) answers() bool { return e.c.Measure == Latency || e.c.Bidirectional }

const introductionBytes = 4

// introduceTo tells the server the client's QP.
func (e *endpoint) introduceTo(ctx context.Context, q *verbs.QP, ah *verbs.AH, to destination) error {
	s, err := verbs.NewSends(1, 1)
	if err != nil {
		return err
	}
	defer s.Close()
	w := &s.WR[0]
	w.SendImm()
	w.Flags = verbs.Signaled
	binary.BigEndian.PutUint32(e.mem, q.Number)
	w.Imm = binary.NativeEndian.Uint32(e.mem) // in network order
	s.SGE[0] = verbs.SGE{Address: e.base, Length: introductionBytes, LKey: e.sendMRs[0].LKey}
	w.SetDatagram(ah, to.qpn, to.qkey)
	if err := q.PostSend(w); err != nil {
		return err
	}
	_, err = e.completion(ctx, e.cq)
	return err
}

// expectIntroduction posts the receive for the introduction.
func (e *endpoint) expectIntroduction(q *verbs.QP) error {
	r, err := verbs.NewRecvs(1, 1)
	if err != nil {
		return err
	}
	defer r.Close() // posting copies it
	r.SGE[0] = verbs.SGE{Address: e.base, Length: grh + introductionBytes, LKey: e.sendMRs[0].LKey}
	return q.PostRecv(&r.WR[0])
}

// introduction waits for the introduction, and stores the client's address from it.
func (e *endpoint) introduction(ctx context.Context, port int) error {
	w, err := e.completion(ctx, e.recvCQ)
	if err != nil {
		return err
	}
	ah, err := e.pd.AHFrom(&w, e.mem[:grh], port)
	if err != nil {
		return err
	}
	var imm [4]byte
	binary.NativeEndian.PutUint32(imm[:], w.Imm)
	e.ahs, e.to = append(e.ahs, ah), append(e.to, destination{binary.BigEndian.Uint32(imm[:]), cmQKey})
	return nil
}

// qKey is the Q_Key of perftest's datagrams, cmQKey that between QPs created by rdma_cm.
const (
	qKey   = 0x11111111
	cmQKey = 0x01234567
)

// completion waits for a completion, at the beginning of a test.
func (e *endpoint) completion(ctx context.Context, q *verbs.CQ) (verbs.WC, error) {
	var wc [1]verbs.WC
	for {
		n, err := q.Poll(wc[:])
		switch {
		case err != nil:
			return wc[0], err
		case n == 1:
			return wc[0], q.Failed(&wc[0], e.c.IBPort)
		case ctx.Err() != nil:
			return wc[0], context.Cause(ctx)
		}
		time.Sleep(100 * time.Microsecond)
	}
}
