package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/coll/predict"
	"github.com/assay-hpc/assay/internal/exit"
)

// The documents of harness predict --format json, schema 1.
type (
	predictionDoc struct {
		Schema     int            `json:"schema"`
		Platform   string         `json:"platform"`
		GPUs       int            `json:"gpus"`
		Collective string         `json:"collective"`
		Rows       []predictedRow `json:"rows"`
		Figures    []predict.Used `json:"figures"`
	}
	predictedRow struct {
		Bytes     int64   `json:"bytes"`
		Micros    float64 `json:"us"`
		AlgBW     float64 `json:"algbwGBps"`
		BusBW     float64 `json:"busbwGBps"`
		Algorithm string  `json:"algorithm"`
		Protocol  string  `json:"protocol"`
		Simulated int     `json:"simulatedGPUs"` // if fewer than all, the rest is derived from them (docs/predict.md)
	}
	comparisonDoc struct {
		Schema  int             `json:"schema"`
		Fitted  *fittedDoc      `json:"fitted,omitempty"` // not with --leave-one-out: each table has its own
		Tables  []comparedTable `json:"tables"`
		Skipped []string        `json:"skipped,omitempty"`
	}
	fittedDoc struct {
		LaunchMicros   float64 `json:"launchUs"`
		StepMicros     float64 `json:"stepUs"`
		LLFraction     float64 `json:"llFraction"`
		RackUplinkGBps float64 `json:"rackUplinkGBps"`
	}
	comparedTable struct {
		Key         string        `json:"key,omitempty"`
		Title       string        `json:"title"`
		Platform    string        `json:"platform"`
		Collective  string        `json:"collective"`
		Nodes       int           `json:"nodes"`
		GPUs        int           `json:"gpus"`
		Source      string        `json:"source"`
		Rows        []comparedRow `json:"rows"`
		MedianError float64       `json:"medianError"`
		MaxError    float64       `json:"maxError"`
	}
	comparedRow struct {
		Bytes     int64        `json:"bytes"`
		Micros    float64      `json:"publishedUs"`
		BusBW     float64      `json:"publishedBusbwGBps"`
		Predicted predictedRow `json:"predicted"`
		Error     float64      `json:"error"` // 0.1: predicted to take 10 % longer
	}
)

func predictedRows(rows []predict.Prediction) []predictedRow {
	var out []predictedRow
	for _, r := range rows {
		out = append(out, predictedRow{r.Bytes, round(micros(r), 3), round(gb(r.AlgBW), 4), round(gb(r.BusBW), 4), r.Algorithm, r.Protocol, r.Simulated})
	}
	return out
}

func comparisonsDoc(list []predict.Comparison, skipped []error, fitted bool) comparisonDoc {
	doc := comparisonDoc{Schema: 1, Tables: []comparedTable{}}
	if f := predict.DefaultFitted; fitted {
		doc.Fitted = &fittedDoc{f.Launch.Seconds() * 1e6, f.Step.Seconds() * 1e6, f.LLFraction, gb(f.RackUplink)}
	}
	for _, c := range list {
		t := comparedTable{
			Key: c.Key, Title: c.Table.Title, Platform: c.Table.Platform, Collective: c.Table.Collective, Nodes: c.Table.Nodes,
			GPUs: c.Table.GPUs, Source: c.Table.Source, MedianError: round(c.Median(), 4), MaxError: round(c.Max(), 4),
		}
		for _, r := range c.Rows {
			t.Rows = append(t.Rows, comparedRow{
				r.Prediction.Bytes, round(r.Published.Seconds()*1e6, 3), gb(r.Row), predictedRows([]predict.Prediction{r.Prediction})[0], round(r.Error(), 4),
			})
		}
		doc.Tables = append(doc.Tables, t)
	}
	for _, err := range skipped {
		doc.Skipped = append(doc.Skipped, err.Error())
	}
	return doc
}

func micros(p predict.Prediction) float64 { return p.Time.Seconds() * 1e6 }

func gb(b predict.BytesPerSec) float64 { return float64(b / predict.GBps) }

// round removes meaningless digits.
func round(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// An errWriter prints until a write fails.
type errWriter struct {
	out io.Writer
	err error
}

func (w *errWriter) printf(format string, a ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format, a...)
	}
}

// parseSizes parses a list, "1M,2G", or a range of doublings, "1M:2G".
func parseSizes(s string) ([]int64, error) {
	if from, to, ok := strings.Cut(s, ":"); ok {
		a, err := parseSize(from)
		if err != nil {
			return nil, err
		}
		b, err := parseSize(to)
		if err != nil {
			return nil, err
		}
		if a > b {
			return nil, exit.Usagef("--sizes %s: the first is larger than the last", s)
		}
		var out []int64
		for ; a <= b; a *= 2 {
			out = append(out, a)
		}
		return out, nil
	}
	var out []int64
	for part := range strings.SplitSeq(s, ",") {
		n, err := parseSize(part)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// maxPredictSize is far beyond any buffer, and can be doubled without overflow.
const maxPredictSize = 1 << 50

func parseSize(s string) (int64, error) {
	digits, shift := s, 0
	if n := len(s); n > 0 {
		if i := strings.IndexByte("KMGT", s[n-1]&^0x20); i >= 0 {
			digits, shift = s[:n-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > maxPredictSize>>shift {
		return 0, exit.Usagef("--sizes: %q is not a size of 1 byte or more such as 65536, 64K, 1M or 8G", s)
	}
	return n << shift, nil
}
