//go:build cuda && cgo

package diag

import (
	"errors"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// hostBytes is the size of a copy between host and GPU.
const hostBytes = 64 << 20

// Host implements Device. The host memory is next to the GPU.
func (d *device) Host(dir direction, copies int) (int64, float64, miscompares, error) {
	var none miscompares
	if d.pinned == nil {
		if _, _, err := d.Take(2 * hostBytes); err != nil {
			return 0, 0, none, err
		}
		err := sysfs.Near(d.CPUs, func() (err error) {
			d.pinned, err = driver.HostAlloc(2 * hostBytes)
			return err
		})
		if err != nil {
			return 0, 0, none, err
		}
	}
	if d.pieces[0].bytes < 2*hostBytes {
		return 0, 0, none, fmt.Errorf("%w: its memory is in pieces too small for a copy", driver.ErrOutOfMemory)
	}
	if err := d.Bind(); err != nil {
		return 0, 0, none, err
	}
	from, to := d.pieces[0].at, d.pieces[0].at+hostBytes
	host, back := d.pinned.Ptr, d.pinned.Ptr+hostBytes
	clear(d.pinned.Bytes)
	p := memPattern{Kind: randomWords, Seed: uint64(dir) + 1}
	// The source contains the pattern, the destination does not.
	if err := errors.Join(d.write(from, hostBytes, p), d.write(to, hostBytes, memPattern{}), driver.CopyAsync(host, from, hostBytes, d.lane.Stream), d.lane.Synchronize()); err != nil {
		return 0, 0, none, err
	}
	one := func(s driver.Stream, to, from driver.Ptr) error { return driver.CopyAsync(to, from, hostBytes, s) }
	total := int64(copies) * hostBytes
	var seconds float64
	var err error
	switch dir {
	case toDevice:
		seconds, err = d.lane.Time(func() error { return repeat(copies, func() error { return one(d.lane.Stream, to, host) }) })
	case toHost:
		seconds, err = d.lane.Time(func() error { return repeat(copies, func() error { return one(d.lane.Stream, back, from) }) })
	default:
		total *= 2
		begin := time.Now()
		err = repeat(copies, func() error { return errors.Join(one(d.lane.Stream, back, from), one(d.other.Stream, to, host)) })
		err = errors.Join(err, d.lane.Synchronize(), d.other.Synchronize())
		seconds = time.Since(begin).Seconds()
	}
	if err != nil {
		return 0, 0, none, err
	}
	var wrong miscompares
	if dir != toHost {
		m, _, err := d.found(func() error { return d.verify(to, hostBytes, p, from, false) })
		if err != nil {
			return 0, 0, none, err
		}
		wrong.add(m)
	}
	if dir != toDevice {
		m, _, err := d.found(func() error {
			return errors.Join(one(d.lane.Stream, to, back), d.verify(to, hostBytes, p, from, false))
		})
		if err != nil {
			return 0, 0, none, err
		}
		wrong.add(m)
	}
	return total, seconds, wrong, nil
}

// repeat calls f n times.
func repeat(n int, f func() error) error {
	for range n {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// remoteRepeats is the number of writes, or reads, that are timed together.
const remoteRepeats = 4

// Remote implements Device. Both devices must have memory allocated by Take.
func (d *device) Remote(other Device, p memPattern) (r remoteResult, err error) {
	peer := other.(*device)
	if len(d.pieces) == 0 || len(peer.pieces) == 0 {
		return r, errors.New("no memory was taken for a peer's access")
	}
	mine, its := d.pieces[0], peer.pieces[0]
	r.Bytes = min(mine.bytes, its.bytes)
	// Overwrite the old contents of the peer's memory: a write that never arrives could otherwise
	// find its own pattern there.
	if err := peer.Bind(); err != nil {
		return r, err
	}
	if err := errors.Join(peer.write(its.at, r.Bytes, memPattern{}), peer.lane.Synchronize(), d.Bind()); err != nil {
		return r, err
	}
	base := its.at
	if d.CanAccessPeer(peer.Ordinal()) {
		if err := d.EnablePeer(peer.Context); err != nil {
			return r, err
		}
		// The first write is not timed: after it the kernel is loaded, pages are mapped and links
		// are awake.
		if err := errors.Join(d.write(its.at, r.Bytes, memPattern{}), d.lane.Synchronize()); err != nil {
			return r, err
		}
		r.Write, err = d.lane.Time(func() error {
			return repeat(remoteRepeats, func() error { return d.write(its.at, r.Bytes, p) })
		})
	} else {
		r.Staged, base = true, mine.at
		if err := d.write(mine.at, r.Bytes, p); err != nil {
			return r, err
		}
		r.Write, err = d.lane.Time(func() error {
			return repeat(remoteRepeats, func() error {
				return driver.CopyPeerAsync(its.at, peer.Context, mine.at, d.Context, int(r.Bytes), d.lane.Stream)
			})
		})
	}
	if err != nil {
		return r, err
	}
	if r.Written, _, err = peer.found(func() error { return peer.verify(its.at, r.Bytes, p, base, false) }); err != nil {
		return r, err
	}
	if !r.Staged {
		var s float64
		r.ReadBy, s, err = d.found(func() error {
			return repeat(remoteRepeats, func() error { return d.verify(its.at, r.Bytes, p, base, false) })
		})
		r.Read = s / remoteRepeats
	}
	r.Write /= remoteRepeats
	return r, errors.Join(err, d.Bind())
}
