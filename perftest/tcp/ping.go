package tcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// PingOptions are those of pings. The zero value is usable.
type PingOptions struct {
	Duration time.Duration // 0 is 100 ms
	Interval time.Duration // between packets; 0 is 1 ms
	Bytes    int           // of a packet's payload; 0 is 64, the least
}

const (
	minPing  = 64
	maxPing  = 9000
	maxPings = 1 << 20
	// pingWait is how long an answer may be under way before its packet counts as lost.
	pingWait = 250 * time.Millisecond
)

func (o PingOptions) check() (PingOptions, error) {
	o.Duration = cmp.Or(o.Duration, 100*time.Millisecond)
	o.Interval = cmp.Or(o.Interval, time.Millisecond)
	o.Bytes = cmp.Or(o.Bytes, minPing)
	switch {
	case o.Interval < 10*time.Microsecond || o.Duration < o.Interval || o.Duration > maxDuration || o.Duration/o.Interval > maxPings:
		return o, fmt.Errorf("pings each %v for %v; up to %d, at least 10µs apart, for at most %v are possible", o.Interval, o.Duration, maxPings, maxDuration)
	case o.Bytes < minPing || o.Bytes > maxPing:
		return o, fmt.Errorf("pings of %d bytes; %d to %d are possible", o.Bytes, minPing, maxPing)
	}
	return o, nil
}

// Pings are UDP packets that the server answered, one by one, while neither side sent anything else
// to the other.
type Pings struct {
	Forward Packets       // from the host that called Ping
	Back    Packets       // the answers
	RTT     time.Duration // median round trip
	Tail    time.Duration // longest one
}

// Packets is what became of packets in one direction.
type Packets struct {
	Sent    int
	Lost    int // did not arrive within a quarter of a second
	Twice   int // arrived more than once
	Swapped int // arrived after one that was sent later
	// Outage is the time between the packets around the longest run of lost ones; 0: none was lost.
	Outage time.Duration
	// Late is the greatest delay in this direction, over the least one.
	Late time.Duration
}

// A packet is: key, number, the sender's time, the answerer's time, and zeros.
const (
	keyBytes   = 16
	pingHeader = keyBytes + 4 + 8 + 8
)

// Ping measures small packets between this host and the server at an address, "ip:port". An error
// says that nothing was measured; lost packets are none.
func Ping(ctx context.Context, addr string, token []byte, o PingOptions) (Pings, error) {
	o, err := o.check()
	if err != nil {
		return Pings{}, fmt.Errorf("pings to %s: %w", addr, err)
	}
	limit := o.Duration + pingWait + meet.Patience
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	m := &measurement{addr: addr, token: token}
	defer m.hangUp()
	defer context.AfterFunc(ctx, m.hangUp)()
	p, err := m.ping(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Pings{}, fmt.Errorf("pings to %s: %s: %w", addr, m.doing, err)
	}
	return p, nil
}

func (m *measurement) ping(ctx context.Context, o PingOptions) (p Pings, err error) {
	rand.Read(m.session[:])
	m.doing = "connecting"
	if m.control, err = m.dial(ctx, claim{}); err != nil {
		return p, err
	}
	m.doing = "asking for answers"
	if err := meet.WriteFrame(m.control, framePing, binary.BigEndian.AppendUint64(nil, uint64(o.Duration+2*pingWait))); err != nil {
		return p, err
	}
	b, err := expect(m.control, framePingAt)
	if err != nil {
		return p, err
	}
	if len(b) != 2+keyBytes {
		return p, errors.New("it sent nonsense: where it answers pings")
	}
	m.doing = "sending packets"
	remote := m.control.RemoteAddr().(*net.TCPAddr)
	c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: remote.IP, Zone: remote.Zone, Port: int(binary.BigEndian.Uint16(b))})
	if err != nil {
		return p, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	seen := pinger{o: o, key: [keyBytes]byte(b[2:]), begun: time.Now()}
	answers := make(chan error, 1)
	go func() { answers <- seen.listen(c) }()
	sent := seen.send(ctx, c)
	if err := <-answers; err != nil {
		return p, err
	}
	if err := ctx.Err(); err != nil {
		return p, err
	}
	m.doing = "asking what arrived"
	if err := meet.WriteFrame(m.control, framePing, nil); err != nil {
		return p, err
	}
	if b, err = expect(m.control, framePinged); err != nil {
		return p, err
	}
	there, err := decodeArrived(b, sent)
	if err != nil {
		return p, err
	}
	return seen.result(sent, there), nil
}

