//go:build cgo

package netplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/rendezvous"
)

// An Endpoint is a rank's side of a plugin's network. Its methods may be called
// by many goroutines.
type Endpoint struct {
	opt    Options
	name   string // the plugin's
	info   []byte
	point  *rendezvous.Point
	worker *worker

	ctx    context.Context // done by Close: nothing new begins
	cancel context.CancelFunc
	accept context.Context // done when Close waits no more for what peers have begun
	giveUp context.CancelFunc
	dials  sync.WaitGroup // Tx calls
	wg     sync.WaitGroup // watchers
	stuck  atomic.Bool    // a call of the plugin's has not returned

	mu     sync.Mutex
	closed bool
	tx     []*Tx
	rx     map[rxKey]*Rx
}

type rxKey struct{ peer, channel int }

var _ transport.Endpoint = (*Endpoint)(nil)

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
	for _, d := range opt.Net.Devices() {
		if most := LongestMessage(d.MaxBytes); most > 0 {
			opt.MaxMessage = min(opt.MaxMessage, most)
		}
	}
	if opt.Logf == nil {
		opt.Logf = func(string, ...any) {}
	}
	e := &Endpoint{opt: opt, name: opt.Net.Library().Name(), rx: map[rxKey]*Rx{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.accept, e.giveUp = context.WithCancel(context.Background())
	e.worker = newWorker()
	var err error
	e.point, err = rendezvous.Listen(rendezvous.Options{
		Rank: opt.Rank, Comm: append([]byte("netplugin "), opt.Comm...), Key: opt.Key, Addrs: opt.Addrs, Admit: e.admit, Timeout: opt.Timeout, Logf: opt.Logf,
	})
	if err != nil {
		e.cancel()
		e.giveUp()
		e.worker.end()
		opt.Net.Close()
		return nil, fmt.Errorf("network plugin %s: %w", e.name, err)
	}
	e.info = info{opt.MaxMessage, e.point.Info(), e.name}.marshal()
	return e, nil
}

// Name is the plugin's.
func (e *Endpoint) Name() string { return e.name }

// Info holds the plugin's name and where the endpoint listens. It is not
// secret.
func (e *Endpoint) Info() []byte { return e.info }

// Reach reports whether the peer has the same plugin, and can be dialed.
func (e *Endpoint) Reach(peer int, data []byte) error {
	i, err := e.infoOf(peer, data)
	if err != nil {
		return err
	}
	if err := e.point.Reach(i.point); err != nil {
		return fmt.Errorf("network plugin %s: rank %d: %w", e.name, peer, err)
	}
	return nil
}

func (e *Endpoint) infoOf(peer int, data []byte) (info, error) {
	i, err := parseInfo(data)
	if err != nil {
		return i, fmt.Errorf("network plugin %s: info of rank %d: %w", e.name, peer, err)
	}
	if i.plugin != e.name {
		return i, fmt.Errorf("rank %d has the network plugin %s, this rank %s", peer, i.plugin, e.name)
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
		e.rx[k] = &Rx{conn: conn{e: e, peer: peer, channel: channel, maxMessage: maxMessage}}
	}
	return e.rx[k]
}

// goodbyePatience is how long Close waits for what is under way: a peer that
// lives answers within a millisecond. After a fault it may be one that does not.
const (
	goodbyePatience = 5 * time.Second
	acceptPatience  = time.Second // for connections that have just begun
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
	// A peer that is connecting does not know that nobody wants to hear it.
	late := time.AfterFunc(acceptPatience, e.giveUp)
	e.dials.Wait()
	e.point.Close()
	late.Stop()
	e.giveUp()

	var settles []func() bool
	for _, t := range e.tx {
		t.leave()
		settles = append(settles, t.settle)
	}
	for _, r := range e.rx {
		r.leave()
		settles = append(settles, r.settle)
	}
	patience := goodbyePatience
	if e.opt.Fault.Err() != nil {
		patience = faultPatience
	}
	e.settle(settles, patience)
	e.worker.end()
	for _, t := range e.tx {
		t.free()
	}
	for _, r := range e.rx {
		r.free()
	}
	e.wg.Wait()
	if e.stuck.Load() { // in a call that uses it
		return nil
	}
	return e.opt.Net.Close()
}

// settle waits for jobs, for so long.
func (e *Endpoint) settle(jobs []func() bool, patience time.Duration) {
	ends := make(chan struct{}, len(jobs))
	for _, job := range jobs {
		e.worker.add(func() bool {
			done := job()
			if done {
				ends <- struct{}{}
			}
			return done
		})
	}
	late := time.After(patience)
	for range jobs {
		select {
		case <-ends:
		case <-late:
			e.opt.Logf("network plugin %s: peers do not answer the goodbye within %v", e.name, patience)
			return
		}
	}
}

// do repeats a step of a plugin's until it is done or fails, or ctx is done, on
// a thread of its own. Calls must not block, by the interface; there are plugins
// whose accept does. When one does not return in time, it is left behind with
// all that it may use.
func (e *Endpoint) do(ctx context.Context, step func() (done bool, err error)) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended <- repeat(ctx, step)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(stuckPatience):
		e.stuck.Store(true)
		return fmt.Errorf("%w: %w", errStuck, context.Cause(ctx))
	}
}

// stuckPatience is how long a call may take after its result is of no use any
// more.
const stuckPatience = time.Second

// errStuck is about a plugin's call that does not return.
var errStuck = errors.New("a call of the plugin, which must not block, does not return")

func repeat(ctx context.Context, step func() (done bool, err error)) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if done, err := step(); done || err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

// errVanished is about a peer that is lost while a connection begins.
var errVanished = errors.New("it hung up while the plugin connected")
