package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

const (
	maxStreams  = 64
	maxDuration = 10 * time.Minute
	maxLimit    = time.Hour
)

// bounds are the limits on the resources that callers may use.
type bounds struct {
	handshake time.Duration // until a caller is authenticated and its streams are connected
	sessions  int           // simultaneous measurements
}

var usual = bounds{handshake: meet.Patience, sessions: 16}

// A Server measures with callers that know the token. Its methods may be called from several
// goroutines at once.
type Server struct {
	gate meet.Gate
	addr netip.AddrPort
	max  bounds
	done chan struct{} // closed by Close

	mu       sync.Mutex
	closed   bool
	conns    map[*net.TCPConn]bool // open connections that have completed the handshake
	sessions map[sessionID]*session
}

// Listen serves measurements at an address, "ip:port", until Close. Port 0 is any free port; an
// IPv6 address may have a zone.
func Listen(addr string, token []byte) (*Server, error) { return listen(addr, token, usual) }

func listen(addr string, token []byte, b bounds) (*Server, error) {
	if len(token) == 0 {
		return nil, errors.New("measuring TCP without a token: any process could fill the network")
	}
	s := &Server{max: b, done: make(chan struct{}), conns: map[*net.TCPConn]bool{}, sessions: map[sessionID]*session{}}
	s.gate = meet.Gate{
		Protocol: protocol, Secret: slices.Clone(token), Name: "measuring TCP", Patience: b.handshake,
		Admit: func(claim []byte) error { _, err := decodeClaim(claim); return err },
		Enter: func(c net.Conn, claim, _ []byte) { s.serve(c.(*net.TCPConn), claim) },
	}
	s.gate.Config.SetMultipathTCP(false)
	var err error
	if s.addr, err = s.gate.Listen(addr); err != nil {
		return nil, fmt.Errorf("measuring TCP: %w", err)
	}
	return s, nil
}

// Addr is the address at which the server listens.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Close ends all measurements and waits until all goroutines of the server have ended.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.gate.Close()
	return nil
}

func (s *Server) forget(list ...*net.TCPConn) {
	cut(list)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range list {
		delete(s.conns, c)
	}
}

// serve handles the purpose of a connection.
func (s *Server) serve(c *net.TCPConn, b []byte) {
	s.mu.Lock()
	s.conns[c] = true
	closed := s.closed
	s.mu.Unlock()
	what, _ := decodeClaim(b)
	switch {
	case closed:
	case what.direction != 0:
		if s.attach(c, what) {
			return // the session closes it
		}
	default:
		c.SetDeadline(time.Now().Add(s.max.handshake))
		if err := s.control(c, what.session); err != nil {
			s.refuse(c, err)
		}
		c.Close() // the last message is still sent
	}
	s.forget(c)
}

// refuse sends the caller the reason why there is no measurement, if it is still connected.
func (s *Server) refuse(c *net.TCPConn, why error) {
	c.SetWriteDeadline(time.Now().Add(s.max.handshake))
	text := why.Error()
	meet.WriteFrame(c, frameRefused, []byte(text[:min(len(text), maxPayload)]))
}

// A session is one measurement. The server's mutex guards the fields that change.
type session struct {
	request
	until   time.Time
	lanes   map[direction][]*net.TCPConn
	missing int           // streams that are not connected yet
	ready   chan struct{} // closed when all are
}

// open begins a session.
func (s *Server) open(id sessionID, r request) (*session, error) {
	q := &session{
		request: r, until: time.Now().Add(r.limit), missing: 2 * r.streams, ready: make(chan struct{}),
		lanes: map[direction][]*net.TCPConn{forward: make([]*net.TCPConn, r.streams), back: make([]*net.TCPConn, r.streams)},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sessions[id] != nil:
		return nil, errors.New("this measurement is being made already")
	case len(s.sessions) >= s.max.sessions:
		return nil, fmt.Errorf("%d measurements are being made, which is the most", len(s.sessions))
	}
	s.sessions[id] = q
	return q, nil
}

// end resets the remaining streams of a session. After a reset they use no memory.
func (s *Server) end(id sessionID) {
	s.mu.Lock()
	q := s.sessions[id]
	delete(s.sessions, id)
	s.mu.Unlock()
	for d := range q.lanes {
		s.forget(s.lane(q, d)...)
	}
}

// lane returns the streams of a session, and removes them from it, so that each is returned only
// once.
func (s *Server) lane(q *session, d direction) (out []*net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range q.lanes[d] {
		if c != nil {
			out = append(out, c)
		}
	}
	q.lanes[d] = nil
	return out
}

// attach adds a stream to its session.
func (s *Server) attach(c *net.TCPConn, what claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.sessions[what.session]
	if q == nil || what.stream >= len(q.lanes[what.direction]) || q.lanes[what.direction][what.stream] != nil {
		return false
	}
	c.SetDeadline(q.until)
	q.lanes[what.direction][what.stream] = c
	if q.missing--; q.missing == 0 {
		close(q.ready)
	}
	return true
}

// control handles a session, from its request until the caller disconnects. Its error is for the
// caller.
func (s *Server) control(c *net.TCPConn, id sessionID) error {
	kind, b, err := meet.ReadFrame(c, maxPayload)
	switch {
	case err != nil:
		return err
	case kind == framePing:
		return s.answer(c, b)
	case kind != frameRequest:
		return unexpected(kind, frameRequest)
	}
	r, err := decodeRequest(b)
	if err != nil {
		return err
	}
	q, err := s.open(id, r)
	if err != nil {
		return err
	}
	defer s.end(id)
	if err := meet.WriteFrame(c, frameAccepted, nil); err != nil {
		return err
	}
	wait := time.NewTimer(min(s.max.handshake, r.limit))
	defer wait.Stop()
	select {
	case <-q.ready:
	case <-wait.C:
		return fmt.Errorf("not all of %d streams connected", 2*r.streams)
	case <-s.done:
		return errors.New("the server is being closed")
	}
	c.SetDeadline(q.until)
	if err := meet.WriteFrame(c, frameReady, nil); err != nil {
		return err
	}
	for range q.lanes { // each direction is measured at most once
		b, err := expect(c, frameRun)
		if err != nil {
			return err
		}
		if len(b) != 1 || b[0] == 0 || direction(b[0]) > both {
			return fmt.Errorf("a run of %d bytes, % x", len(b), b)
		}
		res, err := s.run(q, direction(b[0]))
		if err != nil {
			return err
		}
		if err := meet.WriteFrame(c, frameResult, res.encode()); err != nil {
			return err
		}
	}
	return nil
}

// run measures the given directions at once.
func (s *Server) run(q *session, d direction) (res result, err error) {
	lanes := map[direction][]*net.TCPConn{}
	for _, one := range []direction{forward, back} {
		if d&one == 0 {
			continue
		}
		lane := s.lane(q, one)
		if lane == nil {
			return result{}, errors.New("this direction has been measured already")
		}
		defer s.forget(lane...)
		lanes[one] = lane
	}
	var wg sync.WaitGroup
	if lane := lanes[forward]; lane != nil {
		wg.Go(func() { res.received, err = receive(lane, q.request, q.until) })
	}
	if lane := lanes[back]; lane != nil {
		wg.Go(func() { res.sent = send(lane, q.request) })
	}
	wg.Wait()
	return res, err
}
