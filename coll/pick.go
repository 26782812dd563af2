package coll

import "github.com/assay-hpc/assay/coll/schedule"

// A choice is how an operation of some size is done.
type choice struct {
	algorithm string
	channels  int
	window    int // bytes
}

// picker chooses.
type picker struct {
	n    int
	near bool // all ranks share memory, and messages to everyone are one
	slot int
}

func newPicker(c *Comm) picker {
	return picker{n: c.size, near: c.links.shmInfos != nil, slot: c.links.slot}
}

func (p *picker) pick(coll schedule.Collective, bytes int) choice {
	c := choice{channels: 1, window: p.slot}
	switch coll {
	case schedule.AllReduce:
		switch {
		case p.n <= 16 && bytes <= 4096:
			c.algorithm = "one-shot"
		case p.near && p.n <= 16:
			c.algorithm = "two-shot"
		default:
			c.algorithm = "ring"
		}
	case schedule.SendRecv:
		c.algorithm = "ring"
	default:
		c.algorithm = "one-shot"
		if p.n > 16 {
			c.algorithm = "ring"
		}
	}
	return c
}
