//go:build cuda && cgo

package bench

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// slots is how many patterns a device stores. Verifying an operation takes four of them, one
// of which is new every time.
const slots = 8

// room is the largest length of a pattern in bytes: 65,536 elements.
const room = 8 << 16

// patterns are copies of test data on the device, by the host slice that they are copies of.
// The slices are kept alive, so that their memory cannot become another pattern's. All memory
// is allocated at the start: an allocation while another rank's kernel waits for this rank
// might wait for that kernel.
type patterns struct {
	host  [slots][]byte
	at    driver.Ptr     // slots × room bytes
	stage *driver.Pinned // staging memory for copies to the device
	next  int            // slot to be replaced
}

func (p *patterns) open() (err error) {
	if p.at, err = driver.Malloc(slots * room); err != nil {
		return err
	}
	p.stage, err = driver.HostAlloc(room)
	return err
}

func (p *patterns) slot(i int) driver.Ptr { return p.at + driver.Ptr(i*room) }

// get returns the device address of a pattern. A new pattern is copied there on the stream,
// after the enqueued work, which may still use the pattern that it replaces.
func (p *patterns) get(pattern []byte, stream driver.Stream) (driver.Ptr, error) {
	if len(pattern) == 0 || len(pattern) > room {
		return 0, fmt.Errorf("a pattern of %d bytes; it must have 1 to %d", len(pattern), room)
	}
	for i, h := range p.host {
		if len(h) == len(pattern) && unsafe.SliceData(h) == unsafe.SliceData(pattern) {
			return p.slot(i), nil
		}
	}
	if err := stream.Synchronize(); err != nil {
		return 0, err
	}
	i := p.next
	p.next = (i + 1) % slots
	copy(p.stage.Bytes, pattern)
	p.host[i] = nil
	if err := driver.CopyAsync(p.slot(i), p.stage.Ptr, len(pattern), stream); err != nil {
		return 0, err
	}
	p.host[i] = pattern
	return p.slot(i), nil
}

func (p *patterns) close() error {
	var errs []error
	if p.at != 0 {
		errs = append(errs, driver.Free(p.at))
	}
	if p.stage != nil {
		errs = append(errs, p.stage.Free())
	}
	*p = patterns{}
	return errors.Join(errs...)
}
