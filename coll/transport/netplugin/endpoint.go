//go:build cgo

package netplugin

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/slots"
)

// network is the plugin in the form that its endpoint uses.
type network struct {
	*Net
	stuck atomic.Bool // a call of the plugin's has not returned
}

// Open creates a rank's endpoint, with the plugin's name. The caller must close it, but
// not from the Hook of Options.Fault.
func Open(opt Options) (transport.Endpoint, error) {
	if opt.Net == nil {
		return nil, errors.New("netplugin: there is no plugin")
	}
	for _, d := range opt.Net.Devices() {
		if most := LongestMessage(d.MaxBytes); most > 0 {
			opt.Limit(most)
		}
	}
	e, err := slots.Open(&network{Net: opt.Net}, opt.Options)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (n *network) Name() string   { return n.lib.name }
func (n *network) String() string { return "network plugin " + n.lib.name }
func (n *network) Devices() int   { return len(n.devices) }

func (n *network) Tx(c *slots.Conn) slots.Sender   { return &sender{conn{Conn: c, n: n}} }
func (n *network) Rx(c *slots.Conn) slots.Receiver { return &receiver{conn{Conn: c, n: n}} }

// Close does not touch the plugin if a stuck call still uses it.
func (n *network) Close() error {
	if n.stuck.Load() {
		return nil
	}
	return n.Net.Close()
}

// handleOf returns the handle in an answer.
func handleOf(b []byte) (handle [HandleSize]byte, err error) {
	if len(b) != HandleSize {
		return handle, fmt.Errorf("the receiver's handle has %d bytes; want %d", len(b), HandleSize)
	}
	return [HandleSize]byte(b), nil
}

// orVanished returns err, or ErrVanished if err is nil and the peer has hung up.
func (c *conn) orVanished(err error) error {
	if err == nil && c.Vanished() {
		return slots.ErrVanished
	}
	return err
}

// Pauses between unsuccessful steps: a plugin needs tens of microseconds to milliseconds
// to connect.
const (
	firstPause = 5 * time.Microsecond
	lastPause  = 500 * time.Microsecond
)

// do repeats a step of the plugin until it is done or fails, or ctx is done, on its own
// thread. The interface says that calls must not block, but the accept of some plugins
// does. A call that does not return in time is abandoned, with everything that it may
// use.
func (n *network) do(ctx context.Context, step func() (done bool, err error)) error {
	err := onThread(ctx, stuckPatience, func() error { return repeat(ctx, step) })
	if errors.Is(err, errLeft) {
		n.stuck.Store(true)
		return fmt.Errorf("%w: %w", errStuck, context.Cause(ctx))
	}
	return err
}

// stuckPatience is how long a call may still take after its result is no longer needed.
const stuckPatience = time.Second

// errStuck reports a plugin's call that does not return.
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
