package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// A groupHub is the root's part of a Group. Joining is the first exchange, number 0. The
// other ranks have one as well, which is shut until they are the root: their door.
type groupHub struct {
	*hub
	rank   int
	size   int
	deaths events
	loss   loss
	shut   atomic.Pointer[string] // why nobody may join; nil: all may
	alive  func() error           // returns an error if this process was stopped; nil: unknown

	// Guarded by the hub's lock; by rank. A lost rank's link stays in ranks.
	ranks  []*arrival
	parts  [][]byte // the ranks' parts of the current exchange; nil: not given yet
	heres  [][]byte // the ranks' parts of exchange 0
	lostBy map[int]string
	seq    uint32        // number of the current exchange
	absent int           // ranks that are not lost and have not given their part yet
	all    chan struct{} // closed when absent is 0; a new one for each exchange
}

func newCrewHub(rank, size int, o Options, secret [secretBytes]byte) *groupHub {
	h := &groupHub{
		rank: rank, size: size, ranks: make([]*arrival, size), parts: make([][]byte, size), heres: make([][]byte, size),
		lostBy: map[int]string{}, absent: size, all: make(chan struct{}),
	}
	h.hub = newHub(fmt.Sprintf("rank %d", rank), o, secret, h)
	h.deaths.wg = &h.running
	return h
}

func (h *groupHub) admit(hello hello) error {
	switch why := h.shut.Load(); {
	case hello.purpose != toGroup || hello.to != nobodyRank:
		return fmt.Errorf("it wants %q of rank %d; this is a group's root", byte(hello.purpose), hello.to)
	case int(hello.size) != h.size || hello.from < 0 || int(hello.from) >= h.size || int(hello.from) == h.rank:
		return fmt.Errorf("it is rank %d of %d; this is rank %d of %d", hello.from, hello.size, h.rank, h.size)
	case why != nil:
		return errors.New(*why)
	}
	return nil
}

// enter admits a rank, or dismisses it with the reason.
func (h *groupHub) enter(m *arrival) {
	_, lost := h.lostBy[m.rank]
	var refused string
	switch {
	case h.ended:
		refused = fmt.Sprintf("rank %d has ended", h.rank)
	case h.ranks[m.rank] != nil:
		refused = fmt.Sprintf("rank %d joined twice", m.rank)
	case lost:
		refused = fmt.Sprintf("rank %d joined too late: the others continued without it", m.rank)
	default:
		h.ranks[m.rank] = m
		return
	}
	m.dismiss(frameLeave, []byte(refused), lingerTime)
}

func (h *groupHub) hear(m *arrival, k meet.Kind, p []byte) error {
	switch k {
	case framePart:
		if len(p) < 4 {
			return errors.New("its part of an exchange is cut off")
		}
		if seq := binary.BigEndian.Uint32(p); h.parts[m.rank] != nil || seq != h.seq {
			return fmt.Errorf("it is at exchange %d, and should be at %d", seq, h.seq)
		}
		h.give(m.rank, p[4:])
	case frameLeave:
		why := "it has ended"
		if len(p) > 0 {
			why += ": " + string(p)
		}
		m.dismiss(frameLeave, nil, lingerTime)
		h.lose(m.rank, why, len(p) > 0)
	default:
		return fmt.Errorf("it sent a frame of unknown kind %d", k)
	}
	return nil
}

// give stores a rank's part of the current exchange.
func (h *groupHub) give(rank int, part []byte) {
	if h.parts[rank] == nil { // otherwise the root tries again
		h.present()
	}
	h.parts[rank] = part
	if h.seq == 0 && len(part) >= addrBytes {
		h.heres[rank] = part[addrBytes:]
	}
}

// present counts a rank that has given its part, or is lost. The counter saves a scan of
// all ranks at each change, which would take quadratic time.
func (h *groupHub) present() {
	if h.absent--; h.absent == 0 {
		close(h.all)
	}
}

// next starts to wait for the next exchange.
func (h *groupHub) next() {
	h.seq++
	clear(h.parts)
	h.absent, h.all = h.size-len(h.lostBy), make(chan struct{})
}

func (h *groupHub) lost(m *arrival, err error) { h.lose(m.rank, silentOr(err, h.o.Silence), true) }

