//go:build cgo && linux

package verbs

import (
	"errors"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/slots"
)

// network implements slots.Network with the ports of a Net.
type network struct {
	*Net
	params Params
}

func (o *Options) check() error {
	p := &o.Params
	switch {
	case o.Net == nil || len(o.Net.ports) == 0:
		return errors.New("verbs: there is no port")
	case p.QPs < 0 || p.QPs > maxQPs:
		return fmt.Errorf("verbs: %d queue pairs; want at most %d", p.QPs, maxQPs)
	case p.Timeout < 1 || p.Timeout > 31 || p.Retries < 0 || p.Retries > 7 || p.ServiceLevel < 0 || p.ServiceLevel > 15 || p.TrafficClass < 0 || p.TrafficClass > 255 || p.PKeyIndex < 0 || p.PKeyIndex > 0xffff:
		return fmt.Errorf("verbs: one of these is out of its bounds: %+v", *p)
	}
	return nil
}

// Open creates a rank's endpoint. The caller must close it, but not from the Hook of
// Options.Fault.
func Open(opt Options) (transport.Endpoint, error) {
	if err := opt.check(); err != nil {
		if opt.Net != nil {
			opt.Net.Close()
		}
		return nil, err
	}
	for _, p := range opt.Net.ports {
		if p.MaxMessage > slots.HeaderSize {
			opt.Limit(int(min(p.MaxMessage-slots.HeaderSize, slots.MostMessage)))
		}
	}
	e, err := slots.Open(&network{opt.Net, opt.Params}, opt.Options)
	if err != nil {
		return nil, err
	}
	opt.Net.listen(e.Logf, func(err error) { opt.Fault.Set(err) })
	e.Go(func(done <-chan struct{}) { inspect(e, done) })
	return e, nil
}

// Name returns NCCL's name for the network.
func (n *network) Name() string   { return Name }
func (n *network) String() string { return Name }
func (n *network) Devices() int   { return len(n.ports) }

func (n *network) Tx(c *slots.Conn) slots.Sender { return &sender{conn: conn{Conn: c, n: n}} }
func (n *network) Rx(c *slots.Conn) slots.Receiver {
	return &receiver{conn: conn{Conn: c, n: n}}
}

// inspection is how often requests are checked for which the rank does not wait: a rank
// that only receives now must learn that a message that it sent has failed.
const inspection = 250 * time.Millisecond

// inspect checks all connections periodically.
func inspect(e *slots.Endpoint, done <-chan struct{}) {
	tick := time.NewTicker(inspection)
	defer tick.Stop()
	var list []slots.End
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		list = e.Ends(list[:0])
		for _, x := range list {
			x.(interface{ inspect() }).inspect()
		}
	}
}
