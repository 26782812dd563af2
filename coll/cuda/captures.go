//go:build cuda && cgo

package cuda

import (
	"errors"
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// captures are the graphs that operations of a communicator were captured in. As in NCCL, the
// launches of these graphs and the operations outside them run one after the other, in the order
// in which the program launches and calls them: a graph waits for the event serial at its
// beginning and records it at its end, and so does each operation outside.
type captures struct {
	mixed   bool         // NCCL_GRAPH_MIXING_SUPPORT
	ordered bool         // NCCL_GRAPH_STREAM_ORDERING: the operations of one graph run one after the other, too
	serial  driver.Event // 0: nothing was captured
	all     []capture    // the last ones
}

// A capture is one of them.
type capture struct {
	id     uint64
	stream driver.Stream // of its last operation
	last   []driver.Node // its end
	record driver.Node   // records serial behind that
}

// remembered is how many captures may be under way at the same time.
const remembered = 64

func (c *captures) of(id uint64) *capture {
	for i := range c.all {
		if c.all[i].id == id {
			return &c.all[i]
		}
	}
	return nil
}

// begin puts the next operation on a captured stream behind the others of its graph. The first
// one of a graph waits for what is launched before it.
func (c *captures) begin(s driver.Stream, id uint64, trail *trail) (err error) {
	if at := c.of(id); at != nil {
		if at.stream != s && c.ordered {
			err = s.Behind(at.last)
		}
		return err
	}
	if c.mixed {
		if err = c.mix(trail); err == nil {
			err = s.WaitOutside(c.serial)
		}
	}
	if n := len(c.all); n == remembered {
		c.all = slices.Delete(c.all, 0, 1)
	}
	c.all = append(c.all, capture{id: id})
	return unmixed(err)
}

// mix creates the event behind the last operation, whose stream may not exist any more.
func (c *captures) mix(t *trail) error {
	if c.serial != 0 {
		return nil
	}
	e, err := driver.NewEvent(0)
	if err != nil {
		return err
	}
	s, err := driver.NewStream(0)
	if err != nil {
		return errors.Join(err, e.Destroy())
	}
	if last, ok := t.last(); ok {
		err = s.WaitEvent(last)
	}
	if err = errors.Join(err, e.Record(s), s.Destroy()); err != nil {
		return errors.Join(err, e.Destroy())
	}
	c.serial = e
	return nil
}

// end notes that the operations of a graph end, for now, with what is on the stream.
func (c *captures) end(s driver.Stream, id uint64) error {
	if !c.mixed && !c.ordered {
		return nil
	}
	at := c.of(id)
	last, err := s.Frontier()
	if err != nil || slices.Equal(at.last, last) {
		return err
	}
	switch {
	case !c.mixed:
	case at.record == 0:
		at.record, err = s.RecordOutside(c.serial, last)
	default:
		err = s.MoveBehind(at.record, at.last, last)
	}
	at.stream, at.last = s, last
	return unmixed(err)
}

func unmixed(err error) error {
	if err != nil {
		err = fmt.Errorf("%w (to order graphs and other operations; NCCL_GRAPH_MIXING_SUPPORT=0 leaves that to the program)", err)
	}
	return err
}
