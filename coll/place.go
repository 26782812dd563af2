package coll

import "fmt"

// hasDevice is what the rank tells of its device.
func (c *Comm) hasDevice() uint32 {
	switch {
	case c.cfg.device == nil:
		return 0
	case opener.Load() == nil:
		return 2
	}
	return 1
}

// sameDevices finds ranks with a device among others without.
func (c *Comm) sameDevices(all []hello) error {
	mine := all[c.rank].Device
	what := [...]string{"no device", "a device", "a device but no CUDA in its build (build tag cuda)"}
	for r, h := range all {
		if h.Device != mine && int(h.Device) < len(what) {
			return &Error{Code: InvalidUsage, Rank: c.rank, Op: "CommInitRank", Peer: r, Err: fmt.Errorf("rank %d has %s, this rank %s: all ranks of a communicator are alike", r, what[h.Device], what[mine])}
		}
	}
	return nil
}

// setPlaces takes note of where the ranks run.
func (c *Comm) setPlaces(all []hello) {
	c.places = make([]Place, c.size)
	for i, g := range c.links.groups {
		for _, r := range g {
			c.places[r] = Place{Host: i, Process: all[r].PID}
		}
	}
}