// A pinger is the sender of pings, and hears the answers.
type pinger struct {
	o     PingOptions
	key   [keyBytes]byte
	begun time.Time
	got   arrived
	out   []time.Duration // by number: delay there, on two clocks; 0: not heard of
	back  []time.Duration
	trip  []time.Duration
}

func (s *pinger) count() int { return int(s.o.Duration / s.o.Interval) }

// send sends all packets, and returns how many it tried to.
func (s *pinger) send(ctx context.Context, c *net.UDPConn) int {
	b := make([]byte, s.o.Bytes)
	copy(b, s.key[:])
	for i := range s.count() {
		if wait := time.Until(s.begun.Add(time.Duration(i) * s.o.Interval)); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			return i
		}
		binary.BigEndian.PutUint32(b[keyBytes:], uint32(i))
		binary.BigEndian.PutUint64(b[keyBytes+4:], uint64(time.Since(s.begun)))
		_, _ = c.Write(b) // a packet that cannot be sent is lost
	}
	c.SetReadDeadline(time.Now().Add(pingWait))
	return s.count()
}

// listen takes answers until all are there, or the read deadline.
func (s *pinger) listen(c *net.UDPConn) error {
	n := s.count()
	s.got = arrived{seen: make([]uint64, (n+63)/64)}
	s.out, s.back, s.trip = make([]time.Duration, n), make([]time.Duration, n), make([]time.Duration, n)
	b := make([]byte, maxPing)
	for s.got.distinct < n {
		size, err := c.Read(b)
		now := time.Since(s.begun)
		switch {
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil && isTimeout(err):
			return nil
		case err != nil: // an earlier packet was refused: it is lost
			continue
		case size < pingHeader || !bytes.Equal(b[:keyBytes], s.key[:]):
			continue
		}
		i := int(binary.BigEndian.Uint32(b[keyBytes:]))
		if i >= n || !s.got.add(i) {
			continue
		}
		sent, there := time.Duration(binary.BigEndian.Uint64(b[keyBytes+4:])), time.Duration(binary.BigEndian.Uint64(b[keyBytes+12:]))
		s.out[i], s.back[i], s.trip[i] = there-sent, now-there, max(now-sent, 1)
	}
	return nil
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func (s *pinger) result(sent int, there arrived) (p Pings) {
	p.Forward = Packets{Sent: sent, Lost: sent - there.distinct, Twice: there.twice, Swapped: there.swapped, Outage: there.outage(sent, s.o.Interval), Late: s.spread(s.out)}
	// What did not arrive there has no answer.
	p.Back = Packets{Sent: there.distinct, Lost: max(0, there.distinct-s.got.distinct), Twice: s.got.twice, Swapped: s.got.swapped, Late: s.spread(s.back)}
	if p.Back.Lost > 0 {
		answered := arrived{seen: slices.Clone(s.got.seen)}
		for i := range answered.seen {
			answered.seen[i] |= ^there.seen[i]
		}
		p.Back.Outage = answered.outage(sent, s.o.Interval)
	}
	trips := slices.DeleteFunc(slices.Clone(s.trip), func(d time.Duration) bool { return d == 0 })
	if len(trips) > 0 {
		slices.Sort(trips)
		p.RTT, p.Tail = trips[len(trips)/2], trips[len(trips)-1]
	}
	return p
}

// spread returns the difference of the greatest and the least of the delays of answered packets.
func (s *pinger) spread(delays []time.Duration) time.Duration {
	var low, high time.Duration
	first := true
	for i, d := range delays {
		if s.trip[i] == 0 {
			continue
		}
		if first {
			low, high, first = d, d, false
		}
		low, high = min(low, d), max(high, d)
	}
	return high - low
}

// arrived is which of numbered packets arrived, and how.
type arrived struct {
	seen                     []uint64 // a bit a packet
	distinct, twice, swapped int
	last                     int // the highest number so far, plus one
}

// add takes a packet, and reports whether it is the first of this number.
func (a *arrived) add(i int) bool {
	if i/64 >= len(a.seen) {
		return false
	}
	bit := uint64(1) << (i % 64)
	if a.seen[i/64]&bit != 0 {
		a.twice++
		return false
	}
	a.seen[i/64] |= bit
	a.distinct++
	if i+1 < a.last {
		a.swapped++
	}
	a.last = max(a.last, i+1)
	return true
}

// outage returns the time between the packets around the longest run of lost ones, of n packets.
func (a *arrived) outage(n int, interval time.Duration) time.Duration {
	longest, run := 0, 0
	for i := range n {
		if run++; a.seen[i/64]&(1<<(i%64)) != 0 {
			run = 0
		}
		longest = max(longest, run)
	}
	if longest == 0 {
		return 0
	}
	return time.Duration(longest+1) * interval
}

func (a *arrived) encode() []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(a.twice))
	out = binary.BigEndian.AppendUint32(out, uint32(a.swapped))
	for _, w := range a.seen {
		out = binary.BigEndian.AppendUint64(out, w)
	}
	return out
}

