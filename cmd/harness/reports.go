package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/result"
)

// checkOut refuses a file of --out that cannot be written, before a command measures what is to be
// in it; "" is none.
func checkOut(file string) error {
	if file == "" {
		return nil
	}
	if err := outfile.Check(file); err != nil {
		return exit.With(exit.NotDone, fmt.Errorf("--out: %w", err))
	}
	return nil
}

// A written is a report that can be written as text or as JSON.
type written interface{ WriteText(io.Writer) error }

// writeReport writes a report as text or JSON, and if file is not "" as JSON
// to a file.
func writeReport(d written, out io.Writer, format, file string) error {
	if file != "" {
		var b bytes.Buffer
		if err := writeJSON(&b, d); err != nil {
			return err
		}
		if err := outfile.Write(file, b.Bytes()); err != nil {
			return err
		}
	}
	if format == "json" {
		return writeJSON(out, d)
	}
	return d.WriteText(out)
}

// found is the report of one kind of checks, with options for the text.
type found struct {
	*result.Report
	opt report.TextOptions
}

// WriteText implements written.
func (f found) WriteText(w io.Writer) error {
	f.opt.Color, f.opt.Width = colored(w), columns(w)
	return report.Results(painted(w), f.Report, f.opt)
}

// writeFound writes the report of one kind of checks as writeReport does.
func writeFound(r *result.Report, out io.Writer, format, file string, opt report.TextOptions) error {
	r.Sum()
	return writeReport(found{r, opt}, out, format, file)
}

func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
