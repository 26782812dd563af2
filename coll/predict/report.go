package predict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
)

// A Forecast is the predictions of one job: a document of "harness predict", schema 1.
type Forecast struct {
	Schema     int          `json:"schema"`
	Platform   string       `json:"platform"`
	Name       string       `json:"-"` // of the platform
	GPUs       int          `json:"gpus"`
	Collective string       `json:"collective"`
	Rows       []Prediction `json:"rows"`
	Figures    []Used       `json:"figures"`
}

// Forecast predicts the job at all sizes.
func (p *Predictor) Forecast(sizes []int64) (*Forecast, error) {
	rows, err := p.predictAll(sizes)
	return &Forecast{
		Schema: 1, Platform: p.job.Platform, Name: p.name, GPUs: p.job.GPUs, Collective: p.job.Collective.Test(), Rows: rows, Figures: p.Figures(),
	}, err
}

func (p *Predictor) predictAll(sizes []int64) (rows []Prediction, err error) {
	for _, b := range sizes {
		r, err := p.Predict(b)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// WriteText writes a forecast as a table.
func (f *Forecast) WriteText(out io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s, %d GPUs (predicted, not measured)\n", f.Name, f.Collective, f.GPUs)
	fmt.Fprintf(&b, "%14s %12s %10s %10s %16s  %s\n", "bytes", "time us", "algbw GB/s", "busbw GB/s", "nine of ten in", "by")
	for _, r := range f.Rows {
		fmt.Fprintf(&b, "%14d %12.1f %10.2f %10.2f %16s  %s %s%s\n", r.Bytes, r.micros(), gb(r.AlgBW), gb(r.BusBW), fmt.Sprintf("%.4g to %.4g", gb(r.Low), gb(r.High)), r.Algorithm, r.Protocol, r.extended(f.GPUs))
	}
	writeFigures(&b, f.Figures)
	_, err := b.WriteTo(out)
	return err
}

func writeFigures(b *bytes.Buffer, used []Used) {
	b.WriteString("\nfigures:\n")
	for _, u := range used {
		fmt.Fprintf(b, "  %-33s %-46s %s\n", u.Name, u.Value, u.Source)
	}
}

// extended says how many GPUs were simulated, if the prediction is for more.
func (p Prediction) extended(gpus int) string {
	if p.Simulated == gpus {
		return ""
	}
	return fmt.Sprintf(" (from %d GPUs)", p.Simulated)
}

func (p Prediction) micros() float64 { return p.Time.Seconds() * 1e6 }

func gb(b BytesPerSec) float64 { return float64(b / GBps) }

// round removes meaningless digits.
func round(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

// MarshalJSON writes a row of the documents.
func (p Prediction) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Bytes     int64   `json:"bytes"`
		Micros    float64 `json:"us"`
		AlgBW     float64 `json:"algbwGBps"`
		BusBW     float64 `json:"busbwGBps"`
		Low       float64 `json:"lowGBps"` // of busbw: nine of ten published rows lie between the two
		High      float64 `json:"highGBps"`
		Algorithm string  `json:"algorithm"`
		Protocol  string  `json:"protocol"`
		Simulated int     `json:"simulatedGPUs"` // if fewer than all, the rest is derived from them (docs/predict.md)
	}{p.Bytes, round(p.micros(), 3), round(gb(p.AlgBW), 4), round(gb(p.BusBW), 4), round(gb(p.Low), 4), round(gb(p.High), 4), p.Algorithm, p.Protocol, p.Simulated})
}

// Comparisons are published tables beside predictions: a document of "harness predict", schema 1.
type Comparisons struct {
	Schema  int          `json:"schema"`
	Fitted  *Fitted      `json:"fitted,omitempty"` // nil: each table has its own
	Tables  []Comparison `json:"tables"`
	Skipped []string     `json:"skipped,omitempty"` // why other tables are not predicted
}

// NewComparisons returns the document of comparisons.
func NewComparisons(fitted *Fitted, list []Comparison, skipped []error) *Comparisons {
	d := &Comparisons{Schema: 1, Fitted: fitted, Tables: append([]Comparison{}, list...)}
	for _, err := range skipped {
		d.Skipped = append(d.Skipped, err.Error())
	}
	return d
}

// WriteText writes the comparisons as tables.
func (d *Comparisons) WriteText(out io.Writer) error {
	var b bytes.Buffer
	var all []float64
	for _, c := range d.Tables {
		t := c.Table
		fmt.Fprintf(&b, "%s: %s, %d GPUs on %d nodes (%s", t.Title, t.Collective, t.GPUs, t.Nodes, t.Source)
		if c.Key != "" {
			fmt.Fprintf(&b, ", table %s", c.Key)
		}
		fmt.Fprintf(&b, ")\n%14s %12s %8s %12s %8s %8s  %s\n", "bytes", "published us", "busbw", "predicted us", "busbw", "error", "by")
		for _, r := range c.Rows {
			fmt.Fprintf(&b, "%14d %12.1f %8.2f %12.1f %8.2f %+7.1f%%  %s %s\n", r.Bytes, r.Published.Seconds()*1e6, gb(r.Row), r.micros(), gb(r.BusBW), 100*r.Error(), r.Algorithm, r.Protocol)
			all = append(all, max(r.Error(), -r.Error()))
		}
		fmt.Fprintf(&b, "%14s %.1f%%, max %.1f%%\n\n", "error: median", 100*c.Median(), 100*c.Max())
	}
	if slices.Sort(all); len(d.Tables) > 1 {
		fmt.Fprintf(&b, "all %d rows of %d tables: median error %.1f%%, max %.1f%%\n", len(all), len(d.Tables), 100*all[len(all)/2], 100*all[len(all)-1])
	}
	for _, why := range d.Skipped {
		fmt.Fprintf(&b, "not predicted: %s\n", why)
	}
	_, err := b.WriteTo(out)
	return err
}

// MarshalJSON writes the constants in the units of their names.
func (f Fitted) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		StepMicros     float64 `json:"stepUs"`
		RackUplinkGBps float64 `json:"rackUplinkGBps"`
	}{f.Step.Seconds() * 1e6, gb(f.RackUplink)})
}

// MarshalJSON writes a table of the document.
func (c Comparison) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Key         string     `json:"key,omitempty"`
		Title       string     `json:"title"`
		Platform    string     `json:"platform"`
		Collective  string     `json:"collective"`
		Nodes       int        `json:"nodes"`
		GPUs        int        `json:"gpus"`
		Source      string     `json:"source"`
		Rows        []Compared `json:"rows"`
		MedianError float64    `json:"medianError"`
		MaxError    float64    `json:"maxError"`
	}{
		c.Key, c.Table.Title, c.Table.Platform, c.Table.Collective, c.Table.Nodes, c.Table.GPUs, c.Table.Source, c.Rows,
		round(c.Median(), 4), round(c.Max(), 4),
	})
}

// MarshalJSON writes a row of a table.
func (c Compared) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Bytes     int64      `json:"bytes"`
		Micros    float64    `json:"publishedUs"`
		BusBW     float64    `json:"publishedBusbwGBps"`
		Predicted Prediction `json:"predicted"`
		Error     float64    `json:"error"` // 0.1: predicted to take 10 % longer
	}{c.Bytes, round(c.Published.Seconds()*1e6, 3), gb(c.Row), c.Prediction, round(c.Error(), 4)})
}