// decodeArrived reads what the server saw of n packets.
func decodeArrived(b []byte, n int) (a arrived, err error) {
	words := (n + 63) / 64
	if len(b) < 8 || (len(b)-8)%8 != 0 || (len(b)-8)/8 > words {
		return a, fmt.Errorf("it sent nonsense: %d bytes on which of %d packets arrived", len(b), n)
	}
	a.twice, a.swapped = int(binary.BigEndian.Uint32(b)), int(binary.BigEndian.Uint32(b[4:]))
	a.seen = make([]uint64, words)
	for i := range (len(b) - 8) / 8 {
		a.seen[i] = binary.BigEndian.Uint64(b[8+8*i:])
	}
	for i := range 64 * words {
		if a.seen[i/64]&(1<<(i%64)) == 0 {
			continue
		}
		if i >= n {
			return a, fmt.Errorf("it sent nonsense: packet %d arrived, of %d", i+1, n)
		}
		a.distinct++
	}
	return a, nil
}

// answer answers a caller's pings until it asks what arrived.
func (s *Server) answer(c *net.TCPConn, b []byte) error {
	if len(b) != 8 {
		return fmt.Errorf("a request of %d bytes for pings", len(b))
	}
	limit := time.Duration(binary.BigEndian.Uint64(b))
	if limit <= 0 || limit > maxDuration+2*pingWait {
		return fmt.Errorf("pings for %v; at most %v are possible", limit, maxDuration)
	}
	local := c.LocalAddr().(*net.TCPAddr)
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: local.IP, Zone: local.Zone})
	if err != nil {
		return err
	}
	defer u.Close()
	var key [keyBytes]byte
	rand.Read(key[:])
	at := binary.BigEndian.AppendUint16(nil, uint16(u.LocalAddr().(*net.UDPAddr).Port))
	if err := meet.WriteFrame(c, framePingAt, append(at, key[:]...)); err != nil {
		return err
	}
	c.SetDeadline(time.Now().Add(limit + s.max.handshake))
	got, done := arrived{seen: make([]uint64, maxPings/64)}, make(chan struct{})
	peer, _ := netip.AddrFromSlice(c.RemoteAddr().(*net.TCPAddr).IP)
	go func() {
		defer close(done)
		got.answer(u, key, peer.Unmap())
	}()
	_, err = expect(c, framePing)
	u.Close()
	<-done
	if err != nil {
		return err
	}
	got.seen = got.seen[:(got.last+63)/64]
	return meet.WriteFrame(c, framePinged, got.encode())
}

// answer sends each packet back, the first of each number, with this host's time.
func (a *arrived) answer(u *net.UDPConn, key [keyBytes]byte, peer netip.Addr) {
	b := make([]byte, maxPing)
	begun := time.Now()
	for {
		n, from, err := u.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < pingHeader || !bytes.Equal(b[:keyBytes], key[:]) || from.Addr().Unmap().WithZone("") != peer {
			continue
		}
		if a.add(int(binary.BigEndian.Uint32(b[keyBytes:]))) {
			binary.BigEndian.PutUint64(b[keyBytes+12:], uint64(time.Since(begun)))
			_, _ = u.WriteToUDPAddrPort(b[:n], from)
		}
	}
}
