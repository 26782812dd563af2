package topology

import (
	"fmt"
	"io"
	"strings"
)

// WriteProcessors prints what is known about a machine without GPUs. skipped is why the driver was
// not queried; nil: nothing is said of it.
func (s *System) WriteProcessors(w io.Writer, skipped error) error {
	var b strings.Builder
	b.WriteString("There are no GPUs.\n")
	if skipped != nil {
		fmt.Fprintf(&b, "GPUs: skipped: %v\n", skipped)
	}
	b.WriteByte('\n')
	for _, c := range s.CPUs {
		fmt.Fprintf(&b, "NUMA node %d: processors %v", c.ID, c.CPUs)
		if len(c.Distances) > 1 {
			fmt.Fprintf(&b, ", distances %v", c.Distances)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteRings prints the rings through the GPUs that work at the same time.
func (s *System) WriteRings(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\nRings:\n\n")
	rings := s.Rings()
	for i, r := range rings {
		fmt.Fprintf(&b, "  %2d: %v %.1f GB/s over %v\n", i, r.GPUs, r.GBps, r.Over)
	}
	if len(rings) == 0 {
		b.WriteString("  none: a ring takes two GPUs\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteGDR prints for each GPU whether its card could access the GPU's memory.
func (s *System) WriteGDR(w io.Writer, o GDROptions) error {
	var b strings.Builder
	b.WriteString("\nGPUDirect RDMA, as NCCL would decide (harness coll stages data between hosts in host memory):\n\n")
	for g, nic := range s.Rails() {
		if nic < 0 {
			fmt.Fprintf(&b, "  GPU%d: no network card\n", g)
			continue
		}
		d := s.GDR(g, nic, o)
		fmt.Fprintf(&b, "  GPU%d: %s %v: %v\n", g, s.Label(nic), d.Distance, d)
	}
	if len(s.GPUs) == 0 {
		b.WriteString("  none: there are no GPUs\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
