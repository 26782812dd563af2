package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/shm"
)

// Links are a rank's connections to the others: host.Links. They are opened when a plan first needs
// them and stay open until Close. Only the goroutine that runs an operation uses them.
type Links struct {
	*Session
	lane     string
	channels int           // of collectives; Sends and Recvs use one more
	Tuner    *choose.Tuner // nil with one rank
	Waiter   host.Waiter   // how the rank waits for messages; nil with one rank
	shm      *shm.Endpoint
	net      transport.Endpoint // nil if shm reaches all ranks
	netName  string
	collNet  *collNet // what the network reduces; nil with one rank
	infos    []peerInfo
	shmInfos [][]byte // for messages to all ranks at once; nil unless shm reaches all

	tx     []map[int]transport.Tx // by channel, then peer
	rx     []map[int]transport.Rx
	mtx    map[int]transport.Tx
	mrx    map[[2]int]transport.Rx
	plans  map[planKey]*host.Plan
	recent [op.NumCollectives]recentPlan
}

// openDeadline limits the time to open a connection.
const openDeadline = 30 * time.Second

// peerInfo is what a rank knows about another one.
type peerInfo struct {
	shm, net []byte
	near     bool // reached by shared memory
}

func (l *Links) init() {
	n := l.channels + 1
	l.tx, l.rx = make([]map[int]transport.Tx, n), make([]map[int]transport.Rx, n)
	for i := range n {
		l.tx[i], l.rx[i] = map[int]transport.Tx{}, map[int]transport.Rx{}
	}
	l.plans = map[planKey]*host.Plan{}
	l.mtx, l.mrx = map[int]transport.Tx{}, map[[2]int]transport.Rx{}
}

func (l *Links) endpoint(peer int) (transport.Endpoint, []byte, error) {
	p := &l.infos[peer]
	switch {
	case p.near:
		return l.shm, p.shm, nil
	case l.net != nil:
		return l.net, p.net, nil
	}
	return nil, nil, fmt.Errorf("no transport reaches rank %d", peer)
}

// Tx implements host.Links.
func (l *Links) Tx(peer, channel int) (transport.Tx, error) {
	if t, ok := l.tx[channel][peer]; ok {
		return t, nil
	}
	e, info, err := l.endpoint(peer)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(l.cfg.Broken, openDeadline)
	defer cancel()
	t, err := e.Tx(ctx, peer, info, channel)
	if err != nil {
		return nil, l.unconnected(e, peer, err)
	}
	l.tx[channel][peer] = t
	return t, nil
}

// Rx implements host.Links.
func (l *Links) Rx(peer, channel int) (transport.Rx, error) {
	if r, ok := l.rx[channel][peer]; ok {
		return r, nil
	}
	e, info, err := l.endpoint(peer)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(l.cfg.Broken, openDeadline)
	defer cancel()
	r, err := e.Rx(ctx, peer, info, channel)
	if err != nil {
		return nil, l.unconnected(e, peer, err)
	}
	l.rx[channel][peer] = r
	return r, nil
}

// unconnected returns the error of a connection that could not be opened: this rank's own, if it
// lacks something, and what the peer has left for, if that becomes known.
func (l *Links) unconnected(e transport.Endpoint, peer int, err error) error {
	if lack := transport.Lack(err); lack != nil {
		return fmt.Errorf("%s: connecting to rank %d: %w", e.Name(), peer, lack)
	}
	select {
	case <-l.cfg.Broken.Done():
		return context.Cause(l.cfg.Broken)
	case <-time.After(transport.Late):
	}
	return &transport.PeerError{Rank: peer, By: l.cfg.Rank, What: e.Name() + ": connecting: " + err.Error()}
}

// MultiTx implements host.Links.
func (l *Links) MultiTx(channel int) (transport.Tx, error) {
	if l.shmInfos == nil {
		return nil, errNoMulticast
	}
	t, err := l.mtx[channel], error(nil)
	if t == nil {
		if t, err = l.shm.MultiTx(context.Background(), l.shmInfos, channel); err != nil {
			return nil, err
		}
		l.mtx[channel] = t
	}
	return t, err
}

// MultiRx implements host.Links.
func (l *Links) MultiRx(from, channel int) (transport.Rx, error) {
	if l.shmInfos == nil {
		return nil, errNoMulticast
	}
	k := [2]int{from, channel}
	r, err := l.mrx[k], error(nil)
	if r == nil {
		if r, err = l.shm.MultiRx(context.Background(), from, l.shmInfos, channel); err != nil {
			return nil, err
		}
		l.mrx[k] = r
	}
	return r, err
}

// pairLinks are the connections of Sends and Recvs. Collectives do not use them, so that both may be
// under way at once.
type pairLinks struct{ l *Links }

func (p *pairLinks) Tx(peer, _ int) (transport.Tx, error) { return p.l.Tx(peer, p.l.channels) }
func (p *pairLinks) Rx(peer, _ int) (transport.Rx, error) { return p.l.Rx(peer, p.l.channels) }
func (p *pairLinks) MultiTx(int) (transport.Tx, error)    { return nil, errNoMulticast }
func (p *pairLinks) MultiRx(int, int) (transport.Rx, error) {
	return nil, errNoMulticast
}

func (p *pairLinks) Network() (transport.Reducer, transport.Rx, error) {
	return nil, nil, errNoCollNet
}

var errNoMulticast = errors.New("no message reaches all ranks at once")

// Pending returns a message that has arrived but was not received.
func (l *Links) Pending() (peer int, h transport.Header, ok bool) {
	for _, byPeer := range l.rx {
		for p, r := range byPeer {
			if _, h, ok := r.Peek(); ok {
				return p, h, true
			}
		}
	}
	for k, r := range l.mrx {
		if _, h, ok := r.Peek(); ok {
			return k[0], h, true
		}
	}
	return 0, h, false
}

// String says which transports reach the other ranks.
func (l *Links) String() string {
	near := 0
	for i := range l.infos {
		if l.infos[i].near {
			near++
		}
	}
	return fmt.Sprintf("via SHM %d via %s %d channels %d", near, cmp.Or(l.netName, socketNet), max(0, len(l.infos)-1-near), l.channels)
}

// Close closes all connections.
func (l *Links) Close() error {
	errs := []error{l.collNet.close()}
	if l.net != nil {
		errs = append(errs, l.net.Close())
	}
	if l.shm != nil {
		errs = append(errs, l.shm.Close())
	}
	return errors.Join(errs...)
}
