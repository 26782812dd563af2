package node

import (
	"time"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/coll/predict/scale"
)

// How long checks take is stated before they run. The times of checks without a duration of their
// own are fitted to certificates of 1, 2 and 4 H200 (docs/examples) and to runs over hosts.
const (
	aboutProcess = time.Second // a process starts, and opens its devices
	aboutTorch   = 40 * time.Second
	aboutPair    = 500 * time.Millisecond // one RDMA measurement, connection and all
)

// machines returns how many run the suite together.
func (c *Config) machines() int {
	if c.Job != nil {
		return c.Job.Size()
	}
	return max(1, c.Machines)
}

// joint returns d for a check of several machines, and 0 on one, which skips it.
func (c *Config) joint(d time.Duration) time.Duration {
	if c.machines() < 2 {
		return 0
	}
	return d
}

// onGPUs returns d if the machine has at least that many GPUs.
func (c *Config) onGPUs(least int, d time.Duration) time.Duration {
	if c.Machine.GPUs < least {
		return 0
	}
	return d
}

// about returns how long an operation's check takes.
func (p *collParams) about(c *Config) time.Duration {
	sizes := 1
	if from, err := perf.ParseSize(p.Min); err == nil {
		if to, err := perf.ParseSize(p.Max); err == nil {
			for n := max(1, from); n < to; n *= int64(p.Factor) {
				sizes++
			}
		}
	}
	one := 2*aboutProcess + time.Duration(4*sizes)*p.MinTime // in place and out, after a warm-up
	switch {
	case p.SameBits:
		one *= time.Duration(max(1, c.Machine.GPUs))
	case p.Scale:
		one = 0
		for n := 1; n < c.machines(); n *= 2 {
			one += 4 * aboutProcess
		}
	case p.Over != "":
		one += 4 * aboutProcess // the largest sizes, at a network's rate
	}
	if p.Over != "" {
		one = c.joint(one)
	}
	if p.Device == "gpu" {
		least := 2
		if p.Over != "" {
			least = 1
		}
		one = c.onGPUs(least, one)
	}
	return one
}

// aboutBandwidth returns how long the families of bandwidth take together: pairs of GPUs dominate.
func (c *Config) aboutBandwidth(samples int) time.Duration {
	g := c.Machine.GPUs
	return c.onGPUs(1, time.Duration(g*g+g)*time.Second*time.Duration(samples)/5)
}

// about returns how long a mesh takes.
func (p *meshParams) about(c *Config) time.Duration {
	rounds, samples := max(0, c.Machine.Ports-1), 3
	if p.Over != "" {
		rounds = c.Machine.Ports * (c.machines() - 1)
	}
	for i, a := range p.Args {
		if i+1 == len(p.Args) {
			break
		}
		switch next := p.Args[i+1]; {
		case a == "--samples" && next == "1":
			samples = 1
		case a == "--pattern" && next == "rail":
			rounds = c.machines() - 1
		case a == "--pattern" && next == "bisection":
			rounds = 1
		}
	}
	if c.Machine.Ports == 0 {
		return 0
	}
	return time.Duration(rounds*samples) * aboutPair
}

// about returns how long a hunt takes that finds a fault.
func (p *huntParams) about(c *Config) time.Duration {
	d := time.Duration(scale.Of(c.machines()).Hunt.Seconds * float64(time.Second))
	if p.Tool == "coll" {
		d = c.onGPUs(1, 3*d)
	}
	for i, a := range p.Args {
		if a == "--for" && i+1 < len(p.Args) {
			if least, err := time.ParseDuration(p.Args[i+1]); err == nil {
				d = max(d, least)
			}
		}
	}
	return c.joint(d)
}
