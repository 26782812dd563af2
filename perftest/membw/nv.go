package membw

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/stat"
)

// Parameters of nvbandwidth 0.8.
const (
	nvVersion  = "v0.8"
	nvCopies   = 16
	nvWarmup   = 4
	nvAccesses = 1 << 20
)

// NVOptions are the options of nvbandwidth.
type NVOptions struct {
	MiB       int // of a buffer
	Samples   int
	Mean      bool // of the samples; otherwise the median
	Verbose   bool
	NoVerify  bool
	JSON      bool
	Testcases []string // names or indexes
	Prefixes  []string // of names

	List       bool // list the testcases, and measure nothing
	NoAffinity bool // host memory is allocated wherever this thread runs

	Version string // of this program
	Driver  string
	Host    string
}

// ListNV lists the testcases as nvbandwidth -l does.
func ListNV(w io.Writer) error {
	var b strings.Builder
	b.WriteString("Index, Name:\n\tDescription\n=======================\n")
	for i, c := range nvCases {
		fmt.Fprintf(&b, "%d, %s:\n\t%s\n\n", i, c.name, c.about)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Run measures and prints like nvbandwidth. It returns the first error of a testcase, and still
// measures the remaining ones.
func (o NVOptions) Run(ctx context.Context, m Machine, w io.Writer) error {
	t := &nvTest{Machine: m, NVOptions: o, ctx: ctx, w: w, n: len(m.GPUs())}
	if o.JSON {
		t.w = io.Discard
	}
	if err := connect(m, true); err != nil {
		return err
	}
	t.header()
	var failed error
	for _, c := range t.chosen() {
		failed = cmp.Or(failed, t.testcase(c))
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	fmt.Fprint(t.w, "NOTE: This tool reports current measured bandwidth on your system.\nAdditional system-specific tuning may be required to achieve maximal peak bandwidth.\n\n")
	if o.JSON {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false) // keeps <-> readable
		enc.SetIndent("", "   ")
		failed = cmp.Or(failed, enc.Encode(map[string]any{"nvbandwidth": t.doc}))
	}
	return failed
}

type nvTest struct {
	Machine
	NVOptions
	ctx context.Context
	w   io.Writer
	n   int // GPUs
	doc nvDocument
}

// nvDocument is nvbandwidth's JSON, below its root element.
type nvDocument struct {
	Runtime   int          `json:"CUDA Runtime Version"`
	Driver    string       `json:"Driver Version"`
	Devices   []string     `json:"GPU Device list"`
	Git       string       `json:"git_version"`
	Testcases []nvTestcase `json:"testcases"`
	Version   string       `json:"version"`
}

// nvTestcase is a testcase in nvbandwidth's JSON. If a testcase has several matrices, it contains
// the rows of all, and title and sum of the last one.
type nvTestcase struct {
	Name        string     `json:"name"`
	Status      string     `json:"status"`
	Error       string     `json:"error,omitempty"`
	Description string     `json:"bandwidth_description,omitempty"`
	Matrix      [][]string `json:"bandwidth_matrix,omitempty"`
	Sum         *float64   `json:"sum,omitempty"`
	Min         *float64   `json:"min,omitempty"`
	Max         *float64   `json:"max,omitempty"`
	Average     *float64   `json:"average,omitempty"`
}

func (t *nvTest) header() {
	t.doc = nvDocument{Runtime: t.CUDA(), Driver: t.Driver, Git: t.Version, Version: nvVersion, Testcases: []nvTestcase{}}
	fmt.Fprintf(t.w, "nvbandwidth Version: %s\nBuilt from Git version: %s\n\n", nvVersion, t.Version)
	fmt.Fprintf(t.w, "CUDA Runtime Version: %d\nCUDA Driver Version: %[1]d\nDriver Version: %s\n\n%s\n", t.CUDA(), t.Driver, t.Host)
	for _, g := range t.GPUs() {
		line := fmt.Sprintf("%s (%08x:%02x:%02x)", g.Name, g.Bus.Domain, g.Bus.Bus, g.Bus.Device)
		fmt.Fprintf(t.w, "Device %d: %s\n", g.Index, line)
		t.doc.Devices = append(t.doc.Devices, fmt.Sprintf("%d: %s", g.Index, line))
	}
	fmt.Fprintln(t.w)
}

// chosen returns the testcases to run. One that does not exist has only a name.
func (t *nvTest) chosen() (out []testcase) {
	for _, name := range t.Testcases {
		i, err := strconv.Atoi(name)
		if err != nil {
			i = slices.IndexFunc(nvCases, func(c testcase) bool { return c.name == name })
		}
		if i < 0 || i >= len(nvCases) {
			out = append(out, testcase{name: name})
			continue
		}
		out = append(out, nvCases[i])
	}
	for _, c := range nvCases {
		if slices.ContainsFunc(t.Prefixes, func(p string) bool { return strings.HasPrefix(c.name, p) }) {
			out = append(out, c)
		}
	}
	if len(t.Testcases)+len(t.Prefixes) == 0 {
		return nvCases
	}
	return out
}

// others iterates over all GPUs except g.
func (t *nvTest) others(g int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for o := range t.n {
			if o != g && !yield(o) {
				return
			}
		}
	}
}

// status prints the outcome of a testcase and stores it.
func (t *nvTest) status(c nvTestcase, status, why string) {
	c.Status = status
	if status != "Passed" {
		shown := status
		if status == "Not Found" {
			shown = "Error"
		}
		fmt.Fprintf(t.w, "%s: %s\n\n", shown, why)
		c.Error = why
	}
	t.doc.Testcases = append(t.doc.Testcases, c)
}

func (t *nvTest) testcase(c testcase) error {
	doc := nvTestcase{Name: c.name}
	if c.flows == nil {
		t.status(doc, "Not Found", fmt.Sprintf("Testcase %s not found!", c.name))
		return fmt.Errorf("there is no testcase %q", c.name)
	}
	fmt.Fprintf(t.w, "Running %s.\n", c.name)
	if c.peers && !t.anyPeers() {
		t.status(doc, "Waived", "it takes two GPUs with peer access")
		return nil
	}
	cells, failed := t.measure(c)
	if context.Cause(t.ctx) != nil {
		return failed
	}
	for _, kind := range c.matrices {
		t.matrix(c, kind, cells, &doc)
	}
	if failed != nil {
		failed = fmt.Errorf("%s: %w", c.name, failed)
		t.status(doc, "Error", failed.Error())
		return failed
	}
	t.status(doc, "Passed", "")
	return nil
}

func (t *nvTest) anyPeers() bool {
	for i := range t.n {
		for j := range i {
			if t.Peer(i, j) == nil && t.Peer(j, i) == nil {
				return true
			}
		}
	}
	return false
}

// measure returns the values of each cell, one per flow; nil: there is none. A failed cell does not
// affect the others.
func (t *nvTest) measure(c testcase) (cells [][][]float64, failed error) {
	rows := 1
	if c.square {
		rows = t.n
	}
	for i := range rows {
		cells = append(cells, make([][]float64, t.n))
		for j := range t.n {
			flows := c.flows(t, i, j)
			if len(flows) == 0 {
				continue
			}
			values, err := t.cell(c, flows)
			if context.Cause(t.ctx) != nil {
				return cells, err
			}
			if err == nil {
				cells[i][j] = values
			}
			failed = cmp.Or(failed, err)
		}
	}
	return cells, failed
}

// cell returns GB/s of each flow, or of all flows together; or ns.
func (t *nvTest) cell(c testcase, flows []Flow) ([]float64, error) {
	if c.latency {
		samples, err := t.Latency(t.ctx, Latency{By: flows[0].By, At: flows[0].From, Accesses: nvAccesses, Samples: t.Samples})
		if err != nil {
			return nil, err
		}
		for i := range samples {
			samples[i] *= 1e9
		}
		return []float64{t.middle(samples, "ns")}, nil
	}
	p := Plan{Bytes: t.MiB << 20, Samples: t.Samples, Copies: nvCopies, Warmup: nvWarmup, NoVerify: t.NoVerify}
	out, err := t.Measure(t.ctx, flows, p)
	if err != nil {
		return nil, err
	}
	bytes := float64(p.Bytes * p.Copies)
	if c.total {
		return []float64{t.middle(rates(bytes*float64(len(flows)), out.Total), "GB/s")}, nil
	}
	var values []float64
	for _, f := range out.Flows {
		values = append(values, t.middle(rates(bytes, f), "GB/s"))
		if c.matrices[0].value == nil {
			break // only the first flow is measured, the others are load
		}
	}
	return values, nil
}

// middle is the mean or the median of samples. With -v it prints all samples.
func (t *nvTest) middle(samples []float64, unit string) float64 {
	if t.Verbose {
		for i, s := range samples {
			fmt.Fprintf(t.w, "\tSample %d: %.2f %s\n", i, s, unit)
		}
	}
	if t.Mean {
		mean, _ := stat.Moments(samples)
		return mean
	}
	return stat.Median(samples)
}

// matrix prints a matrix and stores it.
func (t *nvTest) matrix(c testcase, kind matrixKind, cells [][][]float64, doc *nvTestcase) {
	fmt.Fprintf(t.w, "%s\n  ", kind.title)
	for j := range t.n {
		fmt.Fprintf(t.w, "%10d", j)
	}
	fmt.Fprintln(t.w)
	var all []float64
	for i, row := range cells {
		fmt.Fprintf(t.w, "%2d", i)
		var texts []string
		for _, values := range row {
			text, exact := "N/A", "N/A"
			if values != nil {
				v := values[0]
				if kind.value != nil {
					v = kind.value(values)
				}
				all = append(all, v)
				text, exact = fmt.Sprintf("%.2f", v), strconv.FormatFloat(v, 'g', 6, 64)
			}
			fmt.Fprintf(t.w, "%10s", text)
			texts = append(texts, exact)
		}
		fmt.Fprintln(t.w)
		doc.Matrix = append(doc.Matrix, texts)
	}
	total := 0.0
	for _, v := range all {
		total += v
	}
	name := c.name + kind.suffix
	fmt.Fprintf(t.w, "\nSUM %s %.2f\n", name, total)
	doc.Description, doc.Sum = kind.title, &total
	if t.Verbose && len(all) > 0 {
		least, most, average := slices.Min(all), slices.Max(all), total/float64(len(all))
		fmt.Fprintf(t.w, "MIN %s %.2f\nMAX %s %.2f\nAVG %s %.2f\n", name, least, name, most, name, average)
		doc.Min, doc.Max, doc.Average = &least, &most, &average
	}
	fmt.Fprintln(t.w)
}
