package fabric

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/assay-hpc/assay/harness/hunt"
)

// maxRanks is the number of ranking entries on the page.
const maxRanks = 16

// WriteText writes the report as one page: which machine is suspected and why, then the
// ranking, then the verdict.
func (r *HuntReport) WriteText(w io.Writer) error {
	var b strings.Builder
	tool := map[Tool]string{TCP: "TCP", RDMA: "RDMA reads and writes", Coll: "all-reduce in groups"}[r.Tool]
	fmt.Fprintf(&b, "%d machines, %s: %d measurements in %d rounds, %.1f s\n\n", len(r.Machines), tool, r.Measurements, r.Rounds, r.Seconds)
	for _, s := range r.Suspects {
		fmt.Fprintf(&b, "✗ %s\n", s.Text)
		for _, e := range s.Evidence[:min(len(s.Evidence), 4)] {
			between := " ↔ "
			if s.Direction != hunt.Both || len(e.Machines) == 2 && r.Tool != Coll {
				between = " → "
			}
			fmt.Fprintf(&b, "    round %-3d %s: %s, usual %s", e.Round, strings.Join(e.Machines, between), r.rate(e.Value), r.rate(e.Usual))
			if e.Resent > 0 {
				fmt.Fprintf(&b, ", %.2g %% sent again", 100*e.Resent)
			}
			b.WriteString("\n")
		}
	}
	for _, l := range r.Lost {
		fmt.Fprintf(&b, "✗ %s is lost", l.Machine)
		if l.Round > 0 {
			fmt.Fprintf(&b, " since round %d", l.Round)
		}
		fmt.Fprintf(&b, ": %s\n", l.Reason)
	}
	for _, a := range r.Absent {
		fmt.Fprintf(&b, "✗ %s has no port %s that is up\n", a.Machine, a.Port)
	}
	if len(r.Undecided) > 0 {
		fmt.Fprintf(&b, "? not decided after %d rounds: %s\n", r.Rounds, some(r.Undecided))
	}
	if b.String()[b.Len()-2] != '\n' {
		b.WriteString("\n")
	}
	if err := r.writeRanking(&b); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	fmt.Fprintf(&b, "\n%s  %s\n", strings.ToUpper(string(r.Outcome)), r.meaning())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *HuntReport) writeRanking(b *strings.Builder) error {
	if len(r.Ranking) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "slowest first\tof what is usual\t95 %\tvalues")
	for _, p := range r.Ranking[:min(len(r.Ranking), maxRanks)] {
		fmt.Fprintf(t, "%s\t%.3f\t%.3f … %.3f\t%d\n", strings.TrimSpace(p.Machine+" "+p.Port), p.Ratio, p.Low, p.High, p.Values)
	}
	err := t.Flush()
	if n := len(r.Ranking) - maxRanks; n > 0 {
		fmt.Fprintf(b, "and %d more\n", n)
	}
	return err
}

// meaning returns the verdict in words.
func (r *HuntReport) meaning() string {
	sure := fmt.Sprintf("a machine less than %.0f %% slower than the rest is accused with a probability of at most %g", 100*r.Least, r.Alpha)
	switch r.Outcome {
	case hunt.Clean:
		return fmt.Sprintf("over %.0f s no machine %s; one that is slower goes unnoticed with a probability of at most %g", r.Seconds, r.Excluded, r.Beta)
	case hunt.Undecided:
		return "no machine is accused, and not all are cleared; " + sure
	}
	var what []string
	for _, n := range []struct {
		n         int
		one, many string
	}{{len(r.Suspects), "suspect", "suspects"}, {len(r.Lost), "machine lost", "machines lost"}, {len(r.Absent), "port absent", "ports absent"}} {
		switch n.n {
		case 0:
		case 1:
			what = append(what, "1 "+n.one)
		default:
			what = append(what, fmt.Sprintf("%d %s", n.n, n.many))
		}
	}
	return strings.Join(what, ", ") + "; " + sure
}

// rate formats a bandwidth in the usual unit: bits per second for links.
func (r *HuntReport) rate(v float64) string {
	if r.Tool == Coll {
		return fmt.Sprintf("%.4g GB/s", v/1e9)
	}
	return fmt.Sprintf("%.4g Gb/s", v*8/1e9)
}
