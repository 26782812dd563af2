package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// A crewHub is rank 0's part of a Crew.
type crewHub struct {
	venue
	size   int
	wg     sync.WaitGroup // of links
	deaths events
	loss   loss

	mu     sync.Mutex
	mates  []*mate // by rank; nil: has not come, and of rank 0
	own    []byte
	lostBy map[int]string
	begun  bool
	ending bool
	await  *await // who waits for all ranks; nil: nobody
}

// An await is a wait until all ranks that are not lost are ready.
type await struct {
	ready func(*mate) bool
	left  int           // that are not
	done  chan struct{} // closed when none is left
}

// A mate is a rank that has come.
type mate struct {
	link *link
	here []byte
	said bool   // here
	seq  uint32 // of the part that waits
	part []byte // not nil: it waits for an answer
	done uint32 // the last exchange that was answered
}

func newCrewHub(size int, o Options, secret [secretBytes]byte) *crewHub {
	h := &crewHub{venue: venue{o: o, over: make(chan struct{})}, size: size, mates: make([]*mate, size), lostBy: map[int]string{}}
	h.gate = o.gate("rank 0", secret[:], h.admit, h.enter)
	return h
}

func (h *crewHub) start() { h.deaths.start(&h.wg) }

func (h *crewHub) Close() error { h.close(nil); return nil }

func (h *crewHub) admit(hello hello) error {
	switch {
	case hello.purpose != toCrew || hello.to != nobodyRank:
		return fmt.Errorf("it wants %q of rank %d; this is a crew's rank 0", byte(hello.purpose), hello.to)
	case int(hello.size) != h.size || hello.from <= 0 || int(hello.from) >= h.size:
		return fmt.Errorf("it is rank %d of %d; this is rank 0 of %d", hello.from, hello.size, h.size)
	}
	return nil
}

// enter takes in a rank, or tells it that it is one too many.
func (h *crewHub) enter(hello hello, c net.Conn, _ []byte) {
	rank := int(hello.from)
	h.mu.Lock()
	defer h.mu.Unlock()
	var refused string
	switch m := h.mates[rank]; {
	case h.ending:
		refused = "rank 0 has ended"
	case m != nil:
		refused = fmt.Sprintf("rank %d came twice", rank)
	case h.begun:
		refused = fmt.Sprintf("rank %d came too late: the others did not wait longer than %v", rank, h.o.Timeout)
	}
	l := newLink(h, h.o.Silence, rank, c)
	if refused != "" {
		l.left.Store(true) // whatever it does, it is no loss
		l.finish(frameLeave, []byte(refused), time.Now().Add(lingerTime))
	} else {
		h.mates[rank] = &mate{link: l}
	}
	h.wg.Go(l.read)
	h.wg.Go(l.write)
}

// awaitLocked begins to wait, without looking at all ranks whenever one changes:
// of many that would take the square of their number.
func (h *crewHub) awaitLocked(ready func(*mate) bool) *await {
	h.await = &await{ready: ready, left: len(h.missingLocked(ready)), done: make(chan struct{})}
	if h.await.left == 0 {
		close(h.await.done)
	}
	return h.await
}

// readyLocked counts a rank that has become ready, or is lost, and was not ready
// before.
func (h *crewHub) readyLocked() {
	if h.await.left--; h.await.left == 0 {
		close(h.await.done)
	}
}

func (h *crewHub) awaitedLocked(m *mate) bool {
	return h.await != nil && (m == nil || !h.await.ready(m))
}

// handle is what a rank says.
func (h *crewHub) handle(l *link, k meet.Kind, p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.mates[l.rank]
	if m == nil || m.link != l {
		return nil // it was refused
	}
	if h.awaitedLocked(m) {
		defer func() {
			if _, lost := h.lostBy[l.rank]; !lost && !h.awaitedLocked(m) {
				h.readyLocked()
			}
		}()
	}
	switch k {
	case frameBeat:
	case frameHere:
		if m.said {
			return errors.New("it introduced itself twice")
		}
		m.here, m.said = append([]byte{}, p...), true
	case framePart:
		if len(p) < 4 {
			return errors.New("its part of an exchange is cut off")
		}
		seq := binary.BigEndian.Uint32(p)
		if m.part != nil || seq != m.done+1 {
			return fmt.Errorf("it is at exchange %d, and should be at %d", seq, m.done+1)
		}
		m.seq, m.part = seq, append([]byte{}, p[4:]...)
	case frameLeave:
		l.left.Store(true)
		why := "it has ended"
		if len(p) > 0 {
			why += ": " + string(p)
		}
		h.loseLocked(l.rank, why, len(p) > 0)
		l.finish(frameLeave, nil, time.Now().Add(lingerTime))
	default:
		return fmt.Errorf("it sent a frame of unknown kind %d", k)
	}
	return nil
}

// lost is told by a link that it broke.
func (h *crewHub) lost(l *link, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.mates[l.rank]; m != nil && m.link == l {
		h.loseLocked(l.rank, silentOr(err, h.o.Silence), true)
	}
}

