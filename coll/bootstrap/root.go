package bootstrap

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
	"github.com/assay-hpc/assay/internal/words"
)

// maxRanks bounds how much one rank can make the root allocate.
const maxRanks = 1 << 20

// lingerTime is how long a hub waits for a rank to hang up after the last frame, so that
// the frame is not lost with the connection.
const lingerTime = 2 * time.Second

// A Root is the meeting point of the ranks of one communicator. It works by itself: it
// introduces the ranks to one another, tells all of them when one has trouble, and closes
// itself when the communicator is up, or has failed. It is not involved in what the
// communicator does afterwards.
type Root struct {
	*hub

	// Guarded by the hub's lock.
	size    int
	sizeBy  *member // the member that reported size
	members map[int]*member
	linked  int
	failed  error
	told    int         // ranks that were told of the failure
	begun   time.Time   // when the first rank joined
	overdue *time.Timer // fires if not all ranks join in time
	enough  *time.Timer // fires when all have had time to learn of the failure
}

// A member is a rank that has reported where it listens.
type member struct {
	*arrival
	addrs  []netip.AddrPort
	who    string // host and process
	linked bool
}

func (m *member) String() string { return fmt.Sprintf("rank %d (%s)", m.rank, m.who) }

// NewRoot listens on the interfaces that o admits, with a new random secret.
func NewRoot(o Options) (*Root, error) { return rootOf(opener(newRoot).anywhere(o.withDefaults())) }

// NewRootAt listens at a host and port that all ranks know beforehand, as with
// NCCL_COMM_ID. The ID is IDAt(addr, secret).
func NewRootAt(addr string, secret []byte, o Options) (*Root, error) {
	return rootOf(opener(newRoot).at(addr, secret, o.withDefaults()))
}

// rootOf returns the Root of a hub that newRoot created; nil if there is no hub.
func rootOf(h *hub, err error) (*Root, error) {
	if h == nil {
		return nil, err
	}
	return h.policy.(*Root), err
}

func newRoot(o Options, secret [secretBytes]byte) *hub {
	r := &Root{members: map[int]*member{}}
	r.hub = newHub("root", o, secret, r)
	r.ofHost, r.limit = true, maxHello
	r.gate.Lacking = r.lacking
	return r.hub
}

func (r *Root) admit(h hello) error {
	if h.purpose != toRoot || h.to != nobodyRank {
		return fmt.Errorf("it wants %q of rank %d; this is a root", byte(h.purpose), h.to)
	}
	return nil
}

func (r *Root) enter(m *arrival) {
	if r.ended {
		k, p := r.word(m)
		m.dismiss(k, p, lingerTime)
	}
}

func (r *Root) hear(arrival *arrival, k meet.Kind, p []byte) error {
	m := r.members[arrival.rank]
	known := m != nil && m.arrival == arrival
	if !known {
		m = &member{arrival: arrival}
	}
	switch {
	case k == frameHere:
		addrs, who, err := cutAddrs(p)
		if err != nil {
			return err
		}
		r.arrive(&member{arrival: arrival, addrs: addrs, who: string(who)})
	case k == frameFailed:
		text := string(p[min(1, len(p)):])
		if missing := r.missing(time.Since(r.begun).Round(time.Second)); len(r.members) < r.size && r.failed == nil {
			text += fmt.Sprintf(" (%v)", missing)
		}
		r.fail(wrapf(ErrLost, "%s gave up: %s", m, text))
	case k == frameLinked && known && !m.linked:
		m.linked = true
		if r.linked++; r.linked == r.size {
			r.finish()
		}
	default:
		r.fail(wrapf(ErrLost, "%s said something unexpected (%d)", m, k))
	}
	return nil
}

func (r *Root) lost(arrival *arrival, err error) {
	if m := r.members[arrival.rank]; m != nil && m.arrival == arrival {
		r.fail(wrapf(ErrLost, "%s was lost while joining: %s", m, meet.Brief(err)))
	} else if r.failed == nil {
		r.o.Logf("root: rank %d hung up before it said where it is: %v", arrival.rank, err)
	}
}

// arrive admits a rank, and introduces all ranks when it was the last.
func (r *Root) arrive(m *member) {
	if r.overdue == nil {
		r.begun = time.Now()
		r.overdue = r.after(r.o.Timeout, func() {
			r.fail(r.missing(r.o.Timeout))
			r.finish()
		})
		r.tellLate()
	}
	if r.failed == nil {
		err := r.check(m)
		if err == nil {
			r.members[m.rank] = m
			r.introduce()
			return
		}
		r.size = max(r.size, min(m.size, maxRanks))
		r.fail(err)
	}
	r.answerRank(m.arrival)
}

