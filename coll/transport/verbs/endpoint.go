//go:build cgo && linux

package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/rendezvous"
)

// An Endpoint is a rank's side of the network. Its methods may be called by
// many goroutines.
type Endpoint struct {
	opt   Options
	info  []byte
	point *rendezvous.Point

	ctx    context.Context // done by Close: nothing new begins
	cancel context.CancelFunc
	dials  sync.WaitGroup // Tx calls
	wg     sync.WaitGroup // watchers, the inspector

	mu     sync.Mutex
	closed bool
	tx     []*Tx
	rx     map[rxKey]*Rx
}

type rxKey struct{ peer, channel int }

var _ transport.Endpoint = (*Endpoint)(nil)

func (o *Options) check() error {
	p := &o.Params
	switch {
	case o.Net == nil || len(o.Net.ports) == 0:
		return errors.New("verbs: there is no port")
	case o.Fault == nil:
		return errors.New("verbs: there is no Fault to report to")
	case o.MaxMessage < 0 || o.MaxMessage > maxMaxMessage:
		return fmt.Errorf("verbs: messages of %d bytes; want at most %d", o.MaxMessage, maxMaxMessage)
	case o.First < 0:
		return fmt.Errorf("verbs: port %d is negative", o.First)
	case p.QPs < 0 || p.QPs > MaxQPs:
		return fmt.Errorf("verbs: %d queue pairs; want at most %d", p.QPs, MaxQPs)
	case p.Timeout < 1 || p.Timeout > 31 || p.Retries < 0 || p.Retries > 7 || p.ServiceLevel < 0 || p.ServiceLevel > 15 || p.TrafficClass < 0 || p.TrafficClass > 255 || p.PKeyIndex < 0 || p.PKeyIndex > 0xffff:
		return fmt.Errorf("verbs: one of these is out of its bounds: %+v", *p)
	}
	return nil
}

// Open makes a rank's endpoint. It is to be closed; what Options.Fault calls as
// its Hook must not do it.
func Open(opt Options) (*Endpoint, error) {
	if err := opt.check(); err != nil {
		if opt.Net != nil {
			opt.Net.Close()
		}
		return nil, err
	}
	if opt.MaxMessage == 0 {
		opt.MaxMessage = DefaultMaxMessage
	}
	for _, p := range opt.Net.ports {
		if p.MaxMessage > headerSize {
			opt.MaxMessage = int(min(uint32(opt.MaxMessage), p.MaxMessage-headerSize))
		}
	}
	if opt.Logf == nil {
		opt.Logf = func(string, ...any) {}
	}
	e := &Endpoint{opt: opt, rx: map[rxKey]*Rx{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	var err error
	e.point, err = rendezvous.Listen(rendezvous.Options{
		Rank: opt.Rank, Comm: append([]byte("verbs "), opt.Comm...), Key: opt.Key, Addrs: opt.Addrs, Admit: e.admit, Timeout: opt.Timeout, Logf: opt.Logf,
	})
	if err != nil {
		e.cancel()
		opt.Net.Close()
		return nil, fmt.Errorf("IB: %w", err)
	}
	e.info = info{opt.MaxMessage, e.point.Info()}.marshal()
	opt.Net.listen(func(f string, a ...any) { opt.Logf("IB: "+f, a...) }, func(err error) { opt.Fault.Set(err) })
	e.wg.Go(e.inspect)
	return e, nil
}

// Name is NCCL's for it.
func (e *Endpoint) Name() string { return Name }

// Info says where the endpoint listens. It is not secret.
func (e *Endpoint) Info() []byte { return e.info }

// Reach reports whether the peer can be dialed. Whether its ports and ours are
// in one network is found out when they connect.
func (e *Endpoint) Reach(peer int, data []byte) error {
	i, err := e.infoOf(peer, data)
	if err != nil {
		return err
	}
	if err := e.point.Reach(i.point); err != nil {
		return fmt.Errorf("IB: rank %d: %w", peer, err)
	}
	return nil
}

func (e *Endpoint) infoOf(peer int, data []byte) (info, error) {
	i, err := parseInfo(data)
	if err != nil {
		return i, fmt.Errorf("IB: info of rank %d: %w", peer, err)
	}
	i.maxMessage = min(i.maxMessage, e.opt.MaxMessage)
	return i, nil
}

// Rx returns the receiving end of a connection, which the peer opens whenever
// it does.
func (e *Endpoint) Rx(_ context.Context, peer int, data []byte, channel int) (transport.Rx, error) {
	i, err := e.infoOf(peer, data)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, net.ErrClosed
	}
	return e.rxLocked(peer, channel, i.maxMessage), nil
}

// rxLocked finds or makes a receiving end.
func (e *Endpoint) rxLocked(peer, channel, maxMessage int) *Rx {
	k := rxKey{peer, channel}
	if e.rx[k] == nil {
		e.rx[k] = &Rx{conn: newConn(e, peer, channel, maxMessage)}
	}
	return e.rx[k]
}

// inspection is how often requests are looked at that nobody waits for: a rank
// that only receives now has to hear that what it sent has failed.
const inspection = 250 * time.Millisecond

// inspect looks at all connections now and then.
func (e *Endpoint) inspect() {
	tick := time.NewTicker(inspection)
	defer tick.Stop()
	var list []end
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
		}
		list = e.ends(list[:0])
		for _, c := range list {
			c.inspect()
		}
	}
}

// An end is one of a connection.
type end interface {
	inspect()
	part()
	base() *conn
	end()
}

func (c *conn) base() *conn { return c }

// ends adds all that there are to list.
func (e *Endpoint) ends(list []end) []end {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tx {
		list = append(list, t)
	}
	for _, r := range e.rx {
		list = append(list, r)
	}
	return list
}

// How long Close waits for the goodbyes of peers: one that lives answers within
// a millisecond. After a fault it may be one that does not.
const (
	goodbyePatience = 5 * time.Second
	faultPatience   = time.Second
)

// Close tells peers that this rank leaves, and frees everything. Messages that
// were sent (Idle) arrive still. Those who use a connection at the moment see it
// silent.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.cancel()
	e.mu.Unlock()
	e.dials.Wait()
	e.point.Close()

	patience := goodbyePatience
	if e.opt.Fault.Err() != nil {
		patience = faultPatience
	}
	all := e.ends(nil)
	e.leave(all, patience)
	for _, c := range all {
		c.end()
	}
	e.wg.Wait()
	return e.opt.Net.Close()
}

// leave says goodbye on all connections, and waits for the peers'.
func (e *Endpoint) leave(all []end, patience time.Duration) {
	var wg sync.WaitGroup
	for _, c := range all {
		c.base().shut()
		wg.Go(c.part)
	}
	wg.Wait()
	late := time.After(patience)
	for _, c := range all {
		b := c.base()
		if b.wire == nil { // nobody has dialed
			continue
		}
		select {
		case <-b.heard:
		case <-late:
			e.opt.Logf("IB: rank %d does not answer the goodbye within %v", b.peer, patience)
			return
		}
	}
}
