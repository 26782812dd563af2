package perf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
)

// jsonFile writes nccl-tests' report (-J), version 3 of its layout.
type jsonFile struct {
	silent
	file *os.File // nil: not written
}

// header opens the file, so that a path that cannot be written fails before the sweep and not
// after it.
func (s *jsonFile) header(r *reporter) error {
	f, err := createNew(r.cfg.JSONFile)
	if err != nil {
		_, err = fmt.Fprintf(r.text, "# skipping json output; %v\n", err)
		return err
	}
	s.file = f
	_, err = fmt.Fprintf(r.text, "# Writing JSON output to %s\n", f.Name())
	return err
}

// createNew creates a file, under another name (.0, .1, …) if it exists.
func createNew(name string) (*os.File, error) {
	for i := -1; ; i++ {
		try := name
		if i >= 0 {
			try = fmt.Sprintf("%s.%d", name, i)
		}
		f, err := os.OpenFile(try, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if !errors.Is(err, fs.ErrExist) || i == 9999 {
			return f, err
		}
	}
}

func (s *jsonFile) footer(r *reporter, res *Result, cause error) error {
	if s.file == nil {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(newFileReport(r, res, cause))
	// nccl-tests escapes slashes in its reports. They occur only in strings.
	text := bytes.ReplaceAll(bytes.TrimSpace(b.Bytes()), []byte("/"), []byte(`\/`))
	_, werr := s.file.Write(text)
	return errors.Join(err, werr, s.file.Close())
}

// A fileReport is the content of the file: booleans are strings, and floats have six decimals.
type fileReport struct {
	Version     int        `json:"version"`
	Start       string     `json:"start_time"`
	Args        []string   `json:"args"`
	Env         []string   `json:"env"`
	NCCL        int        `json:"nccl_version"`
	Config      fileConfig `json:"config"`
	Results     []fileRow  `json:"results"`
	OutOfBounds struct {
		Count int  `json:"count"`
		Okay  bool `json:"okay,string"`
	} `json:"out_of_bounds"`
	Average struct {
		Bandwidth decimal `json:"bandwidth"`
		Okay      string  `json:"okay"`
	} `json:"average_bus_bandwidth"`
	Errors []string `json:"errors"`
	End    string   `json:"end_time"`
}

type fileConfig struct {
	Threads      int          `json:"nthreads"`
	GPUs         int          `json:"ngpus"`
	MinBytes     int64        `json:"minimum_bytes"`
	MaxBytes     int64        `json:"maximum_bytes"`
	StepFactor   int          `json:"step_factor,omitempty"`
	StepBytes    *int64       `json:"step_bytes,omitempty"`
	Warmup       int          `json:"warmup_iters"`
	Iters        int          `json:"iterations"`
	AggIters     int          `json:"aggregated_iterations"`
	Check        int          `json:"validation"`
	Graph        int          `json:"graph"`
	Blocking     int          `json:"blocking_collectives"`
	PerIter      bool         `json:"per_iter_timing,string"`
	PerIterSkip  int          `json:"per_iter_skip"`
	ParallelInit bool         `json:"parallel_init,string"`
	Devices      []fileDevice `json:"devices"` // the first of each process
}

type fileDevice struct {
	Rank   int    `json:"rank"`
	Group  int    `json:"group"`
	Pid    int    `json:"pid"`
	Host   string `json:"hostname"`
	Device int    `json:"device"`
	Bus    string `json:"device_hex"`
	Name   string `json:"device_info"`
}

type fileRow struct {
	Bytes          int64         `json:"size"`
	Count          int64         `json:"count"`
	Type           string        `json:"type"`
	Redop          string        `json:"redop"`
	Root           string        `json:"root"`
	OutOfPlace     filePlacement `json:"out_of_place"`
	OutOfPlaceIter *fileIter     `json:"out_of_place_per_iter,omitempty"`
	InPlace        filePlacement `json:"in_place"`
	InPlaceIter    *fileIter     `json:"in_place_per_iter,omitempty"`
	Iterations     int           `json:"actual_iterations"`
	Experiment     string        `json:"experiment_name"`
}

type filePlacement struct {
	CPUTime *decimal `json:"cpu_time,omitempty"`
	Time    *decimal `json:"time,omitempty"`
	AlgBW   decimal  `json:"alg_bw"`
	BusBW   decimal  `json:"bus_bw"`
	Wrong   *int64   `json:"nwrong"`
}

type fileIter struct {
	Skipped   int         `json:"skipped_iterations"`
	Min       decimal     `json:"min_us"`
	Max       decimal     `json:"max_us"`
	Mean      decimal     `json:"avg_us"`
	P50       decimal     `json:"p50_us"`
	P95       decimal     `json:"p95_us"`
	P99       decimal     `json:"p99_us"`
	Stdev     decimal     `json:"stdev_us"`
	CV        decimal     `json:"cv_pct"`
	Times     []decimal   `json:"times_us"`
	ByProcess [][]decimal `json:"per_process_max_times_us,omitempty"`
}

// A decimal is written with six decimals; infinities and NaN are strings.
type decimal float64

func (d decimal) MarshalJSON() ([]byte, error) {
	if s, ok := special(float64(d)); ok {
		return strconv.AppendQuote(nil, s), nil
	}
	return strconv.AppendFloat(nil, float64(d), 'f', 6, 64), nil
}

func decimals(v []float64) []decimal {
	out := make([]decimal, len(v))
	for i, x := range v {
		out[i] = decimal(x)
	}
	return out
}

func newFileReport(r *reporter, res *Result, cause error) *fileReport {
	c := &r.cfg
	f := &fileReport{
		Version: 3, Start: r.started.Format(timestamp), Args: append([]string{c.Program}, c.Args...), Env: reportedEnviron(r.std.Environ), NCCL: r.world.Version,
		Config: fileConfig{
			Threads: c.Threads, GPUs: c.GPUs, MinBytes: c.MinBytes, MaxBytes: min(c.MaxBytes, r.limit), Warmup: c.Warmup, Iters: c.Iters, AggIters: c.AggIters,
			Check: c.Check, Graph: c.Graph, Blocking: c.Blocking, PerIter: c.PerIter, PerIterSkip: c.PerIterSkip, ParallelInit: c.ParallelInit,
		},
		Results: []fileRow{}, Errors: []string{}, End: r.host.now().Format(timestamp),
	}
	if c.StepFactor > 1 {
		f.Config.StepFactor = c.StepFactor
	} else {
		f.Config.StepBytes = &c.StepBytes
	}
	for i, x := range r.ranks {
		if i == 0 || r.process[i] != r.process[i-1] {
			bus := address(x.Bus)
			f.Config.Devices = append(f.Config.Devices, fileDevice{i, x.Group, x.Pid, x.Host, x.Device, bus, x.Name})
		}
	}
	for i := range res.Rows {
		row := &res.Rows[i]
		f.Results = append(f.Results, fileRow{
			Bytes: row.Bytes, Count: row.Count, Type: row.Type, Redop: row.Redop, Root: fmt.Sprintf("%6d", row.Root),
			OutOfPlace: row.OutOfPlace.inFile(c), OutOfPlaceIter: row.OutOfPlace.iterInFile(c), InPlace: row.InPlace.inFile(c), InPlaceIter: row.InPlace.iterInFile(c),
			Iterations: row.Iterations / c.AggIters, Experiment: path.Base(c.Program),
		})
	}
	f.OutOfBounds.Count, f.OutOfBounds.Okay = res.OutOfBounds, res.OutOfBounds == 0
	f.Average.Bandwidth, f.Average.Okay = decimal(res.AvgBusBW), "unchecked"
	if res.MinBusBW > 0 {
		f.Average.Okay = strconv.FormatBool(res.fast())
	}
	if cause != nil {
		f.Errors = append(f.Errors, cause.Error())
	}
	return f
}

func (p *Placement) inFile(c *Config) filePlacement {
	f := filePlacement{AlgBW: decimal(p.AlgBW), BusBW: decimal(p.BusBW)}
	time := decimal(p.Time)
	if c.CPUTime {
		f.CPUTime = &time
	} else {
		f.Time = &time
	}
	if p.Wrong >= 0 {
		f.Wrong = &p.Wrong
	}
	return f
}

func (p *Placement) iterInFile(c *Config) *fileIter {
	s := p.Iter
	if s == nil || !c.PerIter {
		return nil
	}
	f := &fileIter{
		Skipped: s.Skipped, Min: decimal(s.Min), Max: decimal(s.Max), Mean: decimal(s.Mean), P50: decimal(s.P50), P95: decimal(s.P95),
		P99: decimal(s.P99), Stdev: decimal(s.Stdev), CV: decimal(s.CV), Times: decimals(s.Times),
	}
	for _, row := range s.byProcess {
		f.ByProcess = append(f.ByProcess, decimals(row))
	}
	return f
}