func (r *Root) introduce() {
	if len(r.members) < r.size {
		return
	}
	for rank, m := range r.members {
		var p []byte
		for _, n := range neighbours(rank, r.size) {
			p = binary.BigEndian.AppendUint32(p, uint32(n))
			p = appendAddrs(p, r.members[n].addrs)
		}
		m.send(framePeers, p)
	}
}

// tellLate says which ranks are missing, now and then.
func (r *Root) tellLate() {
	r.after(lateEvery, func() {
		if r.failed == nil {
			r.o.Warnf("root: %v", r.missing(time.Since(r.begun).Round(time.Second)))
			r.tellLate()
		}
	})
}

// after calls f later, unless the meeting is over by then.
func (r *Root) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.ended {
			f()
		}
	})
}

// check returns why m does not fit the ranks that have already joined.
func (r *Root) check(m *member) error {
	if r.sizeBy == nil && m.size > 0 && m.size <= maxRanks {
		r.size, r.sizeBy = m.size, m
	}
	switch other := r.members[m.rank]; {
	case m.size <= 0 || m.size > maxRanks:
		return wrapf(ErrDisagree, "%s says there are %d ranks; 1 to %d are possible", m, m.size, maxRanks)
	case m.size != r.size:
		return wrapf(ErrDisagree, "%s says there are %d ranks, %s says %d: all must join with one size", m, m.size, r.sizeBy, r.size)
	case m.rank < 0 || m.rank >= m.size:
		return wrapf(ErrDisagree, "%s is out of range: ranks go from 0 to %d", m, m.size-1)
	case other != nil:
		return wrapf(ErrDisagree, "rank %d joined twice: %s and %s", m.rank, other.who, m.who)
	}
	return nil
}

// fail tells all ranks of the failure. Ranks that join later are told when they join.
func (r *Root) fail(err error) {
	if r.failed != nil {
		return
	}
	r.failed = err
	r.o.Logf("root: %v", err)
	for _, m := range r.members {
		r.answerRank(m.arrival)
	}
}

func (r *Root) answerRank(m *arrival) {
	m.dismiss(frameFailed, encodeFailure(r.failed), lingerTime)
	// Not only the expected ranks can join, but also a surplus one. So the root waits a
	// moment longer.
	if r.told++; r.told >= r.size && r.enough == nil {
		r.enough = r.after(lingerTime, r.finish)
	}
}

// finish ends the meeting.
func (r *Root) finish() {
	for _, t := range []*time.Timer{r.overdue, r.enough} {
		if t != nil {
			t.Stop()
		}
	}
	r.end(lingerTime, r.word)
}

// word returns the root's last frame to a rank.
func (r *Root) word(m *arrival) (meet.Kind, []byte) {
	switch here := r.members[m.rank]; {
	case r.failed != nil:
		return frameFailed, encodeFailure(r.failed)
	case here != nil && here.arrival == m:
		return frameGo, nil
	}
	return frameFailed, encodeFailure(wrapf(ErrDisagree, "rank %d joined too late, or is one too many: the root was done with the others", m.rank))
}

// lacking ends the meeting because this process cannot accept connections.
func (r *Root) lacking(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.fail(fmt.Errorf("the root (%s): %w", whoAmI(), err))
		r.finish()
	}
}

func (r *Root) stop() {
	r.fail(wrapf(ErrClosed, "the root was closed before all ranks had joined"))
	r.finish()
}

// missing returns an error that names the ranks that are missing or not linked after so long.
func (r *Root) missing(after time.Duration) error {
	var missing, slow []int
	for rank := range r.size {
		if m := r.members[rank]; m == nil {
			missing = append(missing, rank)
		} else if !m.linked {
			slow = append(slow, rank)
		}
	}
	if len(missing) > 0 {
		return wrapf(ErrMissing, "%d of %d ranks joined within %v; missing: %s", r.size-len(missing), r.size, after, rankList(missing))
	}
	return wrapf(ErrMissing, "within %v not all ranks had links to their neighbours; not ready: %s", after, rankList(slow))
}

// rankList prints ranks as "0-3,7", the first 20 runs of them.
func rankList(ranks []int) string {
	out := words.Ranges(ranks)
	if len(out) > 20 {
		out = append(out[:20], "…")
	}
	return strings.Join(out, ",")
}