// loseLocked takes down why a rank is not there any more; tell: it is no orderly
// end.
func (h *crewHub) loseLocked(rank int, why string, tell bool) {
	if _, known := h.lostBy[rank]; known || h.ending {
		return
	}
	h.lostBy[rank] = why
	h.loss.tell()
	for other, m := range h.mates {
		if _, gone := h.lostBy[other]; m != nil && !gone {
			m.link.send(frameDeath, nil)
		}
	}
	if f := h.o.OnDeath; f != nil && tell {
		h.deaths.add(func() { f(rank, why) })
	}
	if h.awaitedLocked(h.mates[rank]) {
		h.readyLocked()
	}
}

// leaveLocked goes on without a rank.
func (h *crewHub) leaveLocked(rank int, why string) {
	h.loseLocked(rank, why, true)
	if m := h.mates[rank]; m != nil {
		m.link.left.Store(true)
		m.link.finish(frameLeave, []byte("it is taken for lost: "+why), time.Now().Add(lingerTime))
	}
}

// wait waits for all ranks, or the timeout, and says that it begins.
func (h *crewHub) wait(ctx context.Context, own []byte) error {
	h.mu.Lock()
	h.own = append([]byte{}, own...)
	h.mu.Unlock()
	limit := time.NewTimer(h.o.Timeout)
	defer limit.Stop()
	said := func(m *mate) bool { return m.said }
	h.mu.Lock()
	all := h.awaitLocked(said)
	h.mu.Unlock()
	select {
	case <-all.done:
	case <-limit.C:
	case <-ctx.Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		return fmt.Errorf("waiting for rank %s: %w", rankList(h.missingLocked(said)), context.Cause(ctx))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.await = nil
	for _, rank := range h.missingLocked(said) {
		h.leaveLocked(rank, fmt.Sprintf("it did not come within %v", h.o.Timeout))
	}
	h.begun = true
	for rank, m := range h.mates {
		if _, lost := h.lostBy[rank]; m != nil && !lost {
			m.link.send(frameGo, nil)
		}
	}
	return nil
}

// missingLocked are the ranks that are not lost, and not ready.
func (h *crewHub) missingLocked(ready func(*mate) bool) (out []int) {
	for rank := 1; rank < h.size; rank++ {
		if _, lost := h.lostBy[rank]; !lost && (h.mates[rank] == nil || !ready(h.mates[rank])) {
			out = append(out, rank)
		}
	}
	return out
}

// exchange is rank 0's side of one.
func (h *crewHub) exchange(ctx context.Context, seq uint32, own []byte, judge func([][]byte) ([][]byte, error)) ([]byte, error) {
	begun := time.Now()
	all, err := h.collect(ctx, seq, begun)
	if err != nil {
		return nil, err
	}
	all[0] = own
	answers, err := judge(all)
	for rank, a := range answers {
		if len(a) > MaxBlock {
			err = fmt.Errorf("an answer of %d bytes to rank %d; at most %d are possible", len(a), rank, MaxBlock)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for rank, m := range h.mates {
		if m == nil || m.part == nil {
			continue
		}
		m.part, m.done = nil, seq
		head := binary.BigEndian.AppendUint32(nil, seq)
		switch {
		case err != nil:
			m.link.send(frameFailed, append(head, err.Error()...))
		case rank < len(answers):
			m.link.send(framePart, append(head, answers[rank]...))
		default:
			m.link.send(framePart, head)
		}
	}
	if err != nil || len(answers) == 0 {
		return nil, err
	}
	return answers[0], nil
}

// collect waits for what all who are left give.
func (h *crewHub) collect(ctx context.Context, seq uint32, begun time.Time) ([][]byte, error) {
	given := func(m *mate) bool { return m.part != nil && m.seq == seq }
	h.mu.Lock()
	wait := h.awaitLocked(given)
	h.mu.Unlock()
	select {
	case <-wait.done:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.await = nil
	if missing := h.missingLocked(given); len(missing) > 0 {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fmt.Errorf("waiting for rank %s: %w", rankList(missing), context.Cause(ctx))
		}
		for _, rank := range missing {
			h.leaveLocked(rank, fmt.Sprintf("the others waited for it for %v", time.Since(begun).Round(time.Millisecond)))
		}
	}
	all := make([][]byte, h.size)
	for rank, m := range h.mates {
		if _, lost := h.lostBy[rank]; m != nil && !lost {
			all[rank] = m.part
		}
	}
	return all, nil
}

func (h *crewHub) here(rank int) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case rank == 0:
		return h.own
	case rank < 0 || rank >= h.size || h.mates[rank] == nil:
		return nil
	}
	return h.mates[rank].here
}

func (h *crewHub) losses() map[int]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[int]string, len(h.lostBy))
	for rank, why := range h.lostBy {
		out[rank] = why
	}
	return out
}

// address is where the others reach this rank.
func (h *crewHub) address() netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	var conns []net.Conn
	for _, m := range h.mates {
		if m != nil {
			conns = append(conns, m.link.conn)
		}
	}
	return ownAddr(h.id, h.o, conns)
}

// close tells all ranks, and waits for them a moment.
func (h *crewHub) close(text []byte) {
	h.mu.Lock()
	if h.ending {
		h.mu.Unlock()
		return
	}
	h.ending = true
	deadline := time.Now().Add(closeTime)
	for _, m := range h.mates {
		if m != nil {
			m.link.left.Store(true)
			m.link.finish(frameLeave, text, deadline)
		}
	}
	h.mu.Unlock()
	close(h.over)
	h.gate.Close()
	h.deaths.stop()
	h.wg.Wait()
	h.beside.Wait()
}
