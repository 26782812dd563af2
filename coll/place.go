package coll

// setPlaces takes note of where the ranks run.
func (c *Comm) setPlaces(all []hello) {
	c.places = make([]Place, c.size)
	for i, g := range c.env.Hosts {
		for _, r := range g {
			c.places[r] = Place{Host: i, Process: all[r].PID}
		}
	}
}
