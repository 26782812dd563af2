package transporttest_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/transporttest"
)

// TestReference runs the suite on queues in memory: the obvious transport.
func TestReference(t *testing.T) {
	for name, direct := range map[string]bool{"copying": false, "direct": true} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB, n int) []transporttest.Rank {
				net := &network{direct: direct, queues: map[key]*queue{}}
				var ranks []transporttest.Rank
				for r := range n {
					f := new(transport.Fault)
					ranks = append(ranks, transporttest.Rank{Endpoint: &endpoint{net: net, rank: r, fault: f}, Fault: f})
				}
				return ranks
			})
		})
	}
}

const (
	maxMessage = 300_000
	slots      = 4
)

type key struct{ from, to, channel int }

// A network holds all queues of a communicator.
type network struct {
	direct bool
	mu     sync.Mutex
	queues map[key]*queue
}

func (n *network) queue(k key) *queue {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.queues[k]
	if q == nil {
		q = &queue{k: k, direct: n.direct}
		for i := range q.slot {
			q.slot[i] = make([]byte, maxMessage)
		}
		n.queues[k] = q
	}
	return q
}

// A queue is a connection, both ends of it.
type queue struct {
	k          key
	direct     bool
	mu         sync.Mutex
	slot       [slots][]byte
	len        [slots]int
	head       [slots]transport.Header
	sent, read int
	posted     []byte
	txGone     bool // closed by the sender
	rxGone     bool
}

type endpoint struct {
	net   *network
	rank  int
	fault *transport.Fault
}

func (e *endpoint) Name() string { return "memory" }
func (e *endpoint) Info() []byte { return []byte("memory") }
func (e *endpoint) Reach(_ int, info []byte) error {
	if string(info) != "memory" {
		return errors.New("not in this memory")
	}
	return nil
}

func (e *endpoint) Tx(_ context.Context, peer int, _ []byte, channel int) (transport.Tx, error) {
	return &end{e.net.queue(key{e.rank, peer, channel}), e.fault, peer, e.rank}, nil
}

func (e *endpoint) Rx(_ context.Context, peer int, _ []byte, channel int) (transport.Rx, error) {
	return &rx{end{e.net.queue(key{peer, e.rank, channel}), e.fault, peer, e.rank}}, nil
}

func (e *endpoint) Close() error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	for k, q := range e.net.queues {
		q.mu.Lock()
		q.txGone = q.txGone || k.from == e.rank
		q.rxGone = q.rxGone || k.to == e.rank
		q.mu.Unlock()
	}
	return nil
}

// An end is the sending end, and what both ends have.
type end struct {
	q        *queue
	fault    *transport.Fault
	peer, by int
}

func (e *end) lost() { e.fault.Set(&transport.PeerError{Rank: e.peer, By: e.by, What: "closed"}) }

func (e *end) Reserve(n int) []byte {
	e.q.mu.Lock()
	defer e.q.mu.Unlock()
	switch {
	case e.q.txGone:
		return nil
	case e.q.rxGone:
		e.lost()
		return nil
	case e.q.sent-e.q.read == slots:
		return nil
	}
	return e.q.slot[e.q.sent%slots][:n]
}

func (e *end) Commit(n int, h transport.Header) {
	e.q.mu.Lock()
	defer e.q.mu.Unlock()
	e.q.len[e.q.sent%slots], e.q.head[e.q.sent%slots] = n, h
	e.q.sent++
}

func (e *end) Post(p []byte, h transport.Header) bool {
	q := e.Reserve(len(p))
	if q == nil {
		return false
	}
	copy(q, p)
	e.Commit(len(p), h)
	return true
}

func (e *end) Idle() bool      { return true }
func (e *end) Direct() bool    { return e.q.direct }
func (e *end) MaxMessage() int { return maxMessage }
func (e *end) Slots() int      { return slots }

type rx struct{ end }

func (r *rx) Peek() ([]byte, transport.Header, bool) {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	if r.q.rxGone {
		return nil, transport.Header{}, false
	}
	if r.q.sent == r.q.read {
		if r.q.txGone {
			r.lost()
		}
		return nil, transport.Header{}, false
	}
	i := r.q.read % slots
	return r.q.slot[i][:r.q.len[i]], r.q.head[i], true
}

func (r *rx) Release() bool {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	r.q.read++
	return true
}

func (r *rx) Post(p []byte) { r.q.posted = p }

func (r *rx) Done() (transport.Header, int, bool) {
	p, h, ok := r.Peek()
	if !ok {
		return h, 0, false
	}
	if len(p) == len(r.q.posted) {
		copy(r.q.posted, p)
	}
	r.Release()
	return h, len(p), true
}
