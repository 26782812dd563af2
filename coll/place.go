package coll

import (
	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/executor"
)

// setPlaces takes note of where the ranks run.
func (c *Comm) setPlaces(all []choose.Found) {
	c.places = make([]executor.Place, c.size)
	for i, g := range c.env.Hosts {
		for _, r := range g {
			c.places[r] = executor.Place{Host: i, Process: all[r].PID}
		}
	}
}