// lose records why a rank is gone. tell is set unless the rank left in good order.
func (h *groupHub) lose(rank int, why string, tell bool) {
	if _, known := h.lostBy[rank]; known {
		return
	}
	h.lostBy[rank] = why
	h.loss.wake()
	for m := range h.arrivals {
		if m.rank != rank {
			m.send(frameDeath, append(binary.BigEndian.AppendUint32(nil, uint32(rank)), why...))
		}
	}
	if f := h.o.OnDeath; f != nil && tell {
		h.deaths.add(func() { f(rank, why) })
	}
	if h.parts[rank] == nil {
		h.present()
	}
}

// exchange is the root's side of an exchange. It waits for limit, or if that is 0 until the
// deadline of ctx: a rank that has not given its part by then is lost.
func (h *groupHub) exchange(ctx context.Context, limit time.Duration, own []byte, judge func([][]byte) ([][]byte, error)) ([]byte, error) {
	all, err := h.collect(ctx, limit, own)
	if err == nil && h.alive != nil {
		err = h.alive()
	}
	if err != nil {
		return nil, err
	}
	answers, err := judge(all)
	for rank, a := range answers {
		if len(a) > MaxBlock {
			err = fmt.Errorf("an answer of %d bytes to rank %d; at most %d are possible", len(a), rank, MaxBlock)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	seq := binary.BigEndian.AppendUint32(nil, h.seq)
	for m := range h.arrivals {
		kind, text := framePart, []byte(nil)
		switch {
		case h.parts[m.rank] == nil: // it joined since then
			continue
		case err != nil:
			kind, text = frameFailed, []byte(err.Error())
		case m.rank < len(answers):
			text = answers[m.rank]
		}
		m.send(kind, slices.Concat(seq, text))
	}
	h.next()
	if err != nil || len(answers) <= h.rank {
		return nil, err
	}
	return answers[h.rank], nil
}

// collect waits for the parts of all remaining ranks.
func (h *groupHub) collect(ctx context.Context, limit time.Duration, own []byte) ([][]byte, error) {
	begun, limited := time.Now(), ctx
	if limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.give(h.rank, append([]byte{}, own...))
	all := h.all
	h.mu.Unlock()
	select {
	case <-all:
	case <-limited.Done():
	}
	h.mu.Lock()
	if missing := h.missing(); len(missing) > 0 {
		if limited.Err() != context.DeadlineExceeded || limit > 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("waiting for rank %s: %w", rankList(missing), context.Cause(ctx))
		}
		why := fmt.Sprintf("the others waited for it for %v", time.Since(begun).Round(time.Millisecond))
		if limit > 0 {
			why = fmt.Sprintf("it did not join within %v", limit)
		}
		for _, rank := range missing {
			h.leaveBehind(rank, why)
		}
	}
	parts := slices.Clone(h.parts)
	for rank := range h.lostBy {
		parts[rank] = nil
	}
	return parts, nil
}

// missing returns the ranks that are not lost and have not given their part.
func (h *groupHub) missing() (out []int) {
	for rank, part := range h.parts {
		if _, lost := h.lostBy[rank]; part == nil && !lost {
			out = append(out, rank)
		}
	}
	return out
}

// leaveBehind continues without a rank.
func (h *groupHub) leaveBehind(rank int, why string) {
	if m := h.ranks[rank]; m != nil {
		m.dismiss(frameLeave, []byte("it is taken for lost: "+why), lingerTime)
	}
	h.lose(rank, why, true)
}

func (h *groupHub) joinData(rank int) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rank < 0 || rank >= h.size {
		return nil
	}
	return h.heres[rank]
}

func (h *groupHub) losses() map[int]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.lostBy)
}

// address returns the address at which the others reach this rank.
func (h *groupHub) address() netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	var conns []net.Conn
	for _, m := range h.ranks {
		if m != nil {
			conns = append(conns, m.conn)
		}
	}
	return ownAddr(h.id, h.o, conns)
}

func (h *groupHub) stop() { h.leave(nil) }

// leave tells all ranks that this rank ends, and why.
func (h *groupHub) leave(why []byte) {
	h.deaths.stop()
	h.end(closeTime, func(*arrival) (meet.Kind, []byte) { return frameLeave, why })
}
