package estimate

import (
	"bytes"
	"fmt"
	"io"
)

// A Report is an estimate with its job: the document of "harness estimate", schema 1.
type Report struct {
	Schema int `json:"schema"`
	Job
	Figures []Figure `json:"figures,omitempty"` // from a database
	Estimate
}

// A Figure is a figure of the job that was taken from a database.
type Figure struct {
	Flag   string  `json:"flag"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Source string  `json:"source"`
}

// Report estimates a job.
func (j Job) Report(figures []Figure) (*Report, error) {
	e, err := Of(j)
	j.PerNode = min(j.PerNode, j.GPUs)
	return &Report{Schema: 1, Job: j, Figures: figures, Estimate: e}, err
}

// WriteText writes the report for people.
func (d *Report) WriteText(out io.Writer) error {
	var b bytes.Buffer
	line := func(what, format string, a ...any) { fmt.Fprintf(&b, "%-15s %s\n", what, fmt.Sprintf(format, a...)) }
	line("model", "%s parameters, %s in %s", countText(d.Params), bytesText(d.ModelBytes), d.DType)
	if d.StateBytes > 0 {
		line("training state", "%s a GPU, activations not counted (%d bytes a parameter in mixed half precision)", bytesText(d.StateBytes), StateBytes)
	}
	line("GPUs", "%d, %d a node, %s", d.GPUs, d.PerNode, d.Strategy)
	if d.OnceIntra > 0 {
		line("within a node", "%v a GPU: all parameters once in %s", d.Intra, secondsText(d.OnceIntra))
	}
	if d.OnceInter > 0 {
		line("between nodes", "%v a node: all parameters once in %s", d.Inter, secondsText(d.OnceInter))
	}
	if d.Efficiency < 1 {
		line("efficiency", "data get %g of these rates", d.Efficiency)
	}
	if d.ComputeSeconds > 0 {
		line("computing", "%.4g TFLOP a GPU and step at %.4g TFLOP/s: %s", d.FLOPPerGPU/1e12, d.FLOPS/1e12, secondsText(d.ComputeSeconds))
		line("", "%d sequences of %d tokens a step: %.0f tokens/s, if nothing waits", d.Batch, d.Sequence, d.ComputeTokens)
	} else {
		line("computing", "not known: give --tflops, or --peak and --mfu")
	}
	for _, f := range d.Figures {
		line("", "--%s %.6g %s is of the database (%s)", f.Flag, f.Value, f.Unit, f.Source)
	}
	if len(d.Ways) == 0 {
		line("communication", "none: there is one GPU")
		_, err := b.WriteTo(out)
		return err
	}
	fmt.Fprintf(&b, "\n%-15s %10s %10s  %-13s", "communication", "a GPU", "time", "bound")
	if d.ComputeSeconds > 0 {
		fmt.Fprintf(&b, " %9s %-6s %12s %12s  %s", "/compute", "hides", "tokens/s", "one by one", "to hide, the bound must be")
	}
	fmt.Fprintf(&b, "\n")
	for _, y := range d.Ways {
		fmt.Fprintf(&b, "%-15s %10s %10s  %-13s", y.Name, bytesText(y.Bytes), secondsText(y.Seconds), map[string]string{"intra": "within a node", "inter": "between nodes"}[y.Bound])
		if y.Hides != nil {
			fmt.Fprintf(&b, " %9.3g %-6s %12.0f %12.0f", y.Ratio, yesNo(*y.Hides), y.Tokens, y.TokensSum)
		}
		if y.NeedBytes > 0 {
			fmt.Fprintf(&b, "  %v", Rate(y.NeedBytes))
		}
		fmt.Fprintf(&b, "\n")
	}
	_, err := b.WriteTo(out)
	return err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// countText formats a count with the unit T, B or M: 2 B.
func countText(v float64) string {
	for _, u := range []struct {
		factor float64
		name   string
	}{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}} {
		if v >= u.factor {
			return fmt.Sprintf("%.4g %s", v/u.factor, u.name)
		}
	}
	return fmt.Sprintf("%g", v)
}

func bytesText(v float64) string {
	switch {
	case v >= 1e12:
		return fmt.Sprintf("%.4g TB", v/1e12)
	case v >= 1e9:
		return fmt.Sprintf("%.4g GB", v/1e9)
	}
	return fmt.Sprintf("%.4g MB", v/1e6)
}

// secondsText formats a time with three digits.
func secondsText(v float64) string {
	if v < 1e-3 {
		return fmt.Sprintf("%.3g us", v*1e6)
	}
	return fmt.Sprintf("%.3g s", v)
}
