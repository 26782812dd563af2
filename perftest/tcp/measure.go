package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// A measurement is the caller's side of a measurement.
type measurement struct {
	addr    string
	token   []byte
	o       Options
	doing   string // current step, for errors
	session sessionID
	control *net.TCPConn

	mu     sync.Mutex
	conns  []*net.TCPConn // all connections
	closed bool
}

// hangUp closes all connections immediately.
func (m *measurement) hangUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	cut(m.conns)
}

// dial opens a connection and sends its purpose.
func (m *measurement) dial(ctx context.Context, what claim) (*net.TCPConn, error) {
	what.session = m.session
	call := meet.Caller{Protocol: protocol, Secret: m.token, Claim: what.encode()}
	call.Dialer.SetMultipathTCP(false)
	if a := m.o.LocalAddr; a.IsValid() {
		call.Dialer.LocalAddr = &net.TCPAddr{IP: a.AsSlice(), Zone: a.Zone()}
	}
	nc, _, err := call.Dial(ctx, m.addr)
	if err != nil {
		return nil, err
	}
	c := nc.(*net.TCPConn)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, c)
	if m.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

func (m *measurement) run(ctx context.Context) (r Result, err error) {
	rand.Read(m.session[:])
	m.doing = "connecting"
	if m.control, err = m.dial(ctx, claim{}); err != nil {
		return r, err
	}
	m.doing = "asking for a measurement"
	until, _ := ctx.Deadline()
	if err := meet.WriteFrame(m.control, frameRequest, m.o.request(time.Until(until)).encode()); err != nil {
		return r, err
	}
	if _, err := expect(m.control, frameAccepted); err != nil {
		return r, err
	}
	m.doing = fmt.Sprintf("opening %d streams", 2*m.o.Streams)
	lanes, err := m.open(ctx)
	if err != nil {
		return r, err
	}
	if _, err := expect(m.control, frameReady); err != nil {
		return r, err
	}
	if m.o.Both {
		m.doing = "measuring both ways"
		here, there, err := m.measure(both, lanes, until)
		return Result{Forward: flow(there.received, here.sent), Back: flow(here.received, there.sent)}, err
	}
	m.doing = "measuring to it"
	here, there, err := m.measure(forward, lanes, until)
	if err != nil {
		return r, err
	}
	r.Forward = flow(there.received, here.sent)
	m.doing = "measuring from it"
	here, there, err = m.measure(back, lanes, until)
	r.Back = flow(here.received, there.sent)
	return r, err
}

// open opens the streams of both directions at once.
func (m *measurement) open(ctx context.Context) (map[direction][]*net.TCPConn, error) {
	lanes := map[direction][]*net.TCPConn{}
	errs := make([]error, 2*m.o.Streams)
	var wg sync.WaitGroup
	for i, d := range []direction{forward, back} {
		lane := make([]*net.TCPConn, m.o.Streams)
		lanes[d] = lane
		for k := range lane {
			wg.Go(func() { lane[k], errs[i*m.o.Streams+k] = m.dial(ctx, claim{direction: d, stream: k}) })
		}
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return lanes, nil
}

// measure measures the given directions at once and returns the results of both sides.
func (m *measurement) measure(d direction, lanes map[direction][]*net.TCPConn, until time.Time) (here, there result, err error) {
	r := m.o.request(0)
	if err := meet.WriteFrame(m.control, frameRun, []byte{byte(d)}); err != nil {
		return here, there, err
	}
	var wg sync.WaitGroup
	var broken error
	if d&forward != 0 {
		wg.Go(func() { here.sent = send(lanes[forward], r) })
	}
	if d&back != 0 {
		wg.Go(func() { here.received, broken = receive(lanes[back], r, until) })
	}
	b, err := expect(m.control, frameResult)
	if err != nil {
		m.hangUp()
		wg.Wait()
		return here, there, err
	}
	wg.Wait()
	if broken != nil {
		return here, there, broken
	}
	if there, err = decodeResult(b); err == nil && d&forward != 0 && there.bytes == 0 {
		err = errors.New("it sent nonsense: a result without what it received")
	}
	return here, there, err
}
