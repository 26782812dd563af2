package topology

// Capacities are what each GPU can move, for algorithms that pack trees or
// rings onto the links. Each is of one direction, both may be used at a time.
type Capacities struct {
	// Link is GB/s from GPU i to GPU j when nothing else moves: over NVLinks if
	// there are any between the two, over PCI otherwise. The diagonal is 0.
	Link [][]float64
	// NVLinks is the number of links that bond i and j; 0: Link is over PCI.
	NVLinks [][]int
	// Port is GB/s that GPU i can send over all its links of one kind together.
	// Behind an NVSwitch a row of Link adds up to more than that.
	Port []float64
}

// Capacities returns what lies between some GPUs, by their places in s.GPUs;
// nil means all. Row k is of gpus[k].
func (s *System) Capacities(gpus []int) Capacities {
	gpus = s.orAll(gpus)
	var c Capacities
	for _, i := range gpus {
		link, count, port := make([]float64, len(gpus)), make([]int, len(gpus)), 0.0
		for k, j := range gpus {
			if i == j {
				continue
			}
			p, ok := s.nvlinkPath(i, j)
			if !ok {
				p = s.PCIPath(i, j)
			}
			link[k], count[k] = p.GBps, p.Links
		}
		if n := s.GPUs[i].links(); n > 0 {
			port = float64(n) * NVLinkGBps(s.GPUs[i].SM)
		} else {
			port = PCIeGBps(s.GPUs[i].Link)
		}
		c.Link, c.NVLinks, c.Port = append(c.Link, link), append(c.NVLinks, count), append(c.Port, port)
	}
	return c
}

// links is how many NVLinks lead to GPUs and switches.
func (g *GPU) links() int {
	n := 0
	for _, l := range g.NVLinks {
		if l.To != ToCPU {
			n += l.Count
		}
	}
	return n
}

func (s *System) orAll(gpus []int) []int {
	if gpus != nil {
		return gpus
	}
	return upTo(len(s.GPUs))
}
